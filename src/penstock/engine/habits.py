"""What people write who come from other libraries, and what it is called here."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, NoReturn

from penstock.engine.requests import EnqueueOptions
from penstock.errors import PenstockError

_ENQUEUE = "`.enqueue(…)`"
_AENQUEUE = "`.aenqueue(…)`"
_WITH_OPTIONS = "`.using(…).enqueue(…)`, with the options in `using`"
_START = "`.start(…)`"

# Only names that a task and a workflow do not have themselves.
OF_TASKS: Mapping[str, str] = MappingProxyType(
    {
        "apply_async": _WITH_OPTIONS,
        "apply": _WITH_OPTIONS,
        "configure": _WITH_OPTIONS,
        "defer": _ENQUEUE,
        "defer_async": _AENQUEUE,
        "delay": _ENQUEUE,
        "enqueue_async": _AENQUEUE,
        "enqueue_in": _WITH_OPTIONS,
        "kiq": _AENQUEUE,
        "kicker": _WITH_OPTIONS,
        "s": "`.request(…)`",
        "schedule": _WITH_OPTIONS,
        "send": _ENQUEUE,
        "send_with_options": _WITH_OPTIONS,
        "set": _WITH_OPTIONS,
        "start": _ENQUEUE,
        "submit": _ENQUEUE,
    }
)
OF_WORKFLOWS: Mapping[str, str] = MappingProxyType(
    {
        "aenqueue": "`.astart(…)`",
        "apply_async": _START,
        "delay": _START,
        "enqueue": _START,
        "execute": _START,
        "kickoff": _START,
        "run": _START,
        "submit": _START,
        "trigger": _START,
    }
)

_OPTIONS: Mapping[str, str] = MappingProxyType(
    {
        "conn": "connection",
        "countdown": "run_after",
        "delay": "run_after",
        "eta": "run_after",
        "idempotency_key": "key",
        "run_at": "run_after",
        "run_in": "run_after",
        "schedule_at": "run_after",
        "schedule_in": "run_after",
        "session": "connection",
        "transaction": "connection",
        "unique_key": "key",
    }
)
_DECLARED = frozenset({"executor", "max_crashes", "max_running", "retry", "timeout"})


class CalledOtherwise(PenstockError, AttributeError):
    """A call that has another name here."""

    def __init__(self, kind: str, of: str, *, asked: str, instead: str) -> None:
        self.of = of
        self.asked = asked
        self.instead = instead
        super().__init__(f"{kind} {of!r} has no `{asked}`: here that is {instead}.")


class SaysWhatToCall:
    """Names the right call where a name is missing that other libraries have for it."""

    _calls: ClassVar[Mapping[str, str]] = OF_TASKS
    _kind: ClassVar[str] = "Task"
    name: str

    if not TYPE_CHECKING:  # a type checker says by itself that there is no such attribute

        def __getattr__(self, name: str) -> NoReturn:
            if name in self._calls:
                raise CalledOtherwise(self._kind, self.name, asked=name, instead=self._calls[name])
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(message, name=name, obj=self)


def option_of_a_task(name: str) -> str | None:
    """Say where an option goes that was passed among the arguments of a task."""
    if name in _DECLARED:
        return f"`@app.task({name}=…)` declares it with the task"
    meant = _OPTIONS.get(name, name)
    if meant != "connection" and meant not in EnqueueOptions.__annotations__:
        return None
    return f"as an option it is `.using({meant}=…).enqueue(…)`"


def option_of_a_start(name: str) -> str | None:
    """The same among the inputs of a workflow, which has fewer options."""
    meant = _OPTIONS.get(name, name)
    return f"as an option it is `.using({meant}=…).start(…)`" if meant == "connection" else None
