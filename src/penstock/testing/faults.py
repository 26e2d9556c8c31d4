"""A store that does what it is asked, and then fails: faults at named points, so many times each.

The store behind it is the real one. A reply that is lost here was lost after the commit, which is
what a connection does that breaks at the wrong moment.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from penstock.app import App
from penstock.store.contract import Store
from penstock.testing.crash_points import Action, CrashPoint, Moment, action, crash_point

FOR_EVER = -1


@dataclass(slots=True)
class _Fault:
    point: CrashPoint
    act: Action
    skip: int
    left: int  # FOR_EVER never ends

    def is_due(self) -> bool:
        """Count this call; called once for each that the fault is meant for."""
        if self.skip:
            self.skip -= 1
            return False
        if self.left == 0:
            return False
        self.left -= self.left != FOR_EVER
        return True


class Faults:
    """What goes wrong, where, and how often. Safe to share between threads.

    Several faults at one point happen one after the other, in the order in which they were
    given.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: list[_Fault] = []
        self.happened: Counter[str] = Counter()  # by the name of the crash point

    def at(self, point: str, act: Action, *, skip: int = 0, times: int = 1) -> "Faults":
        """Call `act` at this crash point, after the first `skip` calls, so many `times`.

        `act` is `lose_reply`, `kill_process`, `stop_process`, or a function of yours; what it
        raises, the engine sees as the store's error. `times=FOR_EVER` never ends.

        Raises:
            UnknownCrashPoint: there is no point of this name.
        """
        fault = _Fault(crash_point(point), act, skip, times)
        with self._lock:
            self._faults.append(fault)
        return self

    def clear(self) -> None:
        """From now on nothing goes wrong any more."""
        with self._lock:
            self._faults.clear()

    def around(self, store: Store) -> Store:
        """Return the same store, with these faults."""
        return cast("Store", _FaultyStore(store, self))

    @contextmanager
    def injected(self, app: App) -> Iterator["Faults"]:
        """Let everything that `app` asks of its database go through these faults."""
        whole = app.store
        app._store = self.around(whole)  # noqa: SLF001 - an App promises one store; this is it
        try:
            yield self
        finally:
            if app._store is not None:  # noqa: SLF001 - closed meanwhile, it has none
                app._store = whole  # noqa: SLF001

    def passing(
        self, moment: Moment, operation: str, arguments: tuple[Any, ...], answer: object
    ) -> None:
        """Let happen what is due at this moment of a call."""
        with self._lock:
            due = [
                fault
                for fault in self._faults
                if (fault.point.moment, fault.point.operation) == (moment, operation)
                and fault.point.concerns(arguments, answer)
                and fault.is_due()
            ]
            self.happened.update(fault.point.name for fault in due)
        for fault in due:
            fault.act()

    @classmethod
    def described(cls, faults: Mapping[str, str]) -> "Faults":
        """Make faults of plain words, for a process that is started with them.

        `{"after_claim": "kill", "after_settle": "lose_reply 2 3"}`: the numbers are how often,
        and after how many calls; once and at once if they are left out.

        Raises:
            UnknownCrashPoint, UnknownAction: a word means nothing.
        """
        made = cls()
        for point, words in faults.items():
            name, *numbers = words.split()
            times, skip = [*map(int, numbers), *(1, 0)[len(numbers) :]]
            made.at(point, action(name), times=times, skip=skip)
        return made


class _FaultyStore:
    """Passes every call on to the store, and faults may come before and after it."""

    def __init__(self, store: Store, faults: Faults) -> None:
        self._store = store
        self._faults = faults

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - as whatever the store has
        found = getattr(self._store, name)
        return self._with_faults(name, found) if callable(found) else found

    def _with_faults(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def passed_on(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401
            self._faults.passing("before", name, arguments, None)
            answer = call(*arguments, **named)
            self._faults.passing("after", name, arguments, answer)
            return answer

        return passed_on
