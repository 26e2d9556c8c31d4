"""A history told again, event by event: how its execution has to look by now.

Only the outcome is kept, never the events: a history may be as long as it likes.
"""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from penstock.errors import IllegalTransition
from penstock.model.events import EventType, RunEvent
from penstock.model.runs import RUN_TRANSITIONS, RunState
from penstock.model.states import FINAL, TRANSITIONS, State, next_state


class Wrong(StrEnum):
    """What can be wrong with an execution, as `penstock verify` names it."""

    ILLEGAL_STEP = "illegal-step"
    CLAIMED_TWICE = "claimed-twice"
    UNEXPLAINED_RUN = "unexplained-run"
    UNKNOWN_EVENT = "unknown-event"
    FOREIGN_EVENT = "foreign-event"
    NO_BEGINNING = "no-beginning"
    NO_HISTORY = "no-history"
    LOST_EXECUTION = "lost-execution"
    WORKER_UNNAMED = "worker-unnamed"
    WRONG_WORKER = "wrong-worker"
    STATE_DIFFERS = "state-differs"
    SUB_STATE_DIFFERS = "sub-state-differs"
    FINISHED_AT_DIFFERS = "finished-at-differs"
    ATTEMPT_DIFFERS = "attempt-differs"
    RETRIES_DIFFER = "retries-differ"
    CRASHES_DIFFER = "crashes-differ"
    FENCE_DIFFERS = "fence-differs"
    NEVER_DUE = "never-due"
    WORKER_MISSING = "worker-missing"
    WORKER_LEFT = "worker-left"
    NOT_IN_OUTBOX = "not-in-outbox"
    IN_OUTBOX = "in-outbox"
    TWICE_IN_OUTBOX = "twice-in-outbox"
    OUTBOX_DIFFERS = "outbox-differs"
    OUTBOX_ORPHAN = "outbox-orphan"
    STUCK_SERIAL = "stuck-serial"
    OUT_OF_TURN = "out-of-turn"
    SERIAL_UNKNOWN = "serial-unknown"
    WAITS_FOR_NOTHING = "waits-for-nothing"
    KEY_TWICE = "key-twice"
    FOREIGN_ROOT = "foreign-root"
    RUN_STATE_DIFFERS = "run-state-differs"
    RUN_FINISHED_AT_DIFFERS = "run-finished-at-differs"
    RUN_GRAPH_UNREADABLE = "run-graph-unreadable"
    RUN_TASKS_DIFFER = "run-tasks-differ"
    RUN_LOST = "run-lost"
    RUN_ENDED_EARLY = "run-ended-early"
    RUN_NOT_ENDED = "run-not-ended"
    RUN_END_DIFFERS = "run-end-differs"
    STUCK_IN_RUN = "stuck-in-run"
    BEFORE_ITS_TURN = "before-its-turn"
    AGAINST_ITS_RULE = "against-its-rule"
    ELEMENT_LEFT = "element-left"
    CHILD_LEFT = "child-left"


class _Facts(msgspec.Struct):
    """What the data of an event says that bears on a counter."""

    attempt: int | None = None
    delay: float | None = None
    deferred: bool = False
    lost_worker: str | None = None


_decode = msgspec.json.Decoder(_Facts).decode
_NO_FACTS = _Facts()
_TYPES: Mapping[str, EventType] = {event.value: event for event in EventType}
_LEADS_TO: Mapping[EventType, State] = {event: state for (_, event), state in TRANSITIONS.items()}
_BY_OBSERVERS = frozenset({EventType.RECOVERED, EventType.ABANDONED})


class Retelling(msgspec.Struct):
    """What the events so far add up to.

    After a fault the state goes on from where the event leads; the counters mean little then.
    """

    state: State | None = None
    events: int = 0
    whole: bool = True  # False: retention removed what was before the rerun that it begins with
    fewest_attempts: int = 0
    most_attempts: int = 0  # a cancellation does not say whether it gave the attempt back
    retries: int = 0
    crashes: int = 0
    fence: int = 0
    owner: str | None = None  # the worker that claimed it last
    started: bool = False
    deferred: bool = False
    faults: dict[Wrong, str] = msgspec.field(default_factory=dict)  # the first of each kind

    def add(self, type_: str, worker_id: str | None = None, data: str | None = None) -> None:
        """Tell the next event."""
        self.events += 1
        event = _TYPES.get(type_)
        if event is None:
            self.note(Wrong.UNKNOWN_EVENT, f"its history has an event {type_!r}")
            return
        before = self.state
        if event is EventType.RERUN and before is None:
            self.whole = False
            after = State.WAITING
        else:
            after = self._step(before, event)
        facts = self._facts(data)
        if before is State.RUNNING or after is State.RUNNING:
            self._check_worker(event, before, worker_id, facts)
            self.fence += before is not after
        self._count(event, before, worker_id, facts)
        self.state = after

    def note(self, wrong: Wrong, what: str) -> None:
        self.faults.setdefault(wrong, what)

    @property
    def counts(self) -> bool:
        """Whether the counters can be compared: not after a step that cannot have been."""
        return self.faults.keys().isdisjoint(
            {
                Wrong.ILLEGAL_STEP,
                Wrong.CLAIMED_TWICE,
                Wrong.UNEXPLAINED_RUN,
                Wrong.UNKNOWN_EVENT,
                Wrong.FOREIGN_EVENT,
                Wrong.NO_BEGINNING,
            }
        )

    def _step(self, before: State | None, event: EventType) -> State:
        try:
            return next_state(before, event)
        except IllegalTransition:
            pass
        if before is None:
            self.note(Wrong.NO_BEGINNING, f"its history begins with {event}")
        elif event is EventType.CLAIMED and before is State.RUNNING:
            self.note(
                Wrong.CLAIMED_TWICE, "it was claimed while a worker had it: two may have run it"
            )
        elif event is EventType.CLAIMED and before in FINAL:
            self.note(Wrong.UNEXPLAINED_RUN, f"it was claimed again after it had {before}")
        elif event is EventType.STARTED:
            self.note(Wrong.UNEXPLAINED_RUN, f"it was started while {before}, without a claim")
        else:
            self.note(Wrong.ILLEGAL_STEP, f"its history has {event} while it was {before}")
        return _LEADS_TO[event]

    def _facts(self, data: str | None) -> _Facts:
        if data is None:
            return _NO_FACTS
        try:
            return _decode(data)
        except (msgspec.DecodeError, UnicodeEncodeError):
            self.note(Wrong.UNKNOWN_EVENT, f"its history has an event with the data {data[:80]!r}")
            return _NO_FACTS

    def _check_worker(
        self, event: EventType, before: State | None, worker_id: str | None, facts: _Facts
    ) -> None:
        if event is EventType.CANCEL_REQUESTED:
            return  # somebody did it who is no worker
        if worker_id is None:
            self.note(Wrong.WORKER_UNNAMED, f"{event} does not say which worker it was")
        if before is not State.RUNNING or self.owner is None or event is EventType.CLAIMED:
            return
        by_observer = event in _BY_OBSERVERS or facts.lost_worker is not None
        acted = facts.lost_worker if by_observer else worker_id
        if acted not in {None, self.owner}:
            self.note(
                Wrong.WRONG_WORKER,
                f"{event} {'took it from' if by_observer else 'came from'} {acted}, "
                f"but {self.owner} had claimed it",
            )

    def _count(
        self, event: EventType, before: State | None, worker_id: str | None, facts: _Facts
    ) -> None:
        match event:
            case EventType.CLAIMED:
                self._begin_attempt(facts.attempt)
                self.owner, self.started, self.deferred = worker_id, False, False
            case EventType.STARTED:
                self.started = True
            case EventType.DEFERRED | EventType.RESUMED:
                self.deferred = event is EventType.DEFERRED
            case EventType.RETRY_SCHEDULED:
                self.retries += 1
            case EventType.RECOVERED | EventType.ABANDONED:
                self._lose_worker()
            case EventType.RELEASED | EventType.SCHEDULED | EventType.SUSPENDED if (
                before is State.RUNNING
            ):
                self._give_back()
            case EventType.CANCELLED if before is State.RUNNING:
                self._cancel(facts)
            case EventType.RERUN:
                self.retries = self.crashes = 0
            case _:
                pass

    def _begin_attempt(self, told: int | None) -> None:
        self.fewest_attempts += 1
        self.most_attempts += 1
        if told is None:
            return
        known = self.whole or self.owner is not None
        if known and not self.fewest_attempts <= told <= self.most_attempts:
            self.note(
                Wrong.ATTEMPT_DIFFERS,
                f"a claim says that it began attempt {told}; by its history it was "
                f"{self.most_attempts}",
            )
        self.fewest_attempts = self.most_attempts = told

    def _give_back(self) -> None:
        self.fewest_attempts -= 1
        self.most_attempts -= 1

    def _lose_worker(self) -> None:
        if self.started:
            self.crashes += 1
        else:
            self._give_back()

    def _cancel(self, facts: _Facts) -> None:
        """A request to stop turns other outcomes into this one; their data is left to tell."""
        if facts.lost_worker is not None:
            self._lose_worker()
        elif facts.deferred:
            self._give_back()
        elif facts.delay is not None:
            self.retries += 1
        else:
            self.fewest_attempts -= 1


_RUN_TYPES: Mapping[str, RunEvent] = {event.value: event for event in RunEvent}
_RUN_LEADS_TO: Mapping[RunEvent, RunState] = {
    event: state for (_, event), state in RUN_TRANSITIONS.items()
}


class RunRetelling(msgspec.Struct):
    """What a run's own events add up to, without those of its tasks."""

    state: RunState | None = None
    events: int = 0
    whole: bool = True  # False: retention removed what was before the rerun that it begins with
    seen_to: bool = False  # somebody has asked it to stop, or given it a new life
    faults: dict[Wrong, str] = msgspec.field(default_factory=dict)  # the first of each kind

    def add(self, type_: str) -> None:
        """Tell the next event."""
        self.events += 1
        event = _RUN_TYPES.get(type_)
        if event is None:
            self.note(Wrong.UNKNOWN_EVENT, f"its history has an event {type_!r}")
            return
        before = self.state
        self.seen_to |= event in {RunEvent.CANCEL_REQUESTED, RunEvent.RERUN}
        self.state = RUN_TRANSITIONS.get((before, event), _RUN_LEADS_TO[event])
        if event is RunEvent.RERUN and before is None:
            self.whole = False
        elif (before, event) not in RUN_TRANSITIONS:
            if before is None:
                self.note(Wrong.NO_BEGINNING, f"its history begins with {event}")
            else:
                self.note(Wrong.ILLEGAL_STEP, f"its history has {event} while it was {before}")

    def note(self, wrong: Wrong, what: str) -> None:
        self.faults.setdefault(wrong, what)
