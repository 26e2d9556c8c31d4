"""Tasks that harm their own process: they hold the GIL, eat its memory, or read the clock."""

import ctypes
import os
import resource
import time

from penstock import TaskHandle
from tests.support.tasks import app, began

TARGET = f"{__name__}:app"
LIMIT = 1 << 30  # of address space, beyond what the process has when it is imported


@app.task
def hold_the_gil(handle: TaskHandle, seconds: int) -> int:
    """The first time, let no other thread of the process run: not even its heartbeat."""
    began(handle)
    if handle.attempt == 1:
        # PyDLL, not CDLL: it calls with the GIL held.
        ctypes.PyDLL(None).sleep(seconds)
    return os.getpid()


@app.task(retry=[0])
def eat_memory(handle: TaskHandle) -> int:
    """The first time, ask for more memory than the process may have."""
    began(handle)
    if handle.attempt == 1:
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (_address_space() + LIMIT, hard))
        eaten = []
        try:
            while True:
                eaten.append(bytearray(64 << 20))
        finally:
            eaten.clear()
            resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    return os.getpid()


def _address_space() -> int:
    with open("/proc/self/statm", encoding="ascii") as statm:  # noqa: PTH123 - no Path in a pinch
        return int(statm.read().split()[0]) * resource.getpagesize()


@app.task
def tell_time(handle: TaskHandle) -> float:
    began(handle)
    return time.time()
