"""An App in the hands of a test: its own database, a clock that you move, tasks that you run."""

import asyncio
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import datetime
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from penstock.app import App
from penstock.engine.executions import Execution
from penstock.errors import PenstockError
from penstock.model.durations import Duration, format_duration, parse_duration
from penstock.testing.clock import ManualClock
from penstock.testing.manual_worker import ManualWorker
from penstock.testing.questions import AnyTask, Question, name_of
from penstock.testing.schemas import drop_schema
from penstock.testing.uncommitted import Uncommitted
from penstock.testing.under_way import UnderWay, loop_is_running

IN_MEMORY = "sqlite:///:memory:"
MOST_ATTEMPTS = 10_000
_PAGE = 1000


class NotInUse(PenstockError):
    """A ManualApp outside its block."""

    def __init__(self) -> None:
        super().__init__(
            "This ManualApp has no database: it has one only inside its block. "
            "Write `with ManualApp(app) as manual:`."
        )


class LoopRunning(PenstockError):
    """Tasks were to be run in a thread whose event loop is running."""

    def __init__(self, called: str) -> None:
        super().__init__(
            f"manual.{called}() was called on a running event loop, where an async task could not "
            f"be waited for. Write `await manual.a{called}()`."
        )


class ManualApp:
    """Rebinds an App to a database of the test's own until the block ends.

    By default that is SQLite in memory. A `database` is one that your code under test writes to
    on connections of its own; on PostgreSQL it gets a schema of its own, which is dropped at the
    end, unless you name one. No worker starts: what is due runs in `run_until_idle`, one
    execution after the other. Time stands still until you move it.
    """

    def __init__(
        self,
        app: App,
        *,
        database: str = IN_MEMORY,
        schema: str | None = None,
        start: datetime | None = None,
    ) -> None:
        self.app = app
        self.clock = ManualClock(start)
        self._database = database
        self._schema = schema
        self._worker: ManualWorker | None = None
        self._uncommitted = Uncommitted(lambda: self.app.settings.database.schema)
        self._stack = ExitStack()

    def __repr__(self) -> str:
        return f"<ManualApp at {self.clock.now().isoformat()}>"

    # --- the block --------------------------------------------------------------------

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            schema = self._schema
            if schema is None and urlsplit(self._database).scheme.startswith("postgres"):
                schema = f"penstock_test_{uuid.uuid4().hex[:12]}"
                stack.callback(drop_schema, self._database, schema)
            client = stack.enter_context(
                self.app.rebound(self._database, schema=schema, clock=self.clock)
            )
            client.when_written_on = self._uncommitted.note
            stack.callback(setattr, client, "when_written_on", None)
            client.when_late = self._what_to_do
            stack.callback(setattr, client, "when_late", None)
            # Opened here, where an error in the URL is easiest to understand; and with its tables,
            # which could not be made any more while a transaction of the test's is open.
            self.app.store.migrate()
            self._worker = ManualWorker(self.app, self.clock)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        worker, self._worker = self._in_use, None
        with self._stack:
            for one in worker.leaving():
                one.abandon()
            worker.close()

    def _what_to_do(self, due: datetime | None) -> str:
        if due is not None and due > self.clock.now():
            wait = format_duration(due - self.clock.now())
            return (
                f"In a test it is due when you say so: `manual.advance({wait!r})`, then "
                "`manual.run_until_idle()`."
            )
        return (
            "In a test nothing runs by itself: `manual.run_until_idle()` runs what is due, and "
            "`manual.advance(…)` makes due what is scheduled."
        )

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for one in self._in_use.leaving():
            await one.ago_on()
        await asyncio.to_thread(self.__exit__, kind, error, traceback)

    @property
    def _in_use(self) -> ManualWorker:
        if self._worker is None:
            raise NotInUse
        return self._worker

    # --- time -------------------------------------------------------------------------

    def advance(self, duration: Duration) -> datetime:
        """Move the clock, run nothing, and return the moment that it shows then."""
        return self.clock.advance(duration)

    # --- running ----------------------------------------------------------------------

    def run_until_idle(
        self,
        *,
        queues: Sequence[str] | None = None,
        raise_errors: bool = False,
        limit: int = MOST_ATTEMPTS,
    ) -> list[Execution[Any]]:
        """Run everything that is due now, and what that makes due, one after the other.

        Returns the executions that had a turn, in the order of their first, as they are now.
        Tasks that wait in `defer_until` keep their place and go on in a later call, when the
        clock has moved. What a task raises is stored, as in a worker; with `raise_errors` it
        comes out here as well, once it has been stored. All queues have their turn, or `queues`.

        Raises:
            NeverIdle: after `limit` attempts there was still something due.
        """
        return self._run("run_until_idle", self._turns(queues, limit, raise_errors=raise_errors))

    async def arun_until_idle(
        self,
        *,
        queues: Sequence[str] | None = None,
        raise_errors: bool = False,
        limit: int = MOST_ATTEMPTS,
    ) -> list[Execution[Any]]:
        """Do the same on a running loop: async tasks run on it, plain ones on a thread."""
        return await self._arun(self._turns(queues, limit, raise_errors=raise_errors))

    def run_for(
        self,
        duration: Duration,
        *,
        queues: Sequence[str] | None = None,
        raise_errors: bool = False,
        limit: int = MOST_ATTEMPTS,
    ) -> list[Execution[Any]]:
        """Let time pass: go from one moment at which something is due to the next, and run it.

        Retries, scheduled executions and the checks of deferred ones have their turns at their
        own times, in order. At the end the clock has moved by `duration`.
        """
        turns = self._turns_for(duration, queues, limit, raise_errors=raise_errors)
        return self._run("run_for", turns)

    async def arun_for(
        self,
        duration: Duration,
        *,
        queues: Sequence[str] | None = None,
        raise_errors: bool = False,
        limit: int = MOST_ATTEMPTS,
    ) -> list[Execution[Any]]:
        """Do the same on a running loop: async tasks run on it, plain ones on a thread."""
        turns = self._turns_for(duration, queues, limit, raise_errors=raise_errors)
        return await self._arun(turns)

    def _turns(
        self, queues: Sequence[str] | None, limit: int, *, raise_errors: bool
    ) -> Iterator[UnderWay]:
        return self._in_use.turns(queues=queues, limit=limit, raise_errors=raise_errors)

    def _turns_for(
        self, duration: Duration, queues: Sequence[str] | None, limit: int, *, raise_errors: bool
    ) -> Iterator[UnderWay]:
        end = self.clock.now() + parse_duration(duration)
        while True:
            yield from self._turns(queues, limit, raise_errors=raise_errors)
            now, moment = self.clock.now(), self._in_use.next_moment()
            if now >= end:
                return
            self.clock.set_to(end if moment is None or moment > end else max(moment, now))

    def _run(self, called: str, turns: Iterator[UnderWay]) -> list[Execution[Any]]:
        if loop_is_running():
            raise LoopRunning(called)
        ids = []
        for one in turns:
            one.go_on()
            ids.append(one.attempt.id)
        return self._as_they_are(ids)

    async def _arun(self, turns: Iterator[UnderWay]) -> list[Execution[Any]]:
        ids = []
        # The store is asked on a thread: the loop may be what a transaction waits for.
        while (one := await asyncio.to_thread(next, turns, None)) is not None:
            await one.ago_on()
            ids.append(one.attempt.id)
        return await asyncio.to_thread(self._as_they_are, ids)

    def _as_they_are(self, ids: Sequence[str]) -> list[Execution[Any]]:
        return [self.app.get(id_) for id_ in dict.fromkeys(ids)]

    def crash_after(self, task: str | AnyTask) -> None:
        """Let the worker die at the end of the next attempt at `task`, before that is written.

        What the handler did stays done, and so does what it committed. When the clock has moved
        by a lease (15 s, unless your settings say otherwise), the execution is recovered and
        runs again, as after a power cut. All that waits in the same worker shares its fate.
        """
        self._in_use.doom(name_of(task))

    # --- looking ----------------------------------------------------------------------

    def enqueued(self, task: str | AnyTask, /, **arguments: object) -> list[Execution[Any]]:
        """All executions of a task with these arguments, whatever became of them, oldest first.

        Arguments that you do not name may be anything; one that was left out has its default.
        What was enqueued on a connection whose transaction is still open counts as well; what
        was rolled back does not.

        Raises:
            NoSuchParameter: the task does not take an argument of that name.
        """
        question = Question(self.app, task, arguments)
        committed = list(self._committed(question.name))
        uncommitted = self._uncommitted.seen({one.id for one in committed})
        return question.answered([*committed, *uncommitted])

    async def aenqueued(self, task: str | AnyTask, /, **arguments: object) -> list[Execution[Any]]:
        """Do the same, and see what is on async connections too."""
        question = Question(self.app, task, arguments)
        committed = await asyncio.to_thread(lambda: list(self._committed(question.name)))
        uncommitted = await self._uncommitted.aseen({one.id for one in committed})
        return question.answered([*committed, *uncommitted])

    def _committed(self, task: str) -> Iterator[Execution[Any]]:
        before = None
        while page := self.app.find(task=task, before=before, limit=_PAGE):
            yield from page
            before = page[-1].id
