"""What happens, told to whoever wants to count, trace or log it.

Where nobody listens, a call site costs one look at an empty tuple: facts are put together
only after that look. Hooks are called on the threads that do the work. An error that one of
them raises is logged once and changes nothing else.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from penstock.engine.vitals import Living
from penstock.model.executions import Claimed, Lease, NewExecution, Recovered
from penstock.model.outcomes import Completed, Outcome
from penstock.model.runs import NewRun


class AttemptBegan(NamedTuple):
    """A handler is about to be called."""

    claimed: Claimed
    task: str  # today's name, where the execution carries a former one


class AttemptEnded(NamedTuple):
    """A handler has returned or raised, or was stopped."""

    claimed: Claimed
    task: str
    outcome: Outcome
    took: float  # seconds of work: time that it was deferred is left out
    waited: float | None  # seconds from due to begun; None where nobody knows when it was due


class Hooks:
    """Override what is of interest, and give an instance to `app.add_hooks`.

    Every method is called from whichever thread has something to tell, so it must be quick
    and must not wait.
    """

    def trace(self) -> str | None:
        """What is to travel with what is enqueued or started now: JSON text, or None.

        In the context of the caller. Every attempt finds it in its `claimed.trace`; the first
        hooks that return something are heard.
        """
        return None

    def executions_created(self, executions: Sequence[NewExecution]) -> None:
        """These have been written; on a caller's connection they count when that commits."""

    def run_started(self, run: NewRun) -> None:
        """A run of a workflow has been written with all its tasks; likewise."""

    def worker_started(self, worker: Living) -> None:
        """A worker of this process begins to work."""

    def worker_stopped(self, worker: Living) -> None:
        """It has left, in good order."""

    def claim_polled(self, claimed: int) -> None:
        """The database has answered a worker that asked for work."""

    def attempt_began(self, attempt: AttemptBegan) -> None:
        """In the context (`contextvars`) of the handler, right before it is called."""

    def attempt_ended(self, attempt: AttemptEnded) -> None:
        """Its outcome is known here and not in the database yet, which may still refuse it.

        In the context of the handler, unless it was stopped from outside.
        """

    def attempt_settled(self, attempt: AttemptEnded) -> None:
        """Its outcome is in the database. This is told once for every outcome that counts."""

    def lease_lost(self, execution_id: str) -> None:
        """The database has refused an outcome: the execution went to another worker."""

    def executions_recovered(self, executions: Sequence[Recovered]) -> None:
        """This worker has taken back what dead workers left."""

    def store_failed(self, doing: str, error: BaseException) -> None:
        """The database did not answer; `doing` says to what, in one of a few phrases.

        Keep the text of the error, not the error: it holds on to all that was under way, also to a
        connection that a task has left open, and so to its lock.
        """


_Call = Callable[[Hooks], None]


class HookSet(Hooks):
    """All hooks of an App: passes on what it is told, and survives what they raise."""

    def __init__(self, hooks: Iterable[Hooks] = ()) -> None:
        self._hooks = tuple(hooks)
        self.listen = bool(self._hooks)  # asked twice for every task
        self._complained: set[tuple[int, str]] = set()
        self._unsettled: dict[Lease, AttemptEnded] = {}

    def add(self, hooks: Hooks) -> None:
        # A new tuple: somebody may be going through the old one.
        self._hooks = (*self._hooks, hooks)
        self.listen = True

    # --- for the engine ---------------------------------------------------------------

    def settled(self, outcomes: Iterable[Outcome], lost: Iterable[Lease]) -> None:
        """The database has answered: these are in it, but for the lost ones."""
        refused = set(lost)
        for outcome in outcomes:
            ended = self._unsettled.pop(outcome.lease, None)
            if outcome.lease in refused:
                self.lease_lost(outcome.lease.execution_id)
            elif ended is not None:  # what has not begun is no attempt
                # Not the outcome of then: what was undone since has another one.
                self.attempt_settled(ended._replace(outcome=outcome))

    def settled_by_handler(self, lease: Lease) -> None:
        """The handler's own transaction has completed it, and has committed."""
        if (ended := self._unsettled.pop(lease, None)) is not None:
            self.attempt_settled(ended._replace(outcome=Completed(lease=lease)))

    def lost_by_handler(self, lease: Lease) -> None:
        self._unsettled.pop(lease, None)
        self.lease_lost(lease.execution_id)

    # --- passing on -------------------------------------------------------------------

    def trace(self) -> str | None:
        told: list[str] = []

        def ask(hooks: Hooks) -> None:
            if not told and (trace := hooks.trace()) is not None:
                told.append(trace)

        self._each("trace", ask)
        return told[0] if told else None

    def executions_created(self, executions: Sequence[NewExecution]) -> None:
        self._each("executions_created", lambda hooks: hooks.executions_created(executions))

    def run_started(self, run: NewRun) -> None:
        self._each("run_started", lambda hooks: hooks.run_started(run))

    def worker_started(self, worker: Living) -> None:
        self._each("worker_started", lambda hooks: hooks.worker_started(worker))

    def worker_stopped(self, worker: Living) -> None:
        self._each("worker_stopped", lambda hooks: hooks.worker_stopped(worker))

    def claim_polled(self, claimed: int) -> None:
        self._each("claim_polled", lambda hooks: hooks.claim_polled(claimed))

    def attempt_began(self, attempt: AttemptBegan) -> None:
        self._each("attempt_began", lambda hooks: hooks.attempt_began(attempt))

    def attempt_ended(self, attempt: AttemptEnded) -> None:
        self._unsettled[attempt.claimed.lease] = attempt
        self._each("attempt_ended", lambda hooks: hooks.attempt_ended(attempt))

    def attempt_settled(self, attempt: AttemptEnded) -> None:
        self._each("attempt_settled", lambda hooks: hooks.attempt_settled(attempt))

    def lease_lost(self, execution_id: str) -> None:
        self._each("lease_lost", lambda hooks: hooks.lease_lost(execution_id))

    def executions_recovered(self, executions: Sequence[Recovered]) -> None:
        self._each("executions_recovered", lambda hooks: hooks.executions_recovered(executions))

    def store_failed(self, doing: str, error: BaseException) -> None:
        self._each("store_failed", lambda hooks: hooks.store_failed(doing, error))

    def _each(self, told: str, call: _Call) -> None:
        for hooks in self._hooks:
            try:
                call(hooks)
            except Exception:
                # By identity: nobody promises that hooks can be hashed.
                if (id(hooks), told) not in self._complained:
                    self._complained.add((id(hooks), told))
                    import logging  # noqa: PLC0415 - a tenth of `import penstock`, and rarely needed

                    logging.getLogger("penstock.hooks").exception(
                        "%s.%s raised; work goes on, and further errors of it are not logged",
                        type(hooks).__name__,
                        told,
                    )


NOBODY = HookSet()
"""For parts that are used on their own."""
