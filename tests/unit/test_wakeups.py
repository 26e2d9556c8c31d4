"""Hints that arrive together."""

from penstock.model.wakeups import ANYTHING, NOTHING, WakeUp


def test_hints_add_up() -> None:
    both = WakeUp(ready=True).and_also(WakeUp(cancel=True))
    assert both == WakeUp(ready=True, cancel=True)
    assert both.and_also(NOTHING) == both
    assert both.and_also(WakeUp(ready=True)) == both
    assert both.and_also(ANYTHING) == ANYTHING
