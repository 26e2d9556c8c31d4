"""A worker whose calendar is wrong: whatever asks its process for the time gets another one.

The stopwatch stays right, as it does on a machine whose clock somebody has set wrongly. Run as a
program, it does what `tests.support.workers` does.
"""

import datetime as dt
import os
import runpy
import time

OFFSET = "PENSTOCK_TEST_CLOCK_OFFSET"

_offset = float(os.environ[OFFSET])
_right_time, _right_time_ns, _right_datetime = time.time, time.time_ns, dt.datetime


class _Kind(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _right_datetime)  # those that drivers make, too


class _WrongDatetime(dt.datetime, metaclass=_Kind):
    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> dt.datetime:  # type: ignore[override]
        return _right_datetime.now(tz) + dt.timedelta(seconds=_offset)


# Before anything of ours is imported, because it takes these by name.
vars(time)["time"] = lambda: _right_time() + _offset
vars(time)["time_ns"] = lambda: _right_time_ns() + int(_offset * 1e9)
vars(dt)["datetime"] = _WrongDatetime

if __name__ == "__main__":
    runpy.run_module("tests.support.workers", run_name="__main__")
