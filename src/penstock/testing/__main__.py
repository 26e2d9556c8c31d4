"""A worker with faults, in a process of its own: what `start_worker` starts."""

import json
import logging
import os
import sys
import threading

from penstock.targets import load_app
from penstock.testing.faults import Faults


def _end_with_parent() -> None:
    """End when the pipe closes: whoever holds its other end has gone, however that happened."""

    def watch() -> None:
        os.read(sys.stdin.fileno(), 1)
        os._exit(1)

    threading.Thread(target=watch, name="end-with-parent", daemon=True).start()


def main(target: str, given: str) -> None:
    """Import an App, set up its faults, and work in the foreground until a signal says stop."""
    _end_with_parent()
    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    app, told = load_app(target), json.loads(given)
    with Faults.described(told["faults"]).injected(app):
        app.run_worker(**{"owns_process": True, **told["options"]})


if __name__ == "__main__":
    main(*sys.argv[1:])
