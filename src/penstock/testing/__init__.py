"""What tests of programs that use Penstock need; nothing here is meant for production."""

from penstock.testing.clock import ManualClock
from penstock.testing.crash_points import (
    CRASH_POINTS,
    UnknownCrashPoint,
    kill_process,
    lose_reply,
    stop_process,
    terminate_process,
)
from penstock.testing.fake_handle import FakeAsyncHandle, FakeHandle
from penstock.testing.faults import FOR_EVER, Faults
from penstock.testing.manual import ManualApp
from penstock.testing.processes import WorkerProcess, start_worker, worker_process
from penstock.testing.proxy import Proxy, proxy_to

__all__ = [
    "CRASH_POINTS",
    "FOR_EVER",
    "FakeAsyncHandle",
    "FakeHandle",
    "Faults",
    "ManualApp",
    "ManualClock",
    "Proxy",
    "UnknownCrashPoint",
    "WorkerProcess",
    "kill_process",
    "lose_reply",
    "proxy_to",
    "start_worker",
    "stop_process",
    "terminate_process",
    "worker_process",
]
