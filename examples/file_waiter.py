"""Files that arrive when they arrive: tasks that wait for them and occupy no slot meanwhile.

    python examples/file_waiter.py

One worker with a single slot is given three imports, whose files are not there yet, and one letter
that has nothing to wait for. The letter does not have to wait for the imports.
"""

import os
import tempfile
import time
from pathlib import Path

from penstock import App, DeferTimeout, TaskHandle

app = App()  # PENSTOCK_DATABASE_URL says where the database is


@app.task
def load(handle: TaskHandle, path: str) -> int:
    """Count the lines of a file, as soon as it has been delivered completely."""
    file = Path(path)
    # Whoever delivers renames the file when it is whole, so that to exist is to be complete.
    try:
        handle.defer_until(file.exists, every="200ms", timeout="1m", reason=f"no {file.name} yet")
    except DeferTimeout:
        return 0
    return len(file.read_text().splitlines())


@app.task
def write_letter(to: str) -> str:
    return f"Dear {to}"


def deliver(file: Path, lines: int) -> None:
    part = file.with_suffix(".part")
    part.write_text("a line\n" * lines)
    part.rename(file)


def wait_until_deferred(count: int) -> None:
    while sum(one.sub_state == "deferred" for one in app.find(state="running")) < count:
        time.sleep(0.02)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        os.environ.setdefault("PENSTOCK_DATABASE_URL", f"sqlite:///{directory}/waiter.db")
        app.migrate()
        files = [Path(directory) / f"{name}.csv" for name in ("north", "south", "west")]
        with app.worker(slots=1):
            imports = [load.enqueue(str(file)) for file in files]
            wait_until_deferred(len(files))
            print(f"{len(files)} imports wait for their files")
            print("the letter, in the same single slot:", write_letter.enqueue("Ada").result())
            for lines, (file, execution) in enumerate(zip(files, imports, strict=True), start=2):
                deliver(file, lines)
                print(f"{file.name} has arrived: {execution.result(timeout=30)} lines")
        for event in imports[0].history():
            print(f"  {event.type:18} {event.data.get('reason', '')}".rstrip())
        app.close()


if __name__ == "__main__":
    main()
