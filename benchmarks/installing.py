"""The other systems, each in a virtual environment of its own, made once and kept in a cache."""

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PINNED = Path(__file__).with_name("peers.toml")
PATIENCE = 600


@dataclass(frozen=True)
class Installed:
    """How a system's player is started."""

    program: tuple[str, ...]
    home: Path
    versions: tuple[str, ...]


@dataclass(frozen=True)
class Missing:
    """Why a system is not part of this run."""

    because: str


def cache() -> Path:
    above = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(above) / "penstock-benchmarks"


def install(name: str, say: Callable[[str], None]) -> Installed | Missing:
    """Return where the pinned version of `name` is; install it if it is not there yet."""
    pinned = tomllib.loads(PINNED.read_text(encoding="utf-8"))[name]
    if "node" in pinned:
        return _install_with_npm(cache() / name, pinned["node"], say)
    return _install_with_pip(cache() / name, pinned["packages"], say)


def _install_with_pip(
    home: Path, packages: list[str], say: Callable[[str], None]
) -> Installed | Missing:
    python = home / "bin" / "python"
    found = Installed((str(python),), home, tuple(packages))
    if _is_there(home, packages):
        return found
    say(f"installing {' '.join(packages)} into {home}")
    shutil.rmtree(home, ignore_errors=True)
    for command in (
        [sys.executable, "-m", "venv", str(home)],
        [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages],
    ):
        if refusal := _refusal(command):
            return refusal
    _note(home, packages)
    return found


def _install_with_npm(
    home: Path, packages: list[str], say: Callable[[str], None]
) -> Installed | Missing:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        return Missing("there is no node and npm on this machine")
    if not _is_there(home, packages):
        say(f"installing {' '.join(packages)} into {home}")
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        refusal = _refusal([npm, "install", "--silent", "--prefix", str(home), *packages])
        if refusal:
            return refusal
        _note(home, packages)
    return Installed((node,), home, tuple(packages))


def _refusal(command: list[str]) -> Missing | None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=PATIENCE
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Missing(str(error))
    if done.returncode == 0:
        return None
    last = (done.stderr.strip() or done.stdout.strip()).rpartition("\n")[2]
    return Missing(f"{Path(command[0]).name} could not install it: {last}")


def _stamp(home: Path) -> Path:
    return home / "installed"


def _is_there(home: Path, packages: list[str]) -> bool:
    stamp = _stamp(home)
    return stamp.exists() and stamp.read_text(encoding="utf-8").split() == packages


def _note(home: Path, packages: list[str]) -> None:
    _stamp(home).write_text("\n".join(packages), encoding="utf-8")
