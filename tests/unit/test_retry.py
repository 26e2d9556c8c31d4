import pickle
from collections.abc import Sequence
from dataclasses import FrozenInstanceError
from datetime import timedelta
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.durations import Duration, InvalidDuration
from penstock.model.retry import (
    DEFAULT_RETRY,
    MAX_RETRIES,
    GiveUp,
    InvalidRetry,
    Retry,
    RetryAfter,
)

MINUTE = timedelta(minutes=1)
BROKEN = ConnectionError("reset by peer")


def middle() -> float:
    return 0.5


def never() -> float:
    pytest.fail("there is no jitter, so no random number is needed")


def all_delays(policy: Retry, error: BaseException = BROKEN) -> list[timedelta | None]:
    return [
        policy.delay_after(errors, error, random=middle)
        for errors in range(1, len(policy.delays) + 2)
    ]


def test_n_delays_are_n_retries_and_then_it_gives_up() -> None:
    policy = Retry.of(["1m", 300, timedelta(minutes=15)])
    assert all_delays(policy) == [MINUTE, 5 * MINUTE, 15 * MINUTE, None]
    assert policy.delay_after(1_000, BROKEN, random=never) is None


def test_none_means_no_retries() -> None:
    assert Retry.of(None).delay_after(1, BROKEN, random=never) is None
    assert Retry.of([]) == Retry.of(None)


def test_a_policy_is_taken_as_it_is() -> None:
    policy = Retry(["1m"], jitter=0.1)
    assert Retry.of(policy) is policy


def test_a_list_has_no_jitter() -> None:
    assert Retry.of(("1m",)).delay_after(1, BROKEN, random=never) == MINUTE


def test_the_default_is_eight_retries_in_two_and_a_half_hours() -> None:
    seconds = [delay.total_seconds() for delay in DEFAULT_RETRY.delays]
    assert seconds == [5, 15, 45, 135, 405, 1215, 3600, 3600]
    assert sum(seconds) == 9020
    assert sum(seconds) / 3600 == pytest.approx(2.5, abs=0.01)
    assert DEFAULT_RETRY.jitter == 0.25
    assert Retry.exponential() == DEFAULT_RETRY


def test_exponential_delays_stop_growing_at_the_cap_however_many_there_are() -> None:
    policy = Retry.exponential("1s", factor=1e300, cap="1m", retries=MAX_RETRIES, jitter=0)
    assert policy.delays[0] == timedelta(seconds=1)
    assert set(policy.delays[1:]) == {MINUTE}
    assert len(policy.delays) == MAX_RETRIES


def test_a_first_delay_above_the_cap_is_capped() -> None:
    assert Retry.exponential("2m", cap="1m", retries=1).delays == (MINUTE,)


@pytest.mark.parametrize(("drawn", "factor"), [(0.0, 0.75), (0.25, 0.875), (0.5, 1.0), (1.0, 1.25)])
def test_jitter_spreads_a_delay_evenly_around_itself(drawn: float, factor: float) -> None:
    policy = Retry(["1m"], jitter=0.25)
    assert policy.delay_after(1, BROKEN, random=lambda: drawn) == MINUTE * factor


@given(
    jitter=st.floats(0, 1),
    drawn=st.floats(0, 1),
    delay=st.timedeltas(min_value=timedelta(), max_value=timedelta(days=36_525)),
)
def test_jitter_stays_within_its_part_of_the_delay(
    jitter: float, drawn: float, delay: timedelta
) -> None:
    actual = Retry([delay], jitter=jitter).delay_after(1, BROKEN, random=lambda: drawn)
    assert actual is not None
    rounding = timedelta(microseconds=1)
    assert delay * (1 - jitter) - rounding <= actual <= delay * (1 + jitter) + rounding
    assert actual >= timedelta()


def test_only_errors_that_it_names_are_retried() -> None:
    policy = Retry(["1m"], on=(OSError, KeyError))
    assert policy.delay_after(1, BROKEN, random=never) == MINUTE
    assert policy.delay_after(1, KeyError("x"), random=never) == MINUTE
    assert policy.delay_after(1, ValueError("x"), random=never) is None


def test_interruptions_are_not_errors_to_retry() -> None:
    assert Retry(["1m"]).delay_after(1, KeyboardInterrupt(), random=never) is None
    assert Retry(["1m"], on=BaseException).delay_after(1, SystemExit(), random=never) == MINUTE


def test_give_up_on_beats_on() -> None:
    policy = Retry(["1m"], on=(OSError,), give_up_on=(ConnectionError,))
    assert policy.delay_after(1, OSError("disk"), random=never) == MINUTE
    assert policy.delay_after(1, BROKEN, random=never) is None


def test_one_exception_class_needs_no_tuple() -> None:
    policy = Retry(["1m"], on=OSError, give_up_on=[ConnectionError])
    assert policy == Retry(["1m"], on=(OSError,), give_up_on=(ConnectionError,))


def test_give_up_ends_it_at_once_whatever_the_policy_says() -> None:
    policy = Retry(["1m", "1m"], on=(GiveUp,))
    assert policy.delay_after(1, GiveUp("the order was deleted"), random=never) is None
    assert str(GiveUp("the order was deleted")) == "the order was deleted"


def test_retry_after_replaces_the_delay_without_jitter_whatever_the_policy_says() -> None:
    policy = Retry(["1m"], jitter=1, on=(KeyError,), give_up_on=(Exception,))
    assert policy.delay_after(1, RetryAfter("30s"), random=never) == timedelta(seconds=30)


def test_retry_after_cannot_go_on_for_longer_than_the_list() -> None:
    policy = Retry.of(["1m", "5m"])
    half = timedelta(seconds=30)
    assert all_delays(policy, RetryAfter("30s")) == [half, half, None]
    assert Retry.of(None).delay_after(1, RetryAfter("30s"), random=never) is None


def test_retry_after_refuses_what_is_no_duration() -> None:
    with pytest.raises(InvalidDuration):
        RetryAfter("soon")


@pytest.mark.parametrize("error", [GiveUp("no such order"), RetryAfter("1m30s")])
def test_what_a_task_raises_survives_the_way_out_of_a_child_process(error: Exception) -> None:
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert type(copy) is type(error)
    assert vars(copy) == vars(error)
    assert str(copy) == str(error)


def test_a_policy_is_a_value() -> None:
    policy = Retry(["1m"], jitter=0.1)
    assert policy == Retry([60], jitter=0.1)
    assert hash(policy) == hash(Retry([60], jitter=0.1))
    assert pickle.loads(pickle.dumps(policy)) == policy  # noqa: S301 - our own bytes
    with pytest.raises(FrozenInstanceError):
        policy.jitter = 0.5  # type: ignore[misc]


@pytest.mark.parametrize(
    ("retry", "setting", "next_step"),
    [
        ("1m", "retry", "Write ['1m']"),
        (
            5,
            "retry",
            "Write one delay for each retry, as in ['1m', '5m', '15m'], or None for no retries",
        ),
        (["1m", "5min"], "retry[1]", "Write a duration such as 90, '1m30s' or a timedelta"),
    ],
)
def test_a_retry_that_is_no_list_is_refused_with_the_way_to_write_it(
    retry: object, setting: str, next_step: str
) -> None:
    with pytest.raises(InvalidRetry) as refusal:
        Retry.of(cast("Any", retry))
    assert refusal.value.setting == setting
    assert refusal.value.next_step == next_step


def test_a_refusal_says_what_which_why_and_what_next() -> None:
    with pytest.raises(InvalidRetry) as refusal:
        Retry.of("1m")
    assert str(refusal.value) == (
        "retry='1m' makes no retry policy: a text is one delay, not a list. Write ['1m']."
    )


@pytest.mark.parametrize("delays", [{"1m"}, iter(["1m"]), True, 0, ["1m", None], [-1], ["x"]])
def test_delays_that_cannot_be_waited_for_are_refused(delays: object) -> None:
    with pytest.raises(InvalidRetry):
        Retry(cast("Any", delays))


def test_a_list_that_would_last_for_years_is_refused() -> None:
    delays: Sequence[Duration] = [1] * (MAX_RETRIES + 1)
    with pytest.raises(InvalidRetry, match="1001 retries are too many"):
        Retry(delays)


@pytest.mark.parametrize("jitter", [-0.1, 1.1, float("nan"), True, "0.1", None])
def test_jitter_outside_of_nought_to_one_is_refused(jitter: object) -> None:
    with pytest.raises(InvalidRetry) as refusal:
        Retry(["1m"], jitter=cast("Any", jitter))
    assert refusal.value.setting == "jitter"


@pytest.mark.parametrize("setting", ["on", "give_up_on"])
@pytest.mark.parametrize("classes", ["ValueError", ("ValueError",), int, [int], ValueError("x"), 5])
def test_only_exception_classes_can_be_named(setting: str, classes: object) -> None:
    settings: dict[str, Any] = {setting: classes}
    with pytest.raises(InvalidRetry, match="is not an exception class") as refusal:
        Retry(["1m"], **settings)
    assert refusal.value.setting == setting


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("first", "soon"),
        ("cap", -1),
        ("factor", 0.5),
        ("factor", float("nan")),
        ("factor", float("inf")),
        ("factor", "3"),
        ("retries", -1),
        ("retries", 2.0),
        ("retries", True),
        ("retries", MAX_RETRIES + 1),
    ],
)
def test_an_exponential_policy_names_the_setting_that_is_wrong(setting: str, value: object) -> None:
    settings: dict[str, Any] = {setting: value}
    with pytest.raises(InvalidRetry) as refusal:
        Retry.exponential(**settings)
    assert refusal.value.setting == setting
    assert refusal.value.value is value


def test_errors_are_counted_from_one() -> None:
    with pytest.raises(InvalidRetry, match="start from 1"):
        Retry(["1m"]).delay_after(0, BROKEN, random=never)
