"""What a running task receives as its first parameter, when it asks for it."""

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast, overload

from penstock.engine.awaiting import in_thread, nap, result_of
from penstock.engine.deferrals import Check, GiveUpSlot, Next, TakeSlot, Wait
from penstock.engine.handling import Defer, Desk, Handle, NoDeferralHere, storable
from penstock.engine.remembering import (
    Startable,
    Suspend,
    checked_name,
    checked_step,
    ended_or_suspend,
    result_of_step,
    run_id_in,
)
from penstock.engine.shapes import AsyncConnection, SyncConnection
from penstock.engine.writes import encode_writes
from penstock.errors import StoreUnavailable
from penstock.model.durations import Duration
from penstock.model.outcomes import end_of_run, signal_named
from penstock.model.payloads import decode, encode

if TYPE_CHECKING:
    from concurrent.futures import Future

__all__ = ["AsyncTaskHandle", "Defer", "Desk", "NoDeferralHere", "TaskHandle"]

T = TypeVar("T")
P = ParamSpec("P")


class TaskHandle(Handle):
    """The handle of a task that is a plain `def`."""

    def defer_until(
        self,
        condition: Callable[[], object],
        *,
        every: Duration = 5,
        timeout: Duration | None = None,
        reason: str | None = None,
    ) -> None:
        """Wait until `condition` is true, without a slot; it is checked at once, then `every`.

        Time deferred does not count towards the task's timeout. If the worker dies
        meanwhile, the task begins again from its start.

        Raises:
            DeferTimeout: it did not come true within `timeout`.
        """
        story = self._story(every, timeout, reason)
        told: bool | None = None
        try:
            step = next(story)
            while True:
                try:
                    told = self._tell(step, condition, reason)
                except BaseException as error:  # noqa: BLE001 - the story decides what follows
                    step = story.throw(error)
                else:
                    step = story.send(told)
        except StopIteration:
            return

    def _tell(self, step: Next, condition: Callable[[], object], reason: str | None) -> bool | None:
        match step:
            case Check():
                return bool(condition())
            case GiveUpSlot():
                self._desk.give_up_slot(reason)
            case Wait(seconds):
                self._desk.wait(seconds)
                self._desk.raise_if_ended()
            case TakeSlot():
                self._desk.take_slot()
        return None

    def progress(self, fraction: float, note: str | None = None) -> None:
        """Show how far the task is; written at most once a second."""
        if (progress := self._progress(fraction, note)) is not None:
            self._show(progress)

    def complete(self, result: T, *, connection: SyncConnection) -> T:
        """Complete this task in the connection's transaction: effect and end, or neither.

        Return what this returns. Whether the transaction commits decides; if it does not,
        the attempt has failed.

        Raises:
            LeaseLost: another worker has this task; let the transaction roll back.
        """
        writes = encode_writes(self._context, task=self._claimed.task)
        text = self._desk.completing(result)
        self._desk.store.complete_on(
            connection,
            self._claimed.lease,
            result=text,
            started_at=self._desk.unknown_start(),
            writes=writes,
        )
        return result

    def once(self, name: str, *, connection: SyncConnection) -> bool:
        """True exactly once for this execution and name: in the transaction that commits it."""
        storable("name", name)
        return self._desk.store.once_on(connection, self._claimed.lease, name)

    def step(self, name: str, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the function once for this execution and name, and remember what it returned.

        A later attempt gets the remembered result without a call. What the function did and
        could not say any more, because the worker died, is done again.

        Raises:
            LeaseLost: another worker has this task; its attempt counts, not this one.
        """
        checked_step(name)
        steps = self._recall.steps
        if name in steps:
            if (written := self._recall.under_way.get(name)) is not None:
                self._wait_until_stored(name, written)
            return cast("T", result_of_step(name, function, steps[name]))
        result = function(*args, **kwargs)
        self._wait_until_stored(name, self._remembering(name, encode(result)))
        return result

    def _wait_until_stored(self, name: str, written: "Future[bool]") -> None:
        try:
            held = written.result()
        except StoreUnavailable:
            self._recall.note_answer(name, written)  # we may have heard of it first
            raise
        self._expect_remembered(name, held=held)

    def wait_for(self, *, signal: str, timeout: Duration | None = None) -> Any:  # noqa: ANN401
        """Wait until `app.signal(…)` sends this signal, without a slot and over restarts.

        Returns what was sent with it. The attempt ends here and is not spent; the next one
        begins from the start, so put what must not be done twice into steps.

        Raises:
            WaitTimeout: it did not come in time.
        """
        signal = checked_name("signal", signal)
        signals = self._recall.read().signals
        if signal in signals:
            return decode(signals[signal])
        left, until = self._wait_left(signal, timeout)
        if until is not None:
            name = signal_named(signal)
            self._wait_until_stored(name, self._remembering(name, until))
        raise Suspend(signal_named(signal), left)

    def run(self, workflow: Startable[P], /, *args: P.args, **kwargs: P.kwargs) -> dict[str, Any]:
        """Start a run of the workflow and wait for its results, without a slot and over restarts.

        It is started once for this execution, whatever happens to the attempt, which ends here
        and is not spent; the next one begins from the start, and gets the results.

        Raises:
            WorkflowFailed, WorkflowCancelled: the run ended so.
        """
        step = self._recall.next_run(workflow.name)
        if (stored := self._recall.steps.get(step)) is not None:
            run_id = run_id_in(stored)
            return ended_or_suspend(workflow.get(run_id), run_id)
        new, _ = workflow.new_run(args, dict(kwargs))
        raise Suspend(end_of_run(self._start_child(step, new)))


class AsyncTaskHandle(Handle):
    """The handle of a task that is an `async def`."""

    async def defer_until(
        self,
        condition: Callable[[], object | Awaitable[object]],
        *,
        every: Duration = 5,
        timeout: Duration | None = None,  # noqa: ASYNC109 - of the condition, not of this call
        reason: str | None = None,
    ) -> None:
        """Wait until `condition`, plain or async, is true: as `TaskHandle.defer_until` does."""
        story = self._story(every, timeout, reason)
        told: bool | None = None
        try:
            step = next(story)
            while True:
                try:
                    told = await self._tell(step, condition, reason)
                except BaseException as error:  # noqa: BLE001 - the story decides what follows
                    step = story.throw(error)
                else:
                    step = story.send(told)
        except StopIteration:
            return

    async def _tell(
        self,
        step: Next,
        condition: Callable[[], object | Awaitable[object]],
        reason: str | None,
    ) -> bool | None:
        match step:
            case Check():
                answer = condition()
                return bool(await answer if inspect.isawaitable(answer) else answer)
            case GiveUpSlot():
                await self._desk.agive_up_slot(reason)
            case Wait(seconds):
                await nap(seconds)
                self._desk.raise_if_ended()
            case TakeSlot():
                await self._desk.atake_slot()
        return None

    async def progress(self, fraction: float, note: str | None = None) -> None:
        """Show how far the task is; written at most once a second."""
        if (progress := self._progress(fraction, note)) is not None:
            await in_thread(self._show, progress)

    async def complete(self, result: T, *, connection: AsyncConnection) -> T:
        """Complete this task in the connection's transaction: as `TaskHandle.complete` does."""
        writes = encode_writes(self._context, task=self._claimed.task)
        text = self._desk.completing(result)
        await self._desk.store.acomplete_on(
            connection,
            self._claimed.lease,
            result=text,
            started_at=await in_thread(self._desk.unknown_start),
            writes=writes,
        )
        return result

    async def once(self, name: str, *, connection: AsyncConnection) -> bool:
        """True exactly once for this execution and name: in the transaction that commits it."""
        storable("name", name)
        return await self._desk.store.aonce_on(connection, self._claimed.lease, name)

    @overload
    async def step(
        self, name: str, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T: ...
    @overload
    async def step(
        self, name: str, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T: ...
    async def step(
        self, name: str, function: Callable[P, Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> Any:
        """Call the function, plain or async, once: as `TaskHandle.step` does."""
        checked_step(name)
        steps = await self._read_steps()
        if name in steps:
            if (written := self._recall.under_way.get(name)) is not None:
                self._expect_remembered(name, held=await result_of(written))
            return result_of_step(name, function, steps[name])
        answer = function(*args, **kwargs)
        result = await answer if inspect.isawaitable(answer) else answer
        held = await result_of(self._remembering(name, encode(result)))
        self._expect_remembered(name, held=held)
        return result

    async def wait_for(
        self,
        *,
        signal: str,
        timeout: Duration | None = None,  # noqa: ASYNC109 - of the signal, not of this call
    ) -> Any:  # noqa: ANN401
        """Wait until `app.signal(…)` sends this signal: as `TaskHandle.wait_for` does."""
        signal = checked_name("signal", signal)
        signals = (await in_thread(self._recall.read)).signals
        if signal in signals:
            return decode(signals[signal])
        left, until = self._wait_left(signal, timeout)
        if until is not None:
            name = signal_named(signal)
            held = await result_of(self._remembering(name, until))
            self._expect_remembered(name, held=held)
        raise Suspend(signal_named(signal), left)

    async def run(
        self, workflow: Startable[P], /, *args: P.args, **kwargs: P.kwargs
    ) -> dict[str, Any]:
        """Start a run of the workflow and wait for its results: as `TaskHandle.run` does."""
        step = self._recall.next_run(workflow.name)
        if (stored := (await self._read_steps()).get(step)) is not None:
            run_id = run_id_in(stored)
            run = await in_thread(workflow.get, run_id)
            return await in_thread(ended_or_suspend, run, run_id)
        new, _ = workflow.new_run(args, dict(kwargs))
        raise Suspend(end_of_run(await in_thread(self._start_child, step, new)))

    async def _read_steps(self) -> dict[str, str]:
        if not self._recall.knows_steps:
            await in_thread(self._recall.read)
        return self._recall.steps
