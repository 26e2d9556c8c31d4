"""Those who wait on a loop for the same length of time wake together, and none of them early."""

import asyncio

import pytest

from penstock.engine.awaiting import LONGEST_GRAIN, nap

LATEST = 1.01


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """For how long naps really sleep, one after the other; they end at once."""
    asked: list[float] = []

    async def sleep(seconds: float) -> None:
        asked.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return asked


@pytest.mark.parametrize("seconds", [0.001, 0.3, 5.0, 3600.0])
def test_a_nap_is_never_shorter_than_asked_and_hardly_longer(
    asked: list[float], seconds: float
) -> None:
    async def sleep_at_odd_moments() -> None:
        for _ in range(100):
            await nap(seconds)

    asyncio.run(sleep_at_odd_moments())
    assert min(asked) > seconds - 1e-6  # as exactly as a float can say it
    assert max(asked) < seconds + min(seconds * (LATEST - 1), LONGEST_GRAIN) + 1e-6


def test_naps_that_begin_at_different_moments_end_at_the_same_one(asked: list[float]) -> None:
    ends: list[float] = []

    async def sleep_at_odd_moments() -> None:
        loop = asyncio.get_running_loop()
        for number in range(1000):
            moment = 1000.0 + number / 1000
            loop.time = lambda moment=moment: moment  # type: ignore[method-assign,misc]
            await nap(5.0)
            ends.append(round(moment + asked[-1], 6))
        del loop.time

    asyncio.run(sleep_at_odd_moments())
    assert len(set(ends)) <= 1 + 1.0 / LONGEST_GRAIN


def test_nobody_sleeps_for_a_negative_time(asked: list[float]) -> None:
    asyncio.run(nap(0.0))
    assert asked == [0.0]
