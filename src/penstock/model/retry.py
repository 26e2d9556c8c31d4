"""When a task is tried again after an error, and how often.

N delays are N retries, so N + 1 attempts: the list of delays is the only place that says how
often. Crashes of a worker are not errors of the task and are counted elsewhere.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from reprlib import repr as short_repr
from typing import Self, TypeAlias

from penstock.errors import PenstockError
from penstock.model.durations import Duration, InvalidDuration, format_duration, parse_duration

ExceptionClasses: TypeAlias = (
    type[BaseException] | list[type[BaseException]] | tuple[type[BaseException], ...]
)

# A list this long is a mistake: with the longest usual delay, a day, it lasts for years.
MAX_RETRIES = 1_000


class InvalidRetry(PenstockError, ValueError):
    """A retry policy that cannot be followed; `setting` is the part that is wrong."""

    def __init__(self, setting: str, value: object, reason: str, next_step: str) -> None:
        self.setting = setting
        self.value = value
        self.reason = reason
        self.next_step = next_step
        super().__init__(setting, value, reason, next_step)

    def __str__(self) -> str:
        return (
            f"{self.setting}={short_repr(self.value)} makes no retry policy: {self.reason}. "
            f"{self.next_step}."
        )


class GiveUp(PenstockError):
    """Raised by a task that knows that no retry can help: it fails for good at once."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class RetryAfter(PenstockError):
    """Raised by a task that knows when a retry can help: `delay` replaces the next delay.

    It spends a retry like any other error, so a task cannot go on with it for ever.
    """

    def __init__(self, delay: Duration) -> None:
        self.delay = parse_duration(delay)
        # The delay itself, so that the error survives the way out of a child process.
        super().__init__(self.delay)

    def __str__(self) -> str:
        return f"asked for a retry after {format_duration(self.delay)}"


@dataclass(frozen=True, slots=True, init=False)
class Retry:
    """A retry policy: the delays before each retry, and the errors that deserve one.

    Attributes:
        delays: one for each retry.
        jitter: the part of a delay, from 0 to 1, by which it is made shorter or longer at random.
        on: only these errors, and those below them, are retried.
        give_up_on: these are never retried, even where `on` includes them.
    """

    delays: tuple[timedelta, ...]
    jitter: float
    on: tuple[type[BaseException], ...]
    give_up_on: tuple[type[BaseException], ...]

    def __init__(
        self,
        delays: Sequence[Duration],
        *,
        jitter: float = 0.0,
        on: ExceptionClasses = (Exception,),
        give_up_on: ExceptionClasses = (),
    ) -> None:
        # A frozen dataclass sets its fields in this way too.
        object.__setattr__(self, "delays", _checked_delays(delays))
        object.__setattr__(self, "jitter", _checked_jitter(jitter))
        object.__setattr__(self, "on", _checked_classes("on", on))
        object.__setattr__(self, "give_up_on", _checked_classes("give_up_on", give_up_on))

    @classmethod
    def exponential(
        cls,
        first: Duration = "5s",
        *,
        factor: float = 3,
        cap: Duration = "1h",
        retries: int = 8,
        jitter: float = 0.25,
        on: ExceptionClasses = (Exception,),
        give_up_on: ExceptionClasses = (),
    ) -> Self:
        """Return a policy whose delays grow from `first` by `factor` until they reach `cap`.

        Jitter comes on top of the cap.
        """
        _check_retries(retries)
        _check_factor(factor)
        delay = _checked_delay("first", first).total_seconds()
        most = _checked_delay("cap", cap).total_seconds()
        delays = []
        for _ in range(retries):
            delay = min(delay, most)
            delays.append(delay)
            delay *= factor
        return cls(delays, jitter=jitter, on=on, give_up_on=give_up_on)

    @classmethod
    def of(cls, value: "Sequence[Duration] | Retry | None") -> "Retry":
        """Return what a task means by `retry=value`: a policy, a list of delays, None for none."""
        if isinstance(value, Retry):
            return value
        if value is None:
            return cls(())
        try:
            return cls(value)
        except InvalidRetry as error:
            # The user wrote `retry=[…]` and knows nothing of `delays`.
            setting = error.setting.replace("delays", "retry")
            raise InvalidRetry(setting, error.value, error.reason, error.next_step) from None

    def delay_after(
        self, errors_so_far: int, error: BaseException, *, random: Callable[[], float]
    ) -> timedelta | None:
        """Return how long to wait before the next attempt, or None to give up.

        `errors_so_far` counts `error` itself, so it is 1 after the first. `random` returns
        numbers from 0 to 1 and is asked only when there is jitter. What the task asked for
        with `GiveUp` or `RetryAfter` counts more than `on` and `give_up_on`.
        """
        if errors_so_far < 1:
            raise InvalidRetry(
                "errors_so_far", errors_so_far, "there is an error", "Count it: start from 1"
            )
        if errors_so_far > len(self.delays) or isinstance(error, GiveUp):
            return None
        if isinstance(error, RetryAfter):
            return error.delay
        if isinstance(error, self.give_up_on) or not isinstance(error, self.on):
            return None
        delay = self.delays[errors_so_far - 1]
        if not self.jitter:
            return delay
        return delay * (1 + self.jitter * (2 * random() - 1))


def _checked_delays(delays: Sequence[Duration]) -> tuple[timedelta, ...]:
    if isinstance(delays, str):
        raise InvalidRetry(
            "delays", delays, "a text is one delay, not a list", f"Write [{delays!r}]"
        )
    if not isinstance(delays, Sequence):
        raise InvalidRetry(
            "delays",
            delays,
            f"{_a_kind(delays)} is not a list of delays",
            "Write one delay for each retry, as in ['1m', '5m', '15m'], or None for no retries",
        )
    if len(delays) > MAX_RETRIES:
        raise InvalidRetry(
            "delays", delays, f"{len(delays)} retries are too many", f"Give at most {MAX_RETRIES}"
        )
    return tuple(_checked_delay(f"delays[{n}]", delay) for n, delay in enumerate(delays))


def _checked_delay(setting: str, delay: Duration) -> timedelta:
    try:
        return parse_duration(delay)
    except InvalidDuration as error:
        raise InvalidRetry(
            setting, delay, error.reason, "Write a duration such as 90, '1m30s' or a timedelta"
        ) from error


def _checked_jitter(jitter: float) -> float:
    if not _is_number(jitter) or not 0 <= jitter <= 1:
        raise InvalidRetry(
            "jitter", jitter, "it is a part of each delay", "Give a number from 0 to 1, as in 0.25"
        )
    return float(jitter)


def _check_factor(factor: float) -> None:
    if not _is_number(factor) or not 1 <= factor < math.inf:
        raise InvalidRetry(
            "factor", factor, "delays cannot shrink", "Give a finite number of at least 1"
        )


def _check_retries(retries: int) -> None:
    if isinstance(retries, bool) or not isinstance(retries, int) or not 0 <= retries <= MAX_RETRIES:
        raise InvalidRetry(
            "retries",
            retries,
            "it says how many retries there are",
            f"Give a whole number from 0 to {MAX_RETRIES}",
        )


def _checked_classes(setting: str, given: ExceptionClasses) -> tuple[type[BaseException], ...]:
    classes = tuple(given) if isinstance(given, list | tuple) else (given,)
    for culprit in classes:
        if not (isinstance(culprit, type) and issubclass(culprit, BaseException)):
            raise InvalidRetry(
                setting,
                given,
                f"{short_repr(culprit)} is not an exception class",
                "Write the classes themselves, as in (ConnectionError, TimeoutError)",
            )
    return classes


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _a_kind(value: object) -> str:
    return f"a value of type {type(value).__name__}"


DEFAULT_RETRY = Retry.exponential()
