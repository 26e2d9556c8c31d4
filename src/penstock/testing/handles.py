"""An async handle whose waiting is somebody else's: a test's, whose clock does the waiting."""

from collections.abc import Awaitable, Callable

from penstock.engine.deferrals import Next, Wait
from penstock.engine.handle import AsyncTaskHandle, Desk
from penstock.model.context import Context
from penstock.model.executions import Claimed


class WaitingHandle(AsyncTaskHandle):
    """As an AsyncTaskHandle, but for `wait`, which lets the time of a deferral pass."""

    def __init__(
        self,
        claimed: Claimed,
        desk: Desk,
        wait: Callable[[float], Awaitable[None]],
        context: Context | None = None,
    ) -> None:
        super().__init__(claimed, desk, context)
        self._wait = wait

    async def _tell(
        self,
        step: Next,
        condition: Callable[[], object | Awaitable[object]],
        reason: str | None,
    ) -> bool | None:
        if not isinstance(step, Wait):
            return await super()._tell(step, condition, reason)
        await self._wait(step.seconds)
        self._desk.raise_if_ended()
        return None
