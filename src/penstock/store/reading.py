"""Reads that are the same on every database but for the rows: how they are said is shared."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from penstock.model.events import Event
from penstock.model.executions import Snapshot
from penstock.model.ids import element_id, last_id_of, last_place_of, place_of, run_of
from penstock.model.runs import RunSnapshot, RunState
from penstock.model.states import State
from penstock.model.waiting import ReadyTask
from penstock.model.workers import Peer
from penstock.store.decoding import (
    HIGHEST_ID,
    decode_event,
    decode_peer,
    decode_run,
    decode_snapshot,
)
from penstock.store.scripts import Row

NEWEST = 10_000  # executions; enough to have seen what runs every day


class Reads(ABC):
    """The part of the contract that only looks."""

    @abstractmethod
    def _rows(self, doing: str, name: str, /, **parameters: object) -> list[Row]: ...

    @abstractmethod
    def _count_states(self) -> list[Row]: ...

    @staticmethod
    @abstractmethod
    def _moment(stored: Any) -> datetime:  # noqa: ANN401 - rows are decoded here
        """How this database keeps a moment."""

    @staticmethod
    @abstractmethod
    def _list(ids: Sequence[str]) -> object:
        """How this database takes a list."""

    def get(self, ids: Sequence[str]) -> list[Snapshot]:
        rows = self._rows("read executions", "get", ids=self._list(ids))
        found = {row[0]: row for row in rows}
        return [decode_snapshot(found[id_], self._moment) for id_ in ids if id_ in found]

    def find(
        self,
        *,
        task: str | None = None,
        queue: str | None = None,
        state: State | None = None,
        key: str | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> list[Snapshot]:
        rows = self._rows(
            "find executions",
            "find_failed" if state is State.FAILED else "find",
            task=task,
            queue=queue,
            state=state,
            key=key,
            before=before or HIGHEST_ID,
            limit=limit,
        )
        return [decode_snapshot(row, self._moment) for row in rows]

    def count(
        self, *, task: str | None = None, queue: str | None = None, state: State | None = None
    ) -> int:
        ((count,),) = self._rows(
            "count executions",
            "count_failed" if state is State.FAILED else "count",
            task=task,
            queue=queue,
            state=state,
            before=HIGHEST_ID,
        )
        return int(count)

    def counts(self) -> dict[State, int]:
        counted: dict[str, int] = dict(self._count_states())
        return {state: counted.get(state.value, 0) for state in State}

    def ready_tasks(self) -> list[ReadyTask]:
        return [ReadyTask(*row) for row in self._rows("look at what is ready", "ready_tasks")]

    def task_names(self) -> list[str]:
        rows = self._rows("look for names of tasks", "task_names", before=HIGHEST_ID, limit=NEWEST)
        return [row[0] for row in rows]

    def history(self, execution_id: str) -> list[Event]:
        rows = self._rows("read a history", "history", id=execution_id, run_id=run_of(execution_id))
        return [decode_event(row, self._moment) for row in rows]

    def runs(self, ids: Sequence[str]) -> list[RunSnapshot]:
        rows = self._rows("read runs", "runs", ids=self._list(ids))
        found = {row[0]: row for row in rows}
        return [decode_run(found[id_], self._moment) for id_ in ids if id_ in found]

    def find_runs(
        self,
        *,
        workflow: str | None = None,
        state: RunState | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> list[RunSnapshot]:
        rows = self._rows(
            "find runs",
            "find_runs",
            workflow=workflow,
            state=state,
            before=before or HIGHEST_ID,
            limit=limit,
        )
        return [decode_run(row, self._moment) for row in rows]

    def run_counts(self) -> dict[RunState, int]:
        counted: dict[str, int] = dict(self._rows("count runs", "count_runs"))
        return {state: counted.get(state.value, 0) for state in RunState}

    def tasks_of(self, run_id: str) -> list[Snapshot]:
        last = last_place_of(run_id)
        rows = self._rows("read the tasks of a run", "tasks_of", run_id=run_id, last=last)
        return [decode_snapshot(row, self._moment) for row in rows]

    def elements_of(self, run_id: str, place: int, *, limit: int = 100) -> list[Snapshot]:
        first = element_id(run_id, place, 0)
        last = element_id(run_id, place, limit - 1)
        ids = {"run_id": run_id, "first": first, "last": last}
        rows = self._rows("read the elements of a task", "elements_of", **ids)
        return [decode_snapshot(row, self._moment) for row in rows]

    def count_elements(self, run_id: str) -> dict[int, dict[State, int]]:
        first, last = element_id(run_id, 0, 0), last_id_of(run_id)
        found: dict[int, Counter[State]] = {}
        rows = self._rows("count the elements of tasks", "count_elements", first=first, last=last)
        for id_, state, count in rows:
            found.setdefault(place_of(id_), Counter())[State(state)] += count
        return {place: dict(states) for place, states in found.items()}

    def workers(self) -> list[Peer]:
        return [decode_peer(row, self._moment) for row in self._rows("list the workers", "workers")]

    def cancel_requests(self, worker_id: str) -> list[str]:
        rows = self._rows("look for cancel requests", "asked_to_stop", worker_id=worker_id)
        return [row[0] for row in rows]

    def paused(self) -> list[str]:
        return [row[0] for row in self._rows("list paused queues", "paused")]
