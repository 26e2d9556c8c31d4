"""Waiting without a slot: every order of what can happen meanwhile ends in the right state."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from itertools import permutations

import pytest

from penstock import App, AsyncTaskHandle, DeferTimeout, Interrupted, LeaseLost, TaskHandle
from penstock.engine.deferrals import Check, GiveUpSlot, Next, Story, TakeSlot, Wait, deferral
from tests.support.deferring import Happening, World, install

EVERY = 10.0


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def begun(
    clock: Clock, *, timeout: timedelta | None = None, ending: bool = False
) -> tuple[Story, Next]:
    story = deferral(
        every=timedelta(seconds=EVERY), timeout=timeout, monotonic=clock, ending=lambda: ending
    )
    return story, next(story)


def end_of(story: Story, told: bool | None) -> bool:
    try:
        story.send(told)
    except StopIteration:
        return True
    return False


# --- the story by itself ----------------------------------------------------------------


def test_what_is_true_at_once_costs_no_slot(clock: Clock) -> None:
    story, first = begun(clock)

    assert first == Check()
    assert end_of(story, told=True)


def test_it_is_checked_at_once_and_then_at_each_interval(clock: Clock) -> None:
    story, _ = begun(clock)

    assert story.send(False) == GiveUpSlot()
    assert story.send(None) == Wait(EVERY)
    for _ in range(3):
        assert story.send(None) == Check()
        assert story.send(False) == Wait(EVERY)
    assert story.send(None) == Check()
    assert story.send(True) == TakeSlot()
    assert end_of(story, told=None)


def test_the_last_wait_ends_with_the_timeout_and_a_last_check(clock: Clock) -> None:
    story, _ = begun(clock, timeout=timedelta(seconds=EVERY + 4))
    story.send(False)
    assert story.send(None) == Wait(EVERY)
    clock.now += EVERY
    story.send(None)

    assert story.send(False) == Wait(4)
    clock.now += 4
    assert story.send(None) == Check()
    assert story.send(False) == TakeSlot()
    with pytest.raises(DeferTimeout, match="within 14s"):
        story.send(None)


def test_what_comes_true_with_the_last_check_is_in_time(clock: Clock) -> None:
    story, _ = begun(clock, timeout=timedelta(seconds=4))
    story.send(False)
    story.send(None)
    clock.now += 4
    story.send(None)

    assert story.send(True) == TakeSlot()
    assert end_of(story, told=None)


@pytest.mark.parametrize("error", [ValueError("broken"), asyncio.CancelledError()])
def test_whatever_stops_the_waiting_of_a_task_that_goes_on_gives_it_a_slot_first(
    clock: Clock, error: BaseException
) -> None:
    story, _ = begun(clock)
    story.send(False)
    story.send(None)

    assert story.throw(error) == TakeSlot()
    with pytest.raises(type(error)):
        story.send(None)


@pytest.mark.parametrize("error", [Interrupted(), LeaseLost("id", doing="wait"), KeyError("late")])
def test_a_task_that_is_to_end_gets_no_slot_any_more(clock: Clock, error: BaseException) -> None:
    story, _ = begun(clock, ending=True)
    story.send(False)
    story.send(None)

    with pytest.raises(type(error)):
        story.throw(error)


def test_an_error_of_the_first_check_leaves_the_slot_where_it_is(clock: Clock) -> None:
    story, _ = begun(clock)

    with pytest.raises(ValueError, match="broken"):
        story.throw(ValueError("broken"))


def test_a_story_that_nobody_tells_to_its_end_is_forgotten_quietly(clock: Clock) -> None:
    story, _ = begun(clock)
    story.send(False)
    story.send(None)

    story.close()


# --- in a worker ------------------------------------------------------------------------


@pytest.fixture
def app() -> Iterator[App]:
    app = App("sqlite:///:memory:", migrate=True)
    yield app
    app.close()


def wait_in(
    app: App,
    monkeypatch: pytest.MonkeyPatch,
    happenings: list[Happening],
    *,
    colour: str,
    timeout: float | None,
) -> World:
    """Run a task that defers while all this happens; return the world as it is then."""
    world = World(app, happenings)
    install(world, monkeypatch)

    def note_end() -> None:
        world.held_at_the_end = world.attempt.slot is not None and world.attempt.slot.held

    if colour == "def":

        @app.task(retry=None)
        def wait(handle: TaskHandle) -> None:
            try:
                handle.defer_until(world.ask, every=EVERY, timeout=timeout, reason="the printer")
            finally:
                note_end()

        world.run(wait)
    else:

        @app.task(retry=None, name="wait")
        async def await_(handle: AsyncTaskHandle) -> None:
            try:
                await handle.defer_until(
                    world.ask, every=EVERY, timeout=timeout, reason="the printer"
                )
            finally:
                note_end()

        world.arun(await_)
    return world


def ended_well(world: World) -> None:
    """Nothing is left behind: not a slot, not an attempt."""
    assert world.attempt.ended
    assert world.runner.slots.free + len(world.rivals) == world.runner.slots.size
    assert not world.runner.running


def ended_as_expected(world: World, order: tuple[str, ...]) -> None:
    told, held, lost = expected_end(order)
    # That somebody asked is told when it happens; this is about what came of it.
    history = [one for one in world.history() if one != "cancel_requested"]
    assert history[-len(told) :] == told
    assert world.held_at_the_end is held
    assert world.settler.refused == lost
    ended_well(world)


both_colours = pytest.mark.parametrize("colour", ["def", "async def"])


def expected_end(order: tuple[str, ...]) -> tuple[list[str], bool, bool]:
    """The end of the history, whether a slot is held then, and whether the lease was lost.

    A cancel request and a shutdown end the waiting at once; the rest is noticed when it ends.
    What has been recovered is nobody's: a cancel request ends it there, and not here.
    """
    told, true, lost = ["deferred"], False, False
    for what in order:
        match what:
            case "true":
                true = True
            case "lost":
                lost = True
                told.append("recovered")
            case "cancel":
                told.append("cancelled")
                if not lost:
                    break
            case "shutdown":
                return told if lost else [*told, "released"], False, lost
            case "slot":
                return told if lost else [*told, "resumed", "completed"], True, lost
            case _ if lost:  # the timeout
                break
            case _:
                return [*told, "resumed", "completed" if true else "failed"], True, lost
    return told, False, lost


@both_colours
@pytest.mark.parametrize(
    "order",
    list(permutations(["true", "cancel", "shutdown", "lost", "timeout"])),
    ids=" then ".join,
)
def test_every_order_of_events_during_a_deferral_ends_in_the_right_state(
    app: App, monkeypatch: pytest.MonkeyPatch, order: tuple[str, ...], colour: str
) -> None:
    times = {what: EVERY + 1.5 * (n + 1) for n, what in enumerate(order)}
    timeout = times.pop("timeout")

    world = wait_in(
        app,
        monkeypatch,
        [(at, what) for what, at in times.items()],
        colour=colour,
        timeout=timeout,
    )

    ended_as_expected(world, order)


@both_colours
@pytest.mark.parametrize(
    "order", list(permutations(["slot", "cancel", "shutdown", "lost"])), ids=" then ".join
)
def test_every_order_of_events_while_it_waits_for_a_slot_ends_in_the_right_state(
    app: App, monkeypatch: pytest.MonkeyPatch, order: tuple[str, ...], colour: str
) -> None:
    happenings = [(1.0, "rival"), (EVERY - 1, "true")] + [
        (EVERY + 1.0 + n, what) for n, what in enumerate(order)
    ]

    world = wait_in(app, monkeypatch, happenings, colour=colour, timeout=None)

    ended_as_expected(world, order)


@both_colours
def test_a_deferral_is_told_with_its_reason_and_checked_when_it_should_be(
    app: App, monkeypatch: pytest.MonkeyPatch, colour: str
) -> None:
    world = wait_in(app, monkeypatch, [(25.0, "true")], colour=colour, timeout=None)

    assert world.checked_at == [0.0, 10.0, 20.0, 30.0]
    assert world.history()[2:] == ["claimed", "started", "deferred", "resumed", "completed"]
    (deferred,) = [
        event for event in app.store.history(world.attempt.id) if event.type == "task.deferred"
    ]
    assert deferred.data == {"reason": "the printer"}


@both_colours
def test_a_second_deferral_waits_as_long_as_the_first(
    app: App, monkeypatch: pytest.MonkeyPatch, colour: str
) -> None:
    world = World(app, [(15.0, "true"), (45.0, "true")])
    install(world, monkeypatch)

    def condition() -> bool:
        if world.ask():
            world.condition = False
            return True
        return False

    if colour == "def":

        @app.task
        def wait(handle: TaskHandle) -> None:
            handle.defer_until(condition, every=EVERY)
            handle.defer_until(condition, every=EVERY)

        world.run(wait)
    else:

        @app.task(name="wait")
        async def await_(handle: AsyncTaskHandle) -> None:
            await handle.defer_until(condition, every=EVERY)
            await handle.defer_until(condition, every=EVERY)

        world.arun(await_)

    assert world.checked_at == [0, 10, 20, 20, 30, 40, 50]
    assert world.history()[-5:] == ["deferred", "resumed", "deferred", "resumed", "completed"]


@both_colours
def test_a_task_that_begins_to_wait_while_its_worker_stops_is_given_back_at_once(
    app: App, monkeypatch: pytest.MonkeyPatch, colour: str
) -> None:
    world = World(app, [])
    install(world, monkeypatch)
    world.runner.begin_nothing_more()

    if colour == "def":

        @app.task
        def wait(handle: TaskHandle) -> None:
            world.runner.end_deferrals()
            handle.defer_until(world.ask, every=EVERY)

        world.run(wait)
    else:

        @app.task(name="wait")
        async def await_(handle: AsyncTaskHandle) -> None:
            world.runner.end_deferrals()
            await handle.defer_until(world.ask, every=EVERY)

        world.arun(await_)

    assert world.now == 0.0
    assert world.history()[-2:] == ["deferred", "released"]
    ended_well(world)
