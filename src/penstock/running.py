"""Running a worker: what can be chosen, and how signals stop it."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from types import FrameType
from typing import TYPE_CHECKING, Any, TypedDict

from penstock.engine.requests import InvalidOption, checked_duration, checked_name
from penstock.model.durations import Duration, format_duration
from penstock.model.workers import SHORTEST_REST

if TYPE_CHECKING:
    from penstock.engine.worker import Worker, WorkerOptions
    from penstock.settings import WorkerSettings

_DURATIONS = ("heartbeat", "lease", "grace", "poll")


class WorkerChoices(TypedDict, total=False):
    """What one worker does otherwise than the settings say."""

    slots: int
    queues: Sequence[str]
    heartbeat: Duration
    lease: Duration
    grace: Duration
    poll: Duration
    same_host: bool
    owns_process: bool
    metrics: str


def worker_options(settings: "WorkerSettings", choices: WorkerChoices) -> "WorkerOptions":
    """Combine the settings with what was chosen for one worker; refuse what cannot be."""
    from penstock.engine.worker import WorkerOptions  # noqa: PLC0415 - only workers need it

    chosen: dict[str, Any] = {
        "slots": settings.slots,
        "queues": settings.queues,
        **{name: getattr(settings, name) for name in _DURATIONS},
        **choices,
    }
    known = frozenset(WorkerOptions.__struct_fields__)
    for name, value in chosen.items():
        if name not in known:
            raise InvalidOption(
                name,
                value,
                because="a worker has no such option",
                instead=f"There are {', '.join(sorted(known))}",
            )
    for name in _DURATIONS:
        chosen[name] = _checked_length(name, chosen[name])
    slots = chosen["slots"]
    if isinstance(slots, bool) or not isinstance(slots, int) or slots < 1:
        raise InvalidOption(
            "slots", slots, because="it must be a whole number, at least 1", instead="Try 10"
        )
    if isinstance(chosen["queues"], str):
        raise InvalidOption(
            "queues",
            chosen["queues"],
            because="it must be a list of names",
            instead=f"Write queues=[{chosen['queues']!r}]",
        )
    chosen["queues"] = tuple(checked_name("queues", queue) for queue in chosen["queues"])
    if chosen["lease"] < 2 * chosen["heartbeat"]:
        raise InvalidOption(
            "lease",
            format_duration(chosen["lease"]),
            because="it must be at least twice the heartbeat, which is "
            f"{format_duration(chosen['heartbeat'])}",
            instead="One lost heartbeat would make a living worker look dead otherwise",
        )
    return WorkerOptions(**chosen)


def _checked_length(name: str, value: Duration) -> timedelta:
    length = checked_duration(name, value)
    if length < SHORTEST_REST and name != "grace":
        raise InvalidOption(
            name,
            value,
            because="it would keep the database busy with nothing else",
            instead=f"Give {format_duration(SHORTEST_REST)} or more",
        )
    return length


def run_in_foreground(worker: "Worker", *, until_idle: bool) -> bool:
    """Work until a signal says stop, or until nothing is due; return whether it was Ctrl-C."""
    stop, hurry = threading.Event(), threading.Event()
    with _signals(stop, hurry) as received:
        worker.start()
        if until_idle:
            threading.Thread(
                target=_wait_until_idle, args=(worker, stop), name="penstock-idle", daemon=True
            ).start()
        # With a timeout, because a wait without one cannot be interrupted on every system.
        while not stop.wait(1.0):
            pass
        worker.stop(hurry=hurry)
    import signal  # noqa: PLC0415 - only when used

    return signal.SIGINT in received


def _wait_until_idle(worker: "Worker", stop: threading.Event) -> None:
    worker.wait_until_idle()
    stop.set()


@contextmanager
def _signals(stop: threading.Event, hurry: threading.Event) -> Iterator[list[int]]:
    """Take signals for what they mean to a worker, in a list of those that have come."""
    import signal  # noqa: PLC0415 - only when used

    numbers: list[int] = []

    def received(number: int, _frame: FrameType | None) -> None:
        numbers.append(number)
        if stop.is_set():
            hurry.set()
        stop.set()

    if threading.current_thread() is not threading.main_thread():
        yield numbers  # only the main thread may have handlers; the caller stops us otherwise
        return
    before = {number: signal.signal(number, received) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield numbers
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
