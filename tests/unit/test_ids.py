import os
import signal
import threading
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.ids import (
    IdSource,
    InvalidId,
    InvalidMoment,
    lowest_id_at,
    new_id,
    parse_id,
    time_of,
)

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
NOON_NS = 1_794_744_000 * 10**9
MILLISECOND = timedelta(milliseconds=1)
LAST_OF_ITS_MILLISECOND = "-7fff-bfff-ffffffffffff"


class ClockByHand:
    def __init__(self) -> None:
        self.nanoseconds = NOON_NS

    def __call__(self) -> int:
        return self.nanoseconds


def test_an_id_is_a_uuid_of_version_7_in_canonical_text() -> None:
    made = new_id()
    parsed = uuid.UUID(made)
    assert str(parsed) == made
    assert parsed.version == 7
    assert parsed.variant == uuid.RFC_4122


def test_an_id_says_when_it_was_made() -> None:
    before = datetime.now(UTC)
    made = time_of(new_id())
    assert before - MILLISECOND < made <= datetime.now(UTC)


def test_ids_rise_while_the_clock_stands_still() -> None:
    source = IdSource(ClockByHand())
    made = [source.next() for _ in range(5_000)]
    assert all(earlier < later for earlier, later in pairwise(made))
    assert {time_of(each) for each in made} == {NOON}


def test_ids_rise_when_the_clock_goes_back() -> None:
    clock = ClockByHand()
    source = IdSource(clock)
    before = source.next()
    clock.nanoseconds -= 3_600 * 10**9
    assert source.next() > before


def test_a_new_millisecond_starts_the_counter_anywhere() -> None:
    clock = ClockByHand()
    source = IdSource(clock)
    tails = set()
    for _ in range(100):
        clock.nanoseconds += 10**6
        tails.add(source.next()[14:24])
    assert len(tails) > 90


def test_a_counter_that_is_used_up_borrows_the_next_millisecond() -> None:
    source = IdSource(ClockByHand())
    source.next()
    source._counter = source._carry(2**42 - 2)
    last, following = source.next(), source.next()
    assert last[14:28] == "7fff-bfff-ffff"
    assert following > last
    assert time_of(following) == NOON + MILLISECOND


def test_an_interruption_while_random_bits_are_fetched_ends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = IdSource(ClockByHand())
    before = [source.next()]

    def interrupt(_size: int) -> bytes:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "urandom", interrupt)
        with pytest.raises(KeyboardInterrupt):
            before.extend(source.next() for _ in range(10_000))
    assert source.next() > before[-1]


def test_a_signal_handler_gets_a_whole_id_while_the_first_one_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = IdSource(ClockByHand())
    source._words = iter(())
    fetch = os.urandom
    handled: list[str] = []

    def interrupted(size: int) -> bytes:
        words = fetch(size)
        if not handled:
            handled.append("")
            handled[0] = source.next()
        return words

    monkeypatch.setattr(os, "urandom", interrupted)
    made = source.next()
    assert parse_id(handled[0]) == handled[0]
    assert made != handled[0]
    assert source.next() > made


def test_threads_never_get_the_same_id_and_each_sees_its_own_rise() -> None:
    source = IdSource(ClockByHand())
    made: list[list[str]] = [[] for _ in range(4)]
    start = threading.Barrier(len(made))

    def make(mine: list[str]) -> None:
        start.wait()
        mine.extend(source.next() for _ in range(3_000))

    threads = [threading.Thread(target=make, args=(mine,)) for mine in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(earlier < later for mine in made for earlier, later in pairwise(mine))
    assert len(set().union(*made)) == 4 * 3_000


def in_child(work: Callable[[], str]) -> str:
    """Return what `work` returns in a forked child, or "" when the child does not get there."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        # A child that hangs on an inherited lock ends instead of hanging the test.
        signal.alarm(10)
        os.write(writing, work().encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return answer


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
# Newer Pythons warn of fork beside threads, which is the very danger that is tested here.
beside_threads = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


@needs_fork
@beside_threads
def test_a_forked_child_repeats_no_id_of_its_parent_or_its_siblings() -> None:
    def make() -> str:
        return " ".join(new_id() for _ in range(200))

    new_id()
    families = [in_child(make).split(), in_child(make).split(), make().split()]
    made = [each for family in families for each in family]
    assert len(made) == 600
    # Without the random start, the counters of the children would go on from the parent's.
    assert len({each[14:] for each in made}) == 600


@needs_fork
@beside_threads
def test_a_child_forked_while_another_thread_makes_an_id_is_not_stuck() -> None:
    from penstock.model import ids  # noqa: PLC0415 - the lock is inside

    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with ids._source._lock:
            held.set()
            done.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    try:
        made = in_child(new_id)
    finally:
        done.set()
        holder.join()
    assert parse_id(made) == made


def test_an_id_can_be_made_while_the_same_thread_is_making_one() -> None:
    source = IdSource()
    with source._lock:
        made = source.next()
    assert parse_id(made) == made


def test_random_bits_are_fetched_again_when_they_are_used_up() -> None:
    source = IdSource(ClockByHand())
    tails = {source.next()[-8:] for _ in range(3_000)}
    assert len(tails) > 2_990


@given(st.uuids())
def test_a_uuid_is_the_same_id_however_it_is_written(value: uuid.UUID) -> None:
    canonical = str(value)
    for written in (value, canonical, canonical.upper(), value.hex, f"  {canonical}\n"):
        assert parse_id(written) == canonical


@pytest.mark.parametrize(
    "value",
    [
        "",
        "42",
        "0190163d-8694-739b-aea5-966c26f8ad9",
        "0190163d-8694-739b-aea5-966c26f8ad911",
        "0190163g-8694-739b-aea5-966c26f8ad91",
        "0190163d8694-739b-aea5-966c26f8ad91",
        "0190163d_8694_739b_aea5_966c26f8ad91",
        "0_90163d8694739baea5966c26f8ad91",
        "\N{ARABIC-INDIC DIGIT ZERO}190163d-8694-739b-aea5-966c26f8ad91",
        None,
        42,
        b"0190163d-8694-739b-aea5-966c26f8ad91",
    ],
)
def test_what_is_no_uuid_is_refused(value: object) -> None:
    with pytest.raises(InvalidId) as refusal:
        parse_id(cast("str", value))
    assert refusal.value.value is value
    assert "`penstock list` shows them" in str(refusal.value)


def test_only_version_7_has_a_time() -> None:
    with pytest.raises(InvalidId, match="another version than 7"):
        time_of(uuid.uuid4())
    with pytest.raises(InvalidId, match="another version than 7"):
        time_of("01a1dd9a-c422-7000-0000-000000000000")
    with pytest.raises(InvalidId, match="after the year 9999"):
        time_of("ffffffff-ffff-7000-8000-000000000000")


def test_time_is_read_as_in_the_example_of_the_standard() -> None:
    moment = datetime(2022, 2, 22, 19, 22, 22, tzinfo=UTC)
    assert time_of("017F22E2-79B0-7CC3-98C4-DC0C0C07398F") == moment
    assert lowest_id_at(moment) == "017f22e2-79b0-7000-8000-000000000000"


def test_the_lowest_id_divides_earlier_ids_from_later_ones() -> None:
    border = lowest_id_at(NOON)
    just_before = lowest_id_at(NOON - MILLISECOND)[:13] + LAST_OF_ITS_MILLISECOND
    assert just_before < border <= IdSource(ClockByHand()).next()


@given(st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC)))  # noqa: DTZ001 - hypothesis adds the zone
def test_the_lowest_id_of_a_moment_has_its_time_to_the_millisecond(moment: datetime) -> None:
    lowest = lowest_id_at(moment)
    assert parse_id(lowest) == lowest
    assert timedelta() <= moment - time_of(lowest) < MILLISECOND


def test_a_moment_counts_the_same_in_every_time_zone() -> None:
    assert lowest_id_at(NOON.astimezone(timezone(timedelta(hours=9)))) == lowest_id_at(NOON)


@pytest.mark.parametrize(
    ("moment", "reason"),
    [
        (datetime(2026, 11, 15), "it has no time zone"),  # noqa: DTZ001 - that is the point
        (datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC), "ids count from 1970"),
    ],
)
def test_a_moment_without_ids_is_refused(moment: datetime, reason: str) -> None:
    with pytest.raises(InvalidMoment) as refusal:
        lowest_id_at(moment)
    assert refusal.value.reason == reason
