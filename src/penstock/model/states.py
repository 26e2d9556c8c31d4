"""The life of a task: nothing outside this file decides that a transition is legal.

A task that has just been created, or that a person reruns, is waiting; the same
transaction marks it ready or schedules it, unless it has to wait for something.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType

from penstock.errors import IllegalTransition
from penstock.model.events import EventType


class State(StrEnum):
    """Where an execution stands."""

    SCHEDULED = "scheduled"
    WAITING = "waiting"
    READY = "ready"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"


class SubState(StrEnum):
    """What a running execution does: work, or wait without a slot."""

    ACTIVE = "active"
    DEFERRED = "deferred"


TRANSITIONS: Mapping[tuple[State | None, EventType], State] = MappingProxyType(
    {
        (None, EventType.CREATED): State.WAITING,
        (State.WAITING, EventType.MARKED_READY): State.READY,
        (State.WAITING, EventType.SCHEDULED): State.SCHEDULED,
        (State.WAITING, EventType.SKIPPED): State.SKIPPED,
        # A task that runs for each element of a list ends with the last of them.
        (State.WAITING, EventType.COMPLETED): State.COMPLETED,
        (State.WAITING, EventType.FAILED): State.FAILED,
        (State.WAITING, EventType.CANCELLED): State.CANCELLED,
        (State.SCHEDULED, EventType.MARKED_READY): State.READY,
        (State.SCHEDULED, EventType.PAUSED): State.WAITING,
        (State.SCHEDULED, EventType.CANCELLED): State.CANCELLED,
        (State.READY, EventType.CLAIMED): State.RUNNING,
        (State.READY, EventType.PAUSED): State.WAITING,
        (State.READY, EventType.CANCELLED): State.CANCELLED,
        (State.RUNNING, EventType.STARTED): State.RUNNING,
        (State.RUNNING, EventType.DEFERRED): State.RUNNING,
        (State.RUNNING, EventType.RESUMED): State.RUNNING,
        (State.RUNNING, EventType.CANCEL_REQUESTED): State.RUNNING,
        (State.RUNNING, EventType.RELEASED): State.READY,
        (State.RUNNING, EventType.RECOVERED): State.READY,
        (State.RUNNING, EventType.SUSPENDED): State.WAITING,
        (State.RUNNING, EventType.SCHEDULED): State.SCHEDULED,
        (State.RUNNING, EventType.RETRY_SCHEDULED): State.SCHEDULED,
        (State.RUNNING, EventType.COMPLETED): State.COMPLETED,
        (State.RUNNING, EventType.FAILED): State.FAILED,
        (State.RUNNING, EventType.ABANDONED): State.FAILED,
        (State.RUNNING, EventType.CANCELLED): State.CANCELLED,
        (State.COMPLETED, EventType.RERUN): State.WAITING,
        (State.FAILED, EventType.RERUN): State.WAITING,
        (State.SKIPPED, EventType.RERUN): State.WAITING,
        (State.CANCELLED, EventType.RERUN): State.WAITING,
    }
)

# A person may rerun a finished task; nothing else leads out of a final state.
FINAL = frozenset(State) - {state for state, event in TRANSITIONS if event is not EventType.RERUN}
LIVE = frozenset(State) - FINAL


def next_state(state: State | None, event: EventType) -> State:
    """Return the state that `event` leads to, or raise IllegalTransition.

    `None` is the state of a task that does not exist yet.
    """
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransition(state, event, possible=possible_events(state)) from None


def possible_events(state: State | None) -> frozenset[EventType]:
    return frozenset(event for before, event in TRANSITIONS if before == state)


def state_after(events: Iterable[EventType]) -> State | None:
    """Replay a history from its beginning; None when there is no event at all."""
    state: State | None = None
    for event in events:
        state = next_state(state, event)
    return state
