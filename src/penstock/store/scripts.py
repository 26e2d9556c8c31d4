"""What to do on a connection, without saying who does the I/O.

A script yields statements and receives their rows. The same script runs on a plain
connection, on an async one, and inside a store's own transaction: no twins.
"""

from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from penstock.store.sql import Statement

T = TypeVar("T")

Row = tuple[Any, ...]


class Step(NamedTuple):
    """One statement with its parameters."""

    statement: Statement
    parameters: Mapping[str, object]


Script = Generator[Step, list[Row], T]


def run(script: Script[T], execute: Callable[[Step], list[Row]]) -> T:
    try:
        step = next(script)
        while True:
            try:
                rows = execute(step)
            except BaseException as error:  # noqa: BLE001 - the script decides what to undo
                step = script.throw(error)
            else:
                step = script.send(rows)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


async def arun(script: Script[T], execute: Callable[[Step], Awaitable[list[Row]]]) -> T:
    try:
        step = next(script)
        while True:
            try:
                rows = await execute(step)
            except BaseException as error:  # noqa: BLE001 - the script decides what to undo
                step = script.throw(error)
            else:
                step = script.send(rows)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def undone_on_error(statements: Mapping[str, Statement], script: Script[T]) -> Script[T]:
    """Run a script in somebody's transaction so that an error leaves nothing of it behind."""
    yield Step(statements["create_savepoint"], {})
    try:
        result = yield from script
    except GeneratorExit:
        raise
    except BaseException:
        # Without a transaction there is nothing to undo: the error has ended it.
        with suppress(Exception):
            yield Step(statements["create_undo"], {})
            yield Step(statements["create_release"], {})
        raise
    yield Step(statements["create_release"], {})
    return result
