"""A program of the first version: it migrates, enqueues or works with whatever Penstock it finds.

It is run as a script, with the frozen package in PYTHONPATH, and imports nothing of ours beside it.
"""

import os
import sys
import time

from penstock import App, TaskHandle

app = App()


@app.task
def step(handle: TaskHandle, number: int) -> int:
    line = f"{handle.execution_id} {handle.attempt} {os.getpid()}\n"
    file = os.open(os.environ["PENSTOCK_TEST_RUNS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)
    time.sleep(0.005)
    return number


def main(doing: str, first: int = 0, count: int = 0) -> None:
    match doing:
        case "migrate":
            app.migrate()
        case "enqueue":
            requests = [step.request(number) for number in range(first, first + count)]
            for execution in app.enqueue_many(requests):
                sys.stdout.write(f"{execution.id}\n")
        case "work":
            app.run_worker(slots=4, heartbeat=0.3, lease=1.5, owns_process=True)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
