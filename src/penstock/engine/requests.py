"""What a caller asks for, before it is an execution."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypedDict, TypeVar

import msgspec

from penstock.errors import PenstockError
from penstock.model.durations import Duration, InvalidDuration, parse_duration
from penstock.model.executions import DEFAULT_MAX_CRASHES, DEFAULT_QUEUE, NewExecution
from penstock.model.ids import new_id
from penstock.model.states import State

T_co = TypeVar("T_co", covariant=True)

LEAST_PRIORITY, MOST_PRIORITY = -(2**31), 2**31 - 1
LONGEST_NAME = 200  # characters of a queue, a task, a key or a serial


class EnqueueOptions(TypedDict, total=False):
    """How one execution differs from what its task declares."""

    run_after: Duration | datetime | None
    priority: int
    queue: str
    key: str | None
    serial: str | None
    notify: bool


class InvalidOption(PenstockError, ValueError):
    """An option that no execution can have."""

    def __init__(self, option: str, value: object, *, because: str, instead: str) -> None:
        self.option = option
        self.value = value
        super().__init__(f"{option}={value!r} is not possible: {because}. {instead}.")


class Request(msgspec.Struct, Generic[T_co], frozen=True, gc=False):
    """One execution that has been asked for and not yet been written.

    Make it with `task.request(…)`, hand many of them to `app.enqueue_many`.
    """

    new: NewExecution
    decode_result: Callable[[str], Any]
    notify: bool = True


def new_execution(
    task: str,
    args: str,
    options: EnqueueOptions,
    *,
    queue: str = DEFAULT_QUEUE,
    priority: int = 0,
    max_crashes: int = DEFAULT_MAX_CRASHES,
    follow_ups: str | None = None,
) -> NewExecution:
    """Combine what a task declares with what a caller asks for; refuse what cannot be."""
    if not options:
        # What a task declares was checked when it was declared; most calls ask for nothing more,
        # and in bulk looking again would cost as much as all the rest of this.
        return NewExecution(
            id=new_id(),
            task=task,
            args=args,
            queue=queue,
            priority=priority,
            max_crashes=max_crashes,
            follow_ups=follow_ups,
        )
    if unknown := sorted(set(options) - EnqueueOptions.__annotations__.keys()):
        raise InvalidOption(
            unknown[0],
            options[unknown[0]],  # type: ignore[literal-required]
            because="there is no such option here",
            instead=f"There are {', '.join(EnqueueOptions.__annotations__)}; `using` takes a "
            "connection as well",
        )
    run_at, delay = _when(options.get("run_after"))
    return NewExecution(
        id=new_id(),
        task=task,
        args=args,
        queue=checked_name("queue", options.get("queue", queue)),
        priority=checked_priority(options.get("priority", priority)),
        run_at=run_at,
        delay=delay,
        key=_optional_name("key", options.get("key")),
        serial=_optional_name("serial", options.get("serial")),
        max_crashes=max_crashes,
        follow_ups=follow_ups,
    )


def _when(run_after: Duration | datetime | None) -> tuple[datetime | None, timedelta | None]:
    if run_after is None:
        return None, None
    if not isinstance(run_after, datetime):
        return None, checked_duration("run_after", run_after)
    if run_after.tzinfo is None:
        raise InvalidOption(
            "run_after",
            run_after,
            because="a datetime without a time zone means another moment on every machine",
            instead="Give it one, for example `datetime.now(UTC) + timedelta(hours=1)`",
        )
    return run_after.astimezone(UTC), None


def checked_duration(option: str, value: Duration) -> timedelta:
    """Return `value` as a timedelta, or name the option that it was given for."""
    try:
        return parse_duration(value)
    except InvalidDuration as error:
        raise InvalidOption(
            option,
            value,
            because=error.reason,
            instead="Give seconds as a number, a text such as '1m30s', or a timedelta",
        ) from error


def checked_priority(priority: object) -> int:
    if (
        isinstance(priority, bool)
        or not isinstance(priority, int)
        or not LEAST_PRIORITY <= priority <= MOST_PRIORITY
    ):
        raise InvalidOption(
            "priority",
            priority,
            because="a priority is a whole number of at most 31 bits",
            instead="Higher goes first, and 0 is the default",
        )
    return int(priority)  # of an enum, what drivers make of its members differs


def _optional_name(option: str, value: object) -> str | None:
    return None if value is None else checked_name(option, value)


def checked_name(option: str, value: object) -> str:
    """Return `value` if it can name something in the database and on a screen."""
    if not isinstance(value, str):
        raise InvalidOption(option, value, because="it must be a str", instead="Use str(…)")
    if not value or len(value) > LONGEST_NAME:
        raise InvalidOption(
            option,
            value,
            because=f"it must have between 1 and {LONGEST_NAME} characters",
            instead="Shorten it, or hash what is long",
        )
    if not value.isprintable():
        raise InvalidOption(
            option,
            value,
            because="it has characters that cannot be printed",
            instead="Keep to letters, digits and signs",
        )
    return str.__str__(value)  # the text itself: that of an enum may call itself otherwise


def checked_requests(requests: Iterable[Request[Any]]) -> list[Request[Any]]:
    """Return them as a list, or name the place of what is no request."""
    if isinstance(requests, Request) or not isinstance(requests, Iterable):
        raise InvalidOption(
            "requests",
            requests,
            because="it is no list of requests",
            instead="Write app.enqueue_many([task.request(…), …])",
        )
    checked = list(requests)
    for place, request in enumerate(checked):
        if not isinstance(request, Request):
            raise InvalidOption(
                f"requests[{place}]",
                request,
                because="it is no request",
                instead="Make each with task.request(…)",
            )
    return checked


def checked_limit(limit: object) -> int:
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise InvalidOption(
            "limit",
            limit,
            because="it must be a whole number, at least 1",
            instead="Leave it out for the newest 100",
        )
    return limit


def checked_state(state: str) -> State:
    try:
        return State(state)
    except ValueError:
        raise InvalidOption(
            "state",
            state,
            because="there is no such state",
            instead=f"There are {', '.join(State)}",
        ) from None


def checked_text(option: str, value: str | None) -> str | None:
    """Return `value` if both databases can be asked about it."""
    try:
        if value is None or b"\0" not in value.encode():
            return value
        because = "no database takes the character NUL"
    except UnicodeEncodeError:
        because = "it holds bytes that are no text in UTF-8"
    raise InvalidOption(option, value, because=because, instead="Leave those characters out")
