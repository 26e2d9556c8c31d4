"""Which process this is: known without asking the kernel at the end of every task."""

import os

_pid = os.getpid()


def current_pid() -> int:
    return _pid


def _look_again() -> None:
    global _pid  # noqa: PLW0603 - there is one process, and it has one id
    _pid = os.getpid()


os.register_at_fork(after_in_child=_look_again)
