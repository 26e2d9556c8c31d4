"""Commands that are told to stop undo what they have begun, whenever they are told."""

import gc
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from penstock.cli.stopping import told_to_stop, undisturbed

ASKED = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.mark.parametrize("number", ASKED)
def test_whoever_asks_ends_it_as_ctrl_c_does(number: signal.Signals) -> None:
    before = [signal.getsignal(one) for one in ASKED]
    with pytest.raises(KeyboardInterrupt), told_to_stop():
        signal.raise_signal(number)
    assert [signal.getsignal(one) for one in ASKED] == before


def test_what_has_begun_to_be_undone_is_not_interrupted_by_the_next_ones() -> None:
    undone: list[signal.Signals] = []

    @contextmanager
    def undoing() -> Iterator[None]:
        try:
            yield
        finally:
            for number in ASKED:
                signal.raise_signal(number)
                undone.append(number)

    with pytest.raises(KeyboardInterrupt), told_to_stop(), undoing():
        signal.raise_signal(signal.SIGTERM)
    assert undone == ASKED


def test_whoever_asks_again_much_later_is_heard_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    heard = []
    with told_to_stop():
        for now in (100.0, 101.0, 109.0, 111.0, 111.5, 112.0):
            try:
                signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt:
                heard.append(now)
    assert heard == [100.0, 111.0, 111.5, 112.0]


def test_one_that_is_not_wanted_stays_unheard() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with told_to_stop() as check:
            signal.raise_signal(signal.SIGHUP)
            check()
            heard = signal.getsignal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert heard is signal.SIG_IGN


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_one_that_comes_while_something_is_finalized_is_heard_at_the_next_look() -> None:
    class Finalized:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGTERM)

    with told_to_stop() as check:
        check()
        Finalized()
        gc.collect()
        with pytest.raises(KeyboardInterrupt):
            check()


def test_cleaning_up_hears_none_of_them() -> None:
    with told_to_stop() as check:
        heard = signal.getsignal(signal.SIGTERM)
        with undisturbed():
            for number in ASKED:
                signal.raise_signal(number)
        check()
        assert signal.getsignal(signal.SIGTERM) is heard
