"""What every store answers, whatever the database: the part of the contract that only looks."""

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

from penstock.model.events import Event
from penstock.model.executions import Snapshot
from penstock.model.gauges import Gauges
from penstock.model.health import Finding
from penstock.model.runs import RunSnapshot, RunState
from penstock.model.states import State
from penstock.model.waiting import QueueDepth, ReadyTask, Waiting

if TYPE_CHECKING:
    from penstock.model.examinations import Examined


class StoreReads(Protocol):
    """Every method may raise StoreUnavailable; none changes anything."""

    # --- executions of tasks ------------------------------------------------------------

    def get(self, ids: Sequence[str]) -> list[Snapshot]:
        """The executions that exist among these, in the order asked."""
        ...

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
        """Executions that match all that is given, newest first, from `before` on."""
        ...

    def history(self, execution_id: str) -> list[Event]:
        """All that happened to one execution, or to a run and all of its tasks, in order."""
        ...

    def counts(self) -> dict[State, int]:
        """How many executions are in each state, zeros too."""
        ...

    def count(
        self, *, task: str | None = None, queue: str | None = None, state: State | None = None
    ) -> int:
        """How many executions `find` would find, without a limit."""
        ...

    # --- runs of workflows --------------------------------------------------------------

    def runs(self, ids: Sequence[str]) -> list[RunSnapshot]:
        """The runs that exist among these, in the order asked."""
        ...

    def find_runs(
        self,
        *,
        workflow: str | None = None,
        state: RunState | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> list[RunSnapshot]:
        """Runs that match all that is given, newest first, from `before` on."""
        ...

    def run_counts(self) -> dict[RunState, int]:
        """How many runs are in each state, zeros too."""
        ...

    def tasks_of(self, run_id: str) -> list[Snapshot]:
        """The tasks of a run, in the order of its graph, without the elements of lists."""
        ...

    def elements_of(self, run_id: str, place: int, *, limit: int = 100) -> list[Snapshot]:
        """The first elements of the task at this place, which runs for each of a list."""
        ...

    def count_elements(self, run_id: str) -> dict[int, dict[State, int]]:
        """How many elements are in each state, by the place of their task."""
        ...

    # --- how work and workers stand -----------------------------------------------------

    def depths(self) -> list[QueueDepth]:
        """Every queue that has ready executions, by name."""
        ...

    def ready_tasks(self) -> list[ReadyTask]:
        """How many executions of each task are ready in each queue, in the order of the names."""
        ...

    def task_names(self) -> list[str]:
        """The names of the tasks that the newest executions are of, in their order."""
        ...

    def gauges(self, *, lease: timedelta = timedelta(seconds=15)) -> Gauges:
        """What monitoring watches; each number was true at about the same moment.

        What it costs follows live and failed work, never what has ended: it may be asked for
        every few seconds, however much is kept. A worker that has been silent for two leases
        counts as silent.
        """
        ...

    def examine(
        self, after: str | None = None, *, until: str | None = None, limit: int = 1000
    ) -> "Examined":
        """Read a stretch of the executions for `verify`, in the order of their ids.

        All of it was true at one moment: rows, outbox and histories. It begins behind `after`
        and goes on for about `limit` executions, or exactly until the id given. A run is in one
        stretch with all of its tasks. Whatever a history's length, only what it adds up to is
        kept in memory.
        """
        ...

    def explain_waiting(self, execution_id: str) -> Waiting | None:
        """What decides when a task runs, from what the claim looks at; None if it is unknown.

        All of it was true at one moment. Of a task of a run that includes the run, and those
        that it still waits for.
        """
        ...

    def inspect(self, *, lease: timedelta = timedelta(seconds=15)) -> list[Finding]:
        """Look at the tables, the server or the file, the workers and what is ready.

        Changes nothing, and needs no tables: that there are none is a finding. A worker that
        has been silent for two leases does not count as alive here.
        """
        ...
