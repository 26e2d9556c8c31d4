from datetime import timedelta

import pytest
from msgspec.structs import replace

from penstock.model.executions import Claimed
from penstock.model.outcomes import EVENT_OF, Completed, Failed, RetryScheduled
from penstock.model.states import FINAL, State, next_state
from penstock.store.contract import Store
from penstock.testing.clock import ManualClock
from tests.contract.databases import Database, count
from tests.contract.support import (
    BOOM,
    ENDINGS,
    MINUTE,
    WORKER,
    claim,
    crash,
    enqueue,
    enqueue_many,
    finish,
    get,
    ids,
    last_event,
    run_one,
    state_of,
    types,
    worker,
)

every_ending = pytest.mark.parametrize("ending", ENDINGS)


@every_ending
def test_an_outcome_leads_where_the_table_says(
    store: Store, clock: ManualClock, ending: str
) -> None:
    claimed = run_one(store)
    clock.advance(MINUTE)
    outcome = finish(claimed, ending)

    assert store.settle([outcome]) == []

    event = EVENT_OF[type(outcome)]
    stored = get(store, claimed.lease.execution_id)
    assert stored.state is next_state(State.RUNNING, event)
    assert (stored.worker_id, stored.sub_state) == (None, None)
    assert stored.finished_at == (clock.now() if stored.state in FINAL else None)
    told = last_event(store, stored.id)
    assert (told.type, told.worker_id, told.at) == (event, WORKER, clock.now())


@pytest.mark.parametrize(
    ("ending", "attempt", "retries"),
    [
        ("completed", 1, 0),
        ("failed", 1, 0),
        ("cancelled", 1, 0),
        ("retry", 1, 1),
        ("deferred_for", 0, 0),
        ("released", 0, 0),
    ],
)
def test_only_an_attempt_that_ended_by_itself_is_spent(
    store: Store, ending: str, attempt: int, retries: int
) -> None:
    claimed = run_one(store)
    store.settle([finish(claimed, ending)])

    stored = get(store, claimed.lease.execution_id)

    assert (stored.attempt, stored.retries, stored.crashes) == (attempt, retries, 0)


@every_ending
def test_the_fence_changes_when_a_task_stops_running(store: Store, ending: str) -> None:
    claimed = run_one(store)
    store.settle([finish(claimed, ending)])

    assert get(store, claimed.lease.execution_id).fence > claimed.lease.fence


def test_a_result_is_kept(store: Store) -> None:
    claimed = run_one(store)
    store.settle([Completed(lease=claimed.lease, result='{"sent": true}')])

    assert get(store, claimed.lease.execution_id).result == '{"sent": true}'


@pytest.mark.parametrize("ending", ["failed", "retry"])
def test_an_error_is_kept_and_told(store: Store, ending: str) -> None:
    claimed = run_one(store)
    store.settle([finish(claimed, ending)])

    assert get(store, claimed.lease.execution_id).error == BOOM
    told = last_event(store, claimed.lease.execution_id)
    assert told.data["error"] == {"type": "ValueError", "message": "boom"}


@pytest.mark.parametrize("ending", ["deferred_for", "released", "cancelled"])
def test_a_reason_is_told(store: Store, ending: str) -> None:
    claimed = run_one(store)
    store.settle([finish(claimed, ending)])

    told = last_event(store, claimed.lease.execution_id)
    reasons = {"deferred_for": "not yet", "released": "shutdown", "cancelled": "asked to stop"}
    assert told.data["reason"] == reasons[ending]


@pytest.mark.parametrize("ending", ["retry", "deferred_for"])
def test_a_task_that_comes_back_later_is_due_after_its_delay(
    store: Store, clock: ManualClock, ending: str
) -> None:
    claimed = run_one(store)
    clock.advance("10s")
    store.settle([finish(claimed, ending)])

    assert get(store, claimed.lease.execution_id).run_at == clock.now() + MINUTE
    assert last_event(store, claimed.lease.execution_id).data["delay"] == 60


def test_a_retry_is_the_next_attempt(store: Store, clock: ManualClock) -> None:
    first = run_one(store)
    store.settle([finish(first, "retry")])
    clock.advance(MINUTE)
    store.promote()

    (second,) = claim(store)

    assert (second.attempt, second.retries) == (2, 1)
    assert second.lease.fence > first.lease.fence + 1


@pytest.mark.parametrize("ending", ["released", "deferred_for"])
def test_a_task_given_back_runs_the_same_attempt_again(
    store: Store, clock: ManualClock, ending: str
) -> None:
    first = run_one(store)
    store.settle([finish(first, ending)])
    clock.advance(MINUTE)
    store.promote()

    (again,) = claim(store)

    assert (again.attempt, again.retries) == (first.attempt, 0)


def test_a_retry_without_delay_is_due_at_once(store: Store) -> None:
    claimed = run_one(store)
    outcome = RetryScheduled(lease=claimed.lease, error=BOOM, delay=timedelta())
    store.settle([outcome])

    assert store.promote().promoted == 1
    assert ids(claim(store)) == [claimed.lease.execution_id]


@every_ending
def test_a_start_told_with_the_outcome_has_its_true_time(
    store: Store, clock: ManualClock, ending: str
) -> None:
    claimed = run_one(store)
    started_at = clock.advance("1s")
    clock.advance("5s")

    store.settle([replace(finish(claimed, ending), started_at=started_at)])

    *_, started, ended = store.history(claimed.lease.execution_id)
    assert (started.type, started.at, started.worker_id) == ("task.started", started_at, WORKER)
    assert ended.at == clock.now()
    assert get(store, claimed.lease.execution_id).started_at == started_at


def test_a_start_is_recorded_once(store: Store, clock: ManualClock) -> None:
    claimed = run_one(store)
    started_at = clock.advance("1s")
    assert store.start([claimed.lease]) == []
    clock.advance("1s")
    assert store.start([claimed.lease]) == []

    assert get(store, claimed.lease.execution_id).started_at == started_at
    assert types(store.history(claimed.lease.execution_id)).count("task.started") == 1


def test_the_next_attempt_has_not_started_yet(store: Store, clock: ManualClock) -> None:
    claimed = run_one(store)
    store.start([claimed.lease])
    store.settle([finish(claimed, "released")])
    claim(store)

    assert get(store, claimed.lease.execution_id).started_at is None


@every_ending
def test_a_repeated_settlement_is_a_success_and_changes_nothing(
    store: Store, clock: ManualClock, ending: str
) -> None:
    claimed = run_one(store)
    outcome = finish(claimed, ending)
    store.settle([outcome])
    before = get(store, claimed.lease.execution_id)
    history = store.history(before.id)
    clock.advance(MINUTE)

    assert store.settle([outcome]) == []

    assert get(store, before.id) == before
    assert store.history(before.id) == history


@pytest.mark.parametrize("ending", ["failed", "completed", "released"])
def test_the_first_settlement_of_a_lease_counts(store: Store, ending: str) -> None:
    claimed = run_one(store)
    store.settle([finish(claimed, "completed")])

    assert store.settle([finish(claimed, ending)]) == []

    assert state_of(store, claimed.lease.execution_id) is State.COMPLETED


def test_two_settlements_of_a_lease_in_one_call_count_once(store: Store) -> None:
    claimed = run_one(store)

    assert store.settle([finish(claimed), finish(claimed)]) == []

    assert types(store.history(claimed.lease.execution_id)).count("task.completed") == 1


def test_the_very_same_settlement_twice_in_a_call_counts_once(store: Store) -> None:
    claimed = run_one(store)
    outcome = finish(claimed)

    assert store.settle([outcome, outcome]) == []

    assert types(store.history(claimed.lease.execution_id)).count("task.completed") == 1


def test_a_batch_is_settled_whatever_its_mixture(store: Store, database: Database) -> None:
    worker(store)
    enqueue_many(store, len(ENDINGS))
    batch = dict(zip(ENDINGS, claim(store, limit=len(ENDINGS)), strict=True))

    assert store.settle([finish(claimed, how) for how, claimed in batch.items()]) == []

    states = {how: state_of(store, claimed.lease.execution_id) for how, claimed in batch.items()}
    assert states == {
        "completed": State.COMPLETED,
        "failed": State.FAILED,
        "retry": State.SCHEDULED,
        "deferred_for": State.SCHEDULED,
        "suspended": State.WAITING,
        "suspended_for": State.SCHEDULED,
        "released": State.READY,
        "cancelled": State.CANCELLED,
    }
    assert count(database, "task_outbox") == 1


def test_completions_of_one_batch_keep_what_is_their_own(store: Store, clock: ManualClock) -> None:
    """Those that have most in common are written together."""
    began = clock.now()
    returned = run_one(store)
    again = run_one(store)
    store.settle([finish(again, "released")])
    (again,) = claim(store)
    other = run_one(store, "worker-2")
    known = run_one(store)
    store.start([known.lease])
    wrote = run_one(store)
    clock.advance(MINUTE)

    lost = store.settle(
        [
            Completed(lease=returned.lease, started_at=began, result='{"null":"\\"[1]\\""}'),
            Completed(lease=again.lease, started_at=began + MINUTE / 2),
            Completed(lease=other.lease, started_at=began),
            Completed(lease=known.lease, result="[1, null]"),
            Completed(lease=wrote.lease, started_at=began, writes='{"a":1}'),
        ]
    )

    assert lost == []
    stored = [get(store, one.lease.execution_id) for one in (returned, again, other, known, wrote)]
    assert [one.state for one in stored] == [State.COMPLETED] * 5
    assert [one.result for one in stored] == [
        '{"null":"\\"[1]\\""}', "null", "null", "[1, null]", "null",
    ]  # fmt: skip
    assert [one.writes for one in stored] == [None, None, None, None, '{"a":1}']
    assert [one.started_at for one in stored] == [
        began, began + MINUTE / 2, began, began, began,
    ]  # fmt: skip
    assert [one.finished_at for one in stored] == [clock.now()] * 5
    told = [store.history(one.id)[-2:] for one in stored]
    assert [types(two) for two in told] == [["task.started", "task.completed"]] * 5
    assert [two[0].at for two in told] == [one.started_at for one in stored]
    assert [two[1].worker_id for two in told] == [WORKER, WORKER, "worker-2", WORKER, WORKER]


def test_settling_nothing_is_allowed(store: Store) -> None:
    assert store.settle([]) == []


@pytest.mark.parametrize("unstorable", ['"a\x00b"', '"\ud800"'])
def test_one_bad_outcome_in_a_hundred_fails_alone_and_says_why(
    store: Store, unstorable: str
) -> None:
    worker(store)
    enqueue_many(store, 100)
    batch = claim(store, limit=100)
    outcomes = [finish(one) for one in batch]
    culprit = batch[37]
    outcomes[37] = Completed(lease=culprit.lease, result=unstorable)

    assert store.settle(outcomes) == []

    counts = store.counts()
    assert (counts[State.COMPLETED], counts[State.FAILED]) == (99, 1)
    failed = get(store, culprit.lease.execution_id)
    assert failed.state is State.FAILED
    assert "cannot be stored" in str(failed.error)
    told = last_event(store, failed.id)
    assert told.type == "task.failed"
    assert isinstance(told.data["error"], dict)
    assert told.data["error"]["type"] == "UnstorableOutcome"


def test_a_bad_outcome_beside_a_lost_lease_hides_neither(store: Store) -> None:
    bad = run_one(store)
    lost = run_one(store)
    good = run_one(store)
    store.settle([finish(lost, "released")])
    claim(store)
    stale = replace(lost.lease, fence=lost.lease.fence - 1)

    answer = store.settle(
        [
            Completed(lease=stale),
            Failed(lease=bad.lease, error='"\x00"'),
            finish(good),
        ]
    )

    assert answer == [stale]
    assert state_of(store, bad.lease.execution_id) is State.FAILED
    assert state_of(store, good.lease.execution_id) is State.COMPLETED


def _cancel_requested(store: Store) -> Claimed:
    claimed = run_one(store)
    assert store.cancel([claimed.lease.execution_id]) == ["requested"]
    return claimed


@every_ending
def test_after_a_cancel_request_anything_but_completion_is_a_cancellation(
    store: Store, clock: ManualClock, database: Database, ending: str
) -> None:
    claimed = _cancel_requested(store)
    clock.advance("1s")

    assert store.settle([finish(claimed, ending)]) == []

    expected = State.COMPLETED if ending == "completed" else State.CANCELLED
    stored = get(store, claimed.lease.execution_id)
    assert stored.state is expected
    assert stored.finished_at == clock.now()
    assert last_event(store, stored.id).type == f"task.{expected}"
    assert count(database, "task_outbox") == 0


def test_a_suspect_that_ends_by_itself_is_cleared(store: Store, clock: ManualClock) -> None:
    worker(store)
    task_id = enqueue(store)
    crash(store, task_id)
    (claimed,) = claim(store)
    assert claimed.suspect

    store.settle([finish(claimed, "retry")])

    assert get(store, task_id).suspect is False


@pytest.mark.parametrize("ending", ["released", "deferred_for"])
def test_a_suspect_that_is_given_back_stays_suspect(
    store: Store, clock: ManualClock, ending: str
) -> None:
    worker(store)
    task_id = enqueue(store)
    crash(store, task_id)
    (claimed,) = claim(store)
    store.settle([finish(claimed, ending)])
    clock.advance(MINUTE)
    store.promote()

    assert claim(store, suspects=False) == []
    assert ids(claim(store)) == [task_id]
