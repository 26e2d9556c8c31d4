import pickle
from datetime import timedelta
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import PenstockError
from penstock.model.durations import (
    MAX_DURATION,
    Duration,
    InvalidDuration,
    format_duration,
    parse_duration,
)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (90, timedelta(seconds=90)),
        (0, timedelta()),
        (0.25, timedelta(milliseconds=250)),
        ("1m30s", timedelta(seconds=90)),
        ("250ms", timedelta(milliseconds=250)),
        ("7us", timedelta(microseconds=7)),
        ("2h", timedelta(hours=2)),
        ("7d", timedelta(days=7)),
        ("1w", timedelta(days=7)),
        ("1.5h", timedelta(minutes=90)),
        ("0.1s", timedelta(milliseconds=100)),
        ("1w 2d 3h 4m 5s 6ms 7us", timedelta(9, 5, 7, 6, 4, 3)),
        ("  1m   30s ", timedelta(seconds=90)),
        ("0s", timedelta()),
        (timedelta(hours=3), timedelta(hours=3)),
        ("36525d", MAX_DURATION),
    ],
)
def test_a_duration_is_read_as_people_write_it(written: Duration, meant: timedelta) -> None:
    assert parse_duration(written) == meant


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        (-1, "it is negative"),
        (-0.5, "it is negative"),
        ("-5s", "it is negative"),
        (timedelta(seconds=-1), "it is negative"),
        (float("nan"), "it is not a finite number"),
        (float("inf"), "it is not a finite number"),
        (float("-inf"), "it is not a finite number"),
        (True, "a bool says nothing about time"),
        (None, "a NoneType says nothing about time"),
        (b"5s", "a bytes says nothing about time"),
        ("", "it is empty"),
        ("   ", "it is empty"),
        ("90", "the number 90 has no unit, as in '90s'"),
        ("1m30", "the number 30 has no unit, as in '30s'"),
        ("5 s", "here it is written '5s'"),
        ("5min", "here it is written '5m'"),
        ("5 minutes", "here it is written '5m'"),
        ("1 Hour, 30 minutes and 1.5 secs", "here it is written '1h30m1.5s'"),
        ("30 minutes 1 hour", "the number 30 has no unit, as in '30s'"),
        ("5 months", "the number 5 has no unit, as in '5s'"),
        ("2fortnights", "there is no unit 'fortnights'"),
        ("5M", "there is no unit 'M'"),
        ("soon", "no number starts at 'soon'"),
        ("1m, 30s", "no number starts at ', 30s'"),
        (".5h", "no number starts at '.5h'"),
        ("٣s", "no number starts at '٣s'"),
        ("30s1m", "'m' comes twice or after a smaller unit"),
        ("1m1m", "'m' comes twice or after a smaller unit"),
        ("36525d1us", "it is longer than 100 years"),
        (1e300, "it is longer than 100 years"),
        pytest.param(10**400, "it is longer than 100 years", id="beyond floats"),
        (timedelta.max, "it is longer than 100 years"),
        pytest.param("9" * 5000 + "s", "it has more than 100 characters", id="5000 digits"),
    ],
)
def test_what_is_no_duration_is_refused_with_the_reason(written: object, reason: str) -> None:
    with pytest.raises(InvalidDuration) as refusal:
        parse_duration(cast("Duration", written))
    assert refusal.value.reason == reason
    assert reason in str(refusal.value)


def test_a_refusal_says_what_to_write_instead() -> None:
    with pytest.raises(InvalidDuration) as refusal:
        parse_duration("5min")
    assert str(refusal.value) == (
        "'5min' is not a duration: here it is written '5m'. Give seconds as a number, a text such "
        "as '1m30s', '250ms' or '1.5h' (units, largest first: w d h m s ms us), or a timedelta."
    )
    assert isinstance(refusal.value, PenstockError)
    assert isinstance(refusal.value, ValueError)


def test_a_refusal_survives_the_way_between_processes() -> None:
    refusal = pickle.loads(pickle.dumps(InvalidDuration("5min", "there is no unit 'min'")))  # noqa: S301 - our own bytes
    assert refusal.value == "5min"
    assert str(refusal) == str(InvalidDuration("5min", "there is no unit 'min'"))


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(seconds=90), "1m30s"),
        (timedelta(), "0s"),
        (timedelta(days=90), "90d"),
        (timedelta(hours=24), "1d"),
        (timedelta(milliseconds=1500), "1s500ms"),
        (timedelta(microseconds=1), "1us"),
        (timedelta(seconds=-90), "-1m30s"),
    ],
)
def test_a_duration_is_written_without_empty_units(duration: timedelta, text: str) -> None:
    assert format_duration(duration) == text


@given(st.timedeltas(min_value=timedelta(), max_value=MAX_DURATION))
def test_what_is_written_is_read_back_exactly(duration: timedelta) -> None:
    assert parse_duration(format_duration(duration)) == duration


@given(st.floats(min_value=0, max_value=1e9))
def test_seconds_mean_what_a_timedelta_makes_of_them(seconds: float) -> None:
    # A timedelta adds up two rounded parts, so the last microsecond may differ.
    difference = parse_duration(seconds) - timedelta(seconds=seconds)
    assert abs(difference) <= timedelta(microseconds=1)


@given(st.text(alphabet="0123456789.wdhmsu -e", max_size=12))
def test_any_text_is_read_or_refused_and_nothing_else(text: str) -> None:
    try:
        duration = parse_duration(text)
    except InvalidDuration:
        return
    assert timedelta() <= duration <= MAX_DURATION
