"""What a worker can run.

Every claim asks for it, and with a hundred tasks working it out takes longer than the way of a
wake-up from thread to thread. So that is done anew only when a task has been declared meanwhile.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from penstock.engine.attempts import AnyTask


class Limited(NamedTuple):
    """A task of which only so many may run at a time, with all names of it."""

    task: str
    names: frozenset[str]
    max_running: int


class Known(NamedTuple):
    """The tasks that have been declared so far."""

    tasks: Mapping[str, AnyTask]  # by every name that queued work may carry
    queues: tuple[str, ...]
    unlimited: frozenset[str]  # names
    limited: tuple[Limited, ...]


class Catalogue:
    """Looks at what is declared; `queues` are those that the worker was given, if any.

    `declared` never changes what it has returned; where it returns the same again, nothing is new.
    """

    def __init__(
        self, declared: Callable[[], Mapping[str, AnyTask]], queues: Sequence[str] = ()
    ) -> None:
        self._declared = declared
        self._queues = queues
        # One attribute: whoever asks on another thread sees a list with what follows from it.
        self._last: tuple[Mapping[str, AnyTask], Known] | None = None

    def look(self) -> Known:
        declared = self._declared()
        last = self._last
        if last is None or (last[0] is not declared and last[0] != declared):
            self._last = last = (declared, self._known(declared))
        return last[1]

    def _known(self, declared: Mapping[str, AnyTask]) -> Known:
        # Former names lead to today's task, unless another one has taken the name.
        aliases = {alias: task for task in declared.values() for alias in task.options.aliases}
        tasks = {**aliases, **declared}
        names: dict[str, list[str]] = {}
        for name, task in tasks.items():
            names.setdefault(task.name, []).append(name)
        return Known(
            tasks=tasks,
            queues=tuple(self._queues)
            or tuple(sorted({task.options.queue for task in declared.values()})),
            unlimited=frozenset(
                name for name, task in tasks.items() if task.options.max_running is None
            ),
            limited=tuple(
                Limited(task, frozenset(all_names), limit)
                for task, all_names in names.items()
                if (limit := tasks[task].options.max_running) is not None
            ),
        )
