from datetime import UTC, datetime, timedelta, timezone

import pytest

from penstock.model.clock import Clock
from penstock.model.durations import InvalidDuration
from penstock.testing.clock import ManualClock, NaiveMoment
from tests.contract.threads import in_threads

NOON = datetime(2030, 6, 1, 12, tzinfo=UTC)


def test_a_manual_clock_stands_still_until_it_is_moved() -> None:
    clock: Clock = ManualClock(NOON)

    assert [clock.now(), clock.now()] == [NOON, NOON]


@pytest.mark.parametrize("minute", [60, 60.0, "1m", "60s", timedelta(minutes=1)])
def test_a_manual_clock_moves_by_any_duration(minute: float | str | timedelta) -> None:
    clock = ManualClock(NOON)

    assert clock.advance(minute) == NOON + timedelta(minutes=1)
    assert clock.now() == NOON + timedelta(minutes=1)


@pytest.mark.parametrize("backwards", [-1, timedelta(seconds=-1), "-1s"])
def test_a_manual_clock_does_not_advance_backwards(backwards: int | str | timedelta) -> None:
    clock = ManualClock(NOON)

    with pytest.raises(InvalidDuration):
        clock.advance(backwards)

    assert clock.now() == NOON


def test_a_manual_clock_can_be_set_to_an_earlier_moment() -> None:
    clock = ManualClock(NOON)
    clock.set_to(NOON - timedelta(days=1))

    assert clock.now() == NOON - timedelta(days=1)


def test_a_manual_clock_shows_utc_whatever_it_was_given() -> None:
    clock = ManualClock(NOON.astimezone(timezone(timedelta(hours=5))))

    assert clock.now() == NOON
    assert clock.now().tzinfo is UTC


def test_a_manual_clock_starts_now_unless_told_otherwise() -> None:
    before = datetime.now(UTC)

    assert before <= ManualClock().now() <= datetime.now(UTC)


def test_a_moment_without_a_time_zone_is_refused() -> None:
    naive = NOON.replace(tzinfo=None)

    with pytest.raises(NaiveMoment) as refused:
        ManualClock(naive)
    with pytest.raises(NaiveMoment):
        ManualClock(NOON).set_to(naive)

    assert refused.value.moment == naive
    assert "no time zone" in str(refused.value)


def test_threads_that_move_a_manual_clock_lose_no_step() -> None:
    clock = ManualClock(NOON)

    def step() -> None:
        for _ in range(1000):
            clock.advance(1)

    in_threads([step] * 8)

    assert clock.now() == NOON + timedelta(seconds=8000)
