"""A worker with faults, in a process of its own: what `start_worker` starts."""

import importlib
import json
import logging
import os
import sys
import threading

from penstock.app import App
from penstock.errors import PenstockError
from penstock.testing.faults import Faults


class NotAnApp(PenstockError):
    """What a worker is started with does not lead to an App."""

    def __init__(self, target: str) -> None:
        self.target = target
        super().__init__(
            f"{target!r} does not name an App. Write the module and the name, as in 'orders:app'."
        )


def _end_with_parent() -> None:
    """End when the pipe closes: whoever holds its other end has gone, however that happened."""

    def watch() -> None:
        os.read(sys.stdin.fileno(), 1)
        os._exit(1)

    threading.Thread(target=watch, name="end-with-parent", daemon=True).start()


def _load(target: str) -> App:
    module, _, name = target.partition(":")
    app = getattr(importlib.import_module(module), name, None)
    if not isinstance(app, App):
        raise NotAnApp(target)
    return app


def main(target: str, given: str) -> None:
    """Import an App, set up its faults, and work in the foreground until a signal says stop."""
    _end_with_parent()
    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    app, told = _load(target), json.loads(given)
    with Faults.described(told["faults"]).injected(app):
        app.run_worker(**{"owns_process": True, **told["options"]})


if __name__ == "__main__":
    main(*sys.argv[1:])
