"""Runs of workflows on SQLite: what has been decided, written on our connection or a caller's."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from penstock.model.events import EventType, RunEvent
from penstock.model.executions import NewExecution
from penstock.model.runs import RunAnswer, RunState
from penstock.model.states import State
from penstock.store import runs, steering
from penstock.store.advancing import advance as advance_runs
from penstock.store.batches import encode_rows, event_data
from penstock.store.decoding import reason_in
from penstock.store.runs import Change, End, Output, RunChange, RunRow, RunWriter, TaskRow
from penstock.store.scripts import Row, Script, Step, run
from penstock.store.sql import Statement
from penstock.store.sqlite.creating import in_iso, write_executions
from penstock.store.sqlite.people import withdraw
from penstock.store.sqlite.transaction import EventRow, ReadyRow, Transaction, encode_json
from penstock.store.sqlite.waking import wake

T = TypeVar("T")


class Writer:
    """Writes runs inside a write transaction."""

    def __init__(self, statements: Mapping[str, Statement], *, now: int) -> None:
        self.statements = statements
        self._now = now

    def start(self, new: Sequence[RunRow], tasks: Sequence[TaskRow]) -> Script[list[str]]:
        rows = yield self._step("start_runs", runs=encode_rows(new))
        written = {row[0] for row in rows}
        begun = [task for task in tasks if task.root_id in written]
        if begun:
            yield self._step("start_tasks", tasks=encode_rows(begun))
        ready = [
            ReadyRow(task.id, None, task.queue, task.priority, suspect=False, task=task.task)
            for task in begun
            if task.state == State.READY
        ]
        yield from self._write(ready, self._beginnings(new, begun, written))
        return sorted(written)

    def _beginnings(
        self, new: Sequence[RunRow], tasks: Sequence[TaskRow], written: set[str]
    ) -> Iterator[EventRow]:
        of_run: dict[str, list[TaskRow]] = {}
        for task in tasks:
            of_run.setdefault(task.root_id, []).append(task)
        for one in new:
            if one.id not in written:
                continue
            yield self._event(one.id, None, RunEvent.STARTED, event_data(workflow=one.workflow))
            for task in of_run[one.id]:
                yield self._event(one.id, task.id, EventType.CREATED)
                if task.state != State.WAITING:
                    yield self._event(one.id, task.id, _LET_GO[State(task.state)])
            if one.state != RunState.RUNNING:
                yield self._event(one.id, None, f"workflow.{one.state}")

    def let_go(self, changes: Sequence[Change], ends: Sequence[End]) -> Script[None]:
        moved: list[Row] = []
        if changes:
            rows = yield self._step("let_go", tasks=encode_rows(changes))
            place = {change.id: change.n for change in changes}
            moved = sorted(rows, key=lambda row: place[row[0]])
        ready = [
            ReadyRow(id_, None, queue, priority, suspect=bool(suspect), task=task)
            for id_, _, task, queue, priority, suspect, state, _, _ in moved
            if state == State.READY
        ]
        closed: set[str] = set()
        parents: list[str] = []
        if ends:
            rows = yield self._step("end_runs", ends=encode_rows(ends))
            closed = {row[0] for row in rows}
            parents = [row[1] for row in rows if row[1] is not None]
        yield from self._write(ready, self._goings(moved, ends, closed))
        around = yield from wake(self.statements, parents, now=self._now)
        yield from go_on(self.statements, around, now=self._now)

    def _goings(
        self, moved: Sequence[Row], ends: Sequence[End], closed: set[str]
    ) -> Iterator[EventRow]:
        for id_, root_id, *_, state, run_at, error in moved:
            if state == State.WAITING:
                continue  # for its elements, from now on
            data = event_data(run_at=in_iso(run_at)) if state == State.SCHEDULED else None
            if state == State.FAILED:
                data = f'{{"error":{error}}}'
            yield self._event(root_id, id_, _LET_GO[State(state)], data)
        for end in ends:
            if end.id in closed:
                yield self._event(end.id, None, f"workflow.{end.state}", end.data)

    def add(self, elements: Sequence[TaskRow]) -> Script[None]:
        yield self._step("start_tasks", tasks=encode_rows(elements))
        ready = [
            ReadyRow(one.id, None, one.queue, one.priority, suspect=False, task=one.task)
            for one in elements
        ]
        events = [
            self._event(one.root_id, one.id, event)
            for one in elements
            for event in (EventType.CREATED, EventType.MARKED_READY)
        ]
        yield from self._write(ready, events)

    def reset(self, task_ids: Sequence[str]) -> Script[None]:
        rows = yield self._step("reset_tasks", ids=encode_rows(task_ids))
        yield self._step("wait_anew", ids=encode_rows([row[0] for row in rows]))
        yield from self._write(
            [], [self._event(root_id, id_, EventType.RERUN) for id_, root_id in sorted(rows)]
        )

    def hold(self, task_ids: Sequence[str]) -> Script[None]:
        ids = encode_rows(task_ids)
        yield self._step("withdraw", ids=ids)
        rows = yield self._step("hold", ids=ids)
        yield from self._write(
            [], [self._event(root_id, id_, EventType.PAUSED) for id_, root_id in sorted(rows)]
        )

    def change(self, run_id: str, change: RunChange) -> Script[None]:
        yield self._step(
            "change_run",
            id=run_id,
            state=change.state,
            cancel="yes" if change.cancel else "no",
            error=change.error,
        )
        if change.event is not None:
            yield from self._write([], [self._event(run_id, None, change.event, change.data)])

    def revive(self, run_id: str, task_ids: Sequence[str], *, ended: bool) -> Script[None]:
        yield self._step("revive", id=run_id)
        if ended:
            yield from self._write([], [self._event(run_id, None, RunEvent.RERUN)])
        yield from self.reset(task_ids)

    def create(self, executions: Sequence[NewExecution]) -> Script[object]:
        return write_executions(self.statements, executions, now=self._now)

    def _step(self, name: str, **parameters: object) -> Step:
        return Step(self.statements[name], {**parameters, "now": self._now})

    def _event(
        self, root_id: str, task_id: str | None, type_: str, data: str | None = None
    ) -> EventRow:
        return EventRow(root_id, task_id, type_, data, None, self._now)

    def _write(self, ready: Sequence[ReadyRow], events: Iterable[EventRow]) -> Script[None]:
        if ready:
            yield self._step("fill_outbox", batch=encode_json(ready))
        if told := list(events):
            yield self._step("tell", batch=encode_json(told))


_LET_GO = {
    State.READY: EventType.MARKED_READY,
    State.SKIPPED: EventType.SKIPPED,
    State.SCHEDULED: EventType.SCHEDULED,
    State.COMPLETED: EventType.COMPLETED,
    State.FAILED: EventType.FAILED,
    State.CANCELLED: EventType.CANCELLED,
}


def go_on(
    statements: Mapping[str, Statement],
    run_ids: Iterable[str],
    known: Mapping[str, Output] | None = None,
    *,
    now: int,
) -> Script[None]:
    """Look at these runs, after something of them has ended or come back."""
    if wanted := set(run_ids):
        locked = yield from runs.lock(statements, wanted)
        yield from advance_runs(Writer(statements, now=now), locked, known)


def switch(transaction: Transaction, script: Callable[[RunWriter], Script[T]]) -> T:
    """Do what people want of runs as a whole."""
    return run(script(_writer(transaction)), transaction.execute)


def cancel(
    transaction: Transaction, run_id: str, *, reason: str | None, error: str | None
) -> RunAnswer:
    """End a run early, and what its tasks were waiting for. With an error it will have failed."""
    locked = run(runs.lock(transaction.statements, [run_id]), transaction.execute)
    if not locked:
        return run(steering.absent(transaction.statements, run_id), transaction.execute)
    writer = _writer(transaction)
    asked = steering.ask_to_stop(writer, locked[0], reason=reason, error=error)
    run(asked, transaction.execute)
    ids = run(steering.live_tasks(writer, locked[0]), transaction.execute)
    cancel_children(transaction, withdraw(transaction, ids, reason=reason).gone)
    again = locked[0]._replace(cancel_requested=True, error=error or locked[0].error)
    run(advance_runs(writer, [again]), transaction.execute)
    return "already" if locked[0].cancel_requested else "done"


def cancel_children(transaction: Transaction, cancelled: Sequence[str]) -> None:
    """Cancel what these tasks have started and has not ended; it is told what they were."""
    if cancelled:
        for child, said in transaction.rows("children", ids=encode_rows(cancelled)):
            cancel(transaction, child, reason=reason_in(said), error=None)


def _writer(transaction: Transaction) -> Writer:
    return Writer(transaction.statements, now=transaction.now)
