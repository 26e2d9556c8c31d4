"""Proof that a process is gone, for workers that share a machine.

Waiting for a lease to run out is safe everywhere and slow. On the same machine the kernel
knows better: a process is named by the boot, the pid namespace, its pid and its start time,
and no other process can ever have the same four. In doubt it is alive.
"""

import os
from pathlib import Path
from typing import NamedTuple

import msgspec

_STATE = 0  # fields of /proc/PID/stat that follow the command's name
_START_TIME = 19
_GONE_STATES = frozenset("ZX")


class Identity(NamedTuple):
    """One process of one boot of one machine."""

    boot: str
    pid_namespace: str
    pid: int
    start_time: str


def own_identity() -> str:
    """Return this process's identity as text; empty where the system cannot prove anything."""
    identity = _identity_of(os.getpid())
    return "" if identity is None else msgspec.json.encode(identity).decode()


def provably_gone(text: str) -> bool:
    """Return True only if the process ran here, in this boot, and is there no more."""
    if not text:
        return False
    try:
        theirs = Identity(*msgspec.json.decode(text))
    except (msgspec.DecodeError, TypeError):
        return False
    ours = _identity_of(os.getpid())
    if ours is None or (ours.boot, ours.pid_namespace) != (theirs.boot, theirs.pid_namespace):
        return False
    fields = _stat(theirs.pid)
    if fields is None:
        return not Path(f"/proc/{theirs.pid}").exists()
    return fields[_START_TIME] != theirs.start_time or fields[_STATE] in _GONE_STATES


def _identity_of(pid: int) -> Identity | None:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return None
    fields = _stat(pid)
    return None if fields is None else Identity(boot, namespace, pid, fields[_START_TIME])


def _stat(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The command's name stands in parentheses and may itself contain any sign.
    return text.rpartition(")")[2].split()
