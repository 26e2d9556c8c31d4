"""Runs of workflows on PostgreSQL: what has been decided, written in one statement each."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, TypeVar

import psycopg

from penstock.model.executions import NewExecution
from penstock.model.runs import RunAnswer
from penstock.store import runs, steering
from penstock.store.advancing import advance as advance_runs
from penstock.store.batches import encode_rows
from penstock.store.postgres.creating import create
from penstock.store.postgres.people import withdraw
from penstock.store.postgres.session import Session
from penstock.store.runs import Change, End, Locked, Output, RunChange, RunRow, RunWriter, TaskRow
from penstock.store.scripts import Script, Step, run
from penstock.store.sql import Statement

T = TypeVar("T")


class Writer:
    """Writes runs on our connections and on a caller's."""

    def __init__(
        self, statements: Mapping[str, Statement], *, now: datetime | None, notify: bool
    ) -> None:
        self.statements = statements
        self._now = now
        self._notify = notify
        self._moment = {"now": now and now.isoformat(), "notify": "yes" if notify else "no"}

    @classmethod
    def of(cls, session: Session) -> "Writer":
        return cls(session.statements, now=session.now, notify=session.notify)

    def start(self, new: Sequence[RunRow], tasks: Sequence[TaskRow]) -> Script[list[str]]:
        batch = {"runs": encode_rows(new), "tasks": encode_rows(tasks)}
        rows = yield Step(self.statements["start_runs"], {**batch, **self._moment})
        return [row[0] for row in rows]

    def let_go(self, changes: Sequence[Change], ends: Sequence[End]) -> Script[None]:
        batch = {"tasks": encode_rows(changes), "ends": encode_rows(ends)}
        yield Step(self.statements["let_go"], {**batch, **self._moment})

    def add(self, elements: Sequence[TaskRow]) -> Script[None]:
        yield Step(
            self.statements["add_elements"], {"tasks": encode_rows(elements), **self._moment}
        )

    def reset(self, task_ids: Sequence[str]) -> Script[None]:
        parameters = {"ids": encode_rows(task_ids), "now": self._moment["now"]}
        yield Step(self.statements["reset_tasks"], parameters)

    def hold(self, task_ids: Sequence[str]) -> Script[None]:
        parameters = {"ids": encode_rows(task_ids), "now": self._moment["now"]}
        yield Step(self.statements["hold"], parameters)

    def change(self, run_id: str, change: RunChange) -> Script[None]:
        parameters = {
            "id": run_id,
            "state": change.state,
            "event": change.event,
            "cancel": "yes" if change.cancel else "no",
            "error": change.error,
            "data": change.data,
            "now": self._moment["now"],
        }
        yield Step(self.statements["change_run"], parameters)

    def revive(self, run_id: str, task_ids: Sequence[str], *, ended: bool) -> Script[None]:
        parameters = {
            "id": run_id,
            "ended": "yes" if ended else "no",
            "now": self._moment["now"],
        }
        yield Step(self.statements["revive"], parameters)
        yield from self.reset(task_ids)

    def create(self, executions: Sequence[NewExecution]) -> Script[object]:
        return create(self.statements, executions, now=self._now, notify=self._notify)


def lock(session: Session, run_ids: Iterable[str]) -> list[Locked]:
    return run(runs.lock(session.statements, run_ids), session.execute)


def advance(
    session: Session, locked: Sequence[Locked], known: Mapping[str, Output] | None = None
) -> None:
    run(advance_runs(Writer.of(session), locked, known), session.execute)


def switch(session: Session, script: Callable[[RunWriter], Script[T]]) -> T:
    """Do what people want of runs as a whole."""
    with session.transaction():
        return run(script(Writer.of(session)), session.execute)


class Cancellation(NamedTuple):
    """A run that is to end early, and why. With an error it will have failed."""

    run_id: str
    reason: str | None
    error: str | None = None
    word: int | None = None  # the record that asks for it, which goes with it


def cancel(session: Session, wanted: Cancellation, *, last_try: bool) -> RunAnswer | None:
    """End a run early; None when it has to be tried again."""
    run_id, reason, error, word = wanted
    with session.transaction() as transaction:
        # Before the lock on the run, as in every propagation.
        if word is not None and not session.rows("take_orphan", seq=word):
            return "already"
        locked = lock(session, [run_id])
        if not locked:
            return run(steering.absent(session.statements, run_id), session.execute)
        writer = Writer.of(session)
        asked = steering.ask_to_stop(writer, locked[0], reason=reason, error=error)
        run(asked, session.execute)
        ids = run(steering.live_tasks(writer, locked[0]), session.execute)
        if withdraw(session, ids, reason=reason, last_try=last_try) is None:
            raise psycopg.Rollback(transaction)
        again = locked[0]._replace(cancel_requested=True, error=error or locked[0].error)
        advance(session, [again])
        return "already" if locked[0].cancel_requested else "done"
    return None
