"""What a look at a running system finds: what is well, what may become a problem, what is one."""

from enum import StrEnum

import msgspec

UNREADABLE = "work"
"""The check that fails when what waits and what is old cannot be asked for."""


class Level(StrEnum):
    """How much a finding matters."""

    OK = "ok"
    WARNING = "warning"  # works, and may not for long, or not as well as it could
    PROBLEM = "problem"  # tasks are late, or lost from sight, until somebody does something


class Finding(msgspec.Struct, frozen=True):
    """The answer to one check, and what to do about it; nothing when all is well."""

    check: str
    level: Level
    message: str
    remedy: str = ""


def ok(check: str, message: str, *, hint: str = "") -> Finding:
    return Finding(check, Level.OK, message, hint)


def warning(check: str, message: str, *, remedy: str) -> Finding:
    return Finding(check, Level.WARNING, message, remedy)


def problem(check: str, message: str, *, remedy: str) -> Finding:
    return Finding(check, Level.PROBLEM, message, remedy)
