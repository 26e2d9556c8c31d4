"""What a task remembers between its attempts, and how it waits without a worker.

A task that waits ends its attempt and begins again from its start when it has what it waits
for. Steps are how it finds its way back: what it has done, it does not do again.
"""

import re
import threading
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

import msgspec

from penstock.engine.conversion import (
    Converter,
    Misfit,
    UnsupportedAnnotation,
    closure_of,
    resolve,
)
from penstock.errors import PenstockError
from penstock.model.durations import format_duration
from penstock.model.executions import Claimed, Memory
from penstock.model.outcomes import Outcome, Suspended, SuspendedFor, end_of_run, signal_named
from penstock.model.payloads import decode, encode
from penstock.model.runs import NewRun
from penstock.store.contract import Store

if TYPE_CHECKING:
    from concurrent.futures import Future

P = ParamSpec("P")
T = TypeVar("T")

LONGEST_NAME = 200

# As `signal_named` and `Recall.next_run` make them.
_OURS = {
    "wait_for": re.escape(signal_named("")) + ".*",
    "run": "run .+ [1-9][0-9]*",
}

_decode_text = msgspec.json.Decoder(str).decode


class Suspend(PenstockError):
    """Ends an attempt that waits for something; the attempt is not spent."""

    def __init__(self, awaits: str, timeout: timedelta | None = None) -> None:
        self.awaits = awaits
        self.timeout = timeout
        super().__init__(f"to be continued: it waits for {awaits}")

    def outcome(self, told: dict[str, Any]) -> Outcome:
        if self.timeout is None:
            return Suspended(awaits=self.awaits, **told)
        return SuspendedFor(awaits=self.awaits, timeout=self.timeout, **told)


class WaitTimeout(PenstockError, TimeoutError):
    """A signal that did not come in time."""

    def __init__(self, signal: str, timeout: timedelta) -> None:
        self.signal = signal
        self.timeout = timeout
        # The facts themselves, so that the error survives the way out of a child process.
        super().__init__(signal, timeout)

    def __str__(self) -> str:
        return (
            f"The signal {self.signal!r} did not come within {format_duration(self.timeout)}. "
            "Handle this error, or rerun the execution, which waits anew, and send it in time with "
            f'app.signal(execution_id, "{self.signal}").'
        )


class InvalidName(PenstockError, ValueError):
    """A step or a signal that cannot be called so."""

    def __init__(self, what: str, name: object, *, because: str) -> None:
        self.name = name
        super().__init__(
            f"{name!r} cannot be the name of a {what}: {because}. "
            "Name what happens, as in 'charge'."
        )


def checked_name(what: str, name: object) -> str:
    if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= LONGEST_NAME:
        because = f"it must be a text of 1 to {LONGEST_NAME} printable characters"
        raise InvalidName(what, name, because=because)
    return str.__str__(name)  # as in engine/requests: the text itself, be it that of an enum


def checked_step(name: object) -> str:
    """The same for a step: what waits and runs are remembered under is stored beside it."""
    step = checked_name("step", name)
    for whose, taken in _OURS.items():
        if re.fullmatch(taken, step):
            raise InvalidName("step", step, because=f"handle.{whose} remembers under such names")
    return step


class StepDoesNotFit(PenstockError):
    """What a step returned in an earlier attempt is not what it returns by now."""

    def __init__(self, step: str, detail: str) -> None:
        self.step = step
        self.detail = detail
        super().__init__(step, detail)

    def __str__(self) -> str:
        return (
            f"The step {self.step!r} is remembered with a result that its function no longer "
            f"returns: {self.detail}. Give the step another name when its result changes."
        )


class Started(Protocol):
    """A run as a task sees it that waits for it."""

    @property
    def state(self) -> str: ...
    def result(self, timeout: float | None = None) -> dict[str, Any]: ...


class Startable(Protocol[P]):
    """A workflow, as far as a handle knows one."""

    @property
    def name(self) -> str: ...
    def new_run(
        self, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> tuple[NewRun, object]: ...
    def start(self, *args: P.args, **kwargs: P.kwargs) -> object: ...
    def get(self, execution_id: str) -> Started: ...


class Recall:
    """One execution's memory, read when it is first needed."""

    def __init__(self, claimed: Claimed, store: Callable[[], Store]) -> None:
        self._claimed = claimed
        self._store = store
        self._memory: Memory | None = None
        # Nobody has had it before, so it has taken no step: no need to ask.
        self._steps: dict[str, str] | None = {} if claimed.lease.fence == 1 else None
        self.under_way: dict[str, Future[bool]] = {}  # steps that are not known to be stored
        self._noting = threading.Lock()  # who writes a step, and who waits for it, hear of its end
        self._runs: dict[str, int] = {}  # how many of each workflow this attempt has asked for

    @property
    def knows_steps(self) -> bool:
        return self._steps is not None

    @property
    def steps(self) -> dict[str, str]:
        if self._steps is None:
            self._steps = self.read().steps
        return self._steps

    def read(self) -> Memory:
        """What is stored, signals too; one sent meanwhile is found when the task would wait."""
        if self._memory is None:
            self._memory = self._store().memory(self._claimed.lease.execution_id)
        return self._memory

    def note(self, step: str, result: str, written: "Future[bool]") -> None:
        """It has been taken: no call in this attempt takes it again, unless it is refused."""
        with self._noting:
            self.steps[step] = result
            self.under_way[step] = written
        written.add_done_callback(lambda done: self.note_answer(step, done))

    def note_answer(self, step: str, written: "Future[bool]") -> None:
        """What could not be stored is taken again, also by who asks for it in the same attempt."""
        with self._noting:
            if self.under_way.get(step) is not written:
                return  # noted already, and perhaps asked for again
            del self.under_way[step]
            if written.exception() is not None:
                del self.steps[step]

    def next_run(self, workflow: str) -> str:
        """The step that starts the next run of this workflow: the same one in every attempt."""
        self._runs[workflow] = count = self._runs.get(workflow, 0) + 1
        return f"run {workflow} {count}"

    def run_was_refused(self, workflow: str) -> None:
        """Who asks again asks for the same one."""
        self._runs[workflow] -= 1


def result_of_step(step: str, function: Callable[..., object], text: str) -> Any:  # noqa: ANN401
    """A remembered result as the function's annotation says, or as plain data without one."""
    annotation = getattr(function, "__annotations__", {}).get("return")
    if annotation is None:
        return decode(text)
    try:
        names = getattr(function, "__globals__", {})
        kind = resolve(annotation, globals=names, closure=closure_of(function))
        return Converter(kind).read(text)
    except UnsupportedAnnotation:
        return decode(text)
    except Misfit as misfit:
        raise StepDoesNotFit(step, f"{misfit.path or 'it'}: {misfit.detail}") from misfit


def wait_left(
    steps: Mapping[str, str], signal: str, timeout: timedelta | None, now: datetime
) -> tuple[timedelta | None, str | None]:
    """How long a wait may still last, and, when it begins, until when: to be remembered."""
    if timeout is None:
        return None, None
    stored = steps.get(signal_named(signal))
    if stored is None:
        return timeout, encode((now + timeout).isoformat())
    left = datetime.fromisoformat(_decode_text(stored)) - now
    if left <= timedelta(0):
        raise WaitTimeout(signal, timeout)
    return left, None


def ended_or_suspend(run: Started, run_id: str) -> dict[str, Any]:
    """The results of a run that has ended; else wait for it.

    Raises:
        WorkflowFailed, WorkflowCancelled: it ended so.
    """
    if run.state in {"running", "paused"}:
        raise Suspend(end_of_run(run_id))
    return run.result(timeout=0)


def run_id_in(text: str) -> str:
    return _decode_text(text)
