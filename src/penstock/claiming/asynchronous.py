"""`aclaim`: the same claim on SQLAlchemy's asynchronous engines, connections and sessions.

The claim itself is the synchronous one. SQLAlchemy runs it beside the event loop's stack and hands
each wait of the driver to the loop, so that nothing blocks and no thread is needed.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from sqlalchemy import Connection, Engine, Row, Table
from sqlalchemy.orm import Session

from penstock.claiming.claims import claim
from penstock.claiming.errors import ACCEPTED_ASYNC, BindRefused
from penstock.claiming.paths import Explanation, PathName
from penstock.claiming.request import Order, Where

if TYPE_CHECKING:
    # Importing it needs greenlet, which programs without asyncio need not have.
    from sqlalchemy.ext.asyncio import (
        AsyncConnection,
        AsyncEngine,
        AsyncSession,
        async_scoped_session,
    )

    AsyncBind = AsyncEngine | AsyncConnection | AsyncSession | async_scoped_session[Any]

T = TypeVar("T")
R = TypeVar("R")


class AsyncClaim:
    """The type of `aclaim`, a coroutine function with one attribute."""

    @overload
    async def __call__(
        self,
        bind: "AsyncBind",
        table: Table,
        *,
        where: Where,
        values: Mapping[Any, Any],
        limit: int,
        order_by: Order | Sequence[Order] | None = None,
        path: PathName | None = None,
    ) -> list[Row[Any]]: ...

    @overload
    async def __call__(
        self,
        bind: "AsyncBind",
        table: type[T],
        *,
        where: Where,
        values: Mapping[Any, Any],
        limit: int,
        order_by: Order | Sequence[Order] | None = None,
        path: PathName | None = None,
    ) -> list[T]: ...

    async def __call__(
        self,
        bind: "AsyncBind",
        table: Any,
        *,
        where: Where,
        values: Mapping[Any, Any],
        limit: int,
        order_by: Order | Sequence[Order] | None = None,
        path: PathName | None = None,
    ) -> list[Any]:
        """Claim as `claim` does, with the same promises and the same errors.

        A call that is cancelled before its commit has claimed nothing.
        """

        def claimed(reached: Engine | Connection | Session) -> list[Any]:
            found: list[Any] = claim(
                reached,
                table,
                where=where,
                values=values,
                limit=limit,
                order_by=order_by,
                path=path,
            )
            return found

        return await _beside_the_loop(bind, claimed)

    async def explain(self, bind: "AsyncBind", *, path: PathName | None = None) -> Explanation:
        """Say which path a claim on `bind` takes, and why, as `claim.explain` does."""
        return await _beside_the_loop(bind, lambda reached: claim.explain(reached, path=path))


aclaim = AsyncClaim()


async def _beside_the_loop(
    bind: object, function: Callable[[Engine | Connection | Session], R]
) -> R:
    if isinstance(bind, Engine | Connection | Session):
        next_step = "`claim(…)` takes it, without `await`."
        raise BindRefused(bind, because="it is synchronous", next_step=next_step)
    from sqlalchemy.ext.asyncio import (  # noqa: PLC0415 - see above
        AsyncConnection,
        AsyncEngine,
        AsyncSession,
        async_scoped_session,
    )

    if isinstance(bind, async_scoped_session):
        bind = bind()
    if isinstance(bind, AsyncSession):
        return await bind.run_sync(function)
    if isinstance(bind, AsyncConnection):
        if bind.sync_connection is None:
            next_step = "Enter it first: `async with engine.connect() as connection:`."
            raise BindRefused(bind, because="it is not connected", next_step=next_step)
        return await bind.run_sync(function)
    if isinstance(bind, AsyncEngine):
        engine = bind.sync_engine
        # An empty session lends nothing but its way of running synchronous code.
        async with AsyncSession() as runner:
            return await runner.run_sync(lambda _: function(engine))
    raise BindRefused(bind, next_step=f"Pass {ACCEPTED_ASYNC}.")
