"""The wheel, installed where nothing else is, is the whole product."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
NOT_IN_A_FRESH_CLONE = shutil.ignore_patterns(".*", "__pycache__", "build", "dist")
CORE = {"click", "msgspec", "rich"}


def run(*command: str | Path, cwd: Path) -> str:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTHON")
    }
    finished = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, f"{command} failed:\n{finished.stdout}{finished.stderr}"
    return finished.stdout


@dataclass(frozen=True)
class Installation:
    """A virtual environment that holds the wheel and what it declares to need."""

    home: Path

    @property
    def programs(self) -> Path:
        return self.home / "bin"

    @property
    def packages(self) -> Path:
        (found,) = self.home.glob("lib/python3*/site-packages")
        return found

    def python(self, *arguments: str) -> str:
        return run(self.programs / "python", "-I", *arguments, cwd=self.home)

    def command(self, *arguments: str) -> str:
        return run(self.programs / "penstock", *arguments, cwd=self.home)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # From a copy: a build leaves nothing behind in the checkout, and can use nothing from it.
    tree = tmp_path_factory.mktemp("tree") / "penstock"
    shutil.copytree(ROOT, tree, ignore=NOT_IN_A_FRESH_CLONE)
    # hatchling leaves out what git ignores, so it has to see the same list as in the checkout.
    shutil.copy(ROOT / ".gitignore", tree)
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", cwd=tree)
    (built,) = (tree / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installation(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    installed = Installation(tmp_path_factory.mktemp("clean") / "environment")
    run(sys.executable, "-m", "venv", "--without-pip", installed.home, cwd=wheel.parent)
    # The dependencies are copied from the running environment, so that no index is needed.
    for needed in closure(CORE):
        copy_into(installed.packages, needed)
    run(*pip(installed), "install", "--no-index", "--no-deps", wheel, cwd=wheel.parent)
    return installed


def pip(installed: Installation) -> tuple[str | Path, ...]:
    return (sys.executable, "-m", "pip", "--python", installed.programs / "python")


def closure(names: set[str]) -> Iterator[Distribution]:
    waiting, seen = list(names), set(names)
    while waiting:
        found = distribution(waiting.pop())
        yield found
        for line in found.requires or []:
            needs = Requirement(line)
            wanted = needs.marker is None or needs.marker.evaluate({"extra": ""})
            if wanted and needs.name not in seen:
                seen.add(needs.name)
                waiting.append(needs.name)


def copy_into(packages: Path, needed: Distribution) -> None:
    for file in needed.files or []:
        if ".." in file.parts or "__pycache__" in file.parts:
            continue
        target = packages / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(str(file.locate()), target)


def test_the_core_declares_three_dependencies(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = archive.read(name).decode()
    lines = re.findall(r"^Requires-Dist: (.+)$", metadata, re.MULTILINE)
    declared = [Requirement(line) for line in lines]
    assert {needs.name for needs in declared if needs.marker is None} == CORE


def test_the_wheel_carries_every_sql_file_and_the_type_marker(wheel: Path) -> None:
    source = ROOT / "src"
    expected = {path.relative_to(source).as_posix() for path in source.rglob("*.sql")}
    assert expected
    with zipfile.ZipFile(wheel) as archive:
        assert expected | {"penstock/py.typed"} <= set(archive.namelist())


def test_what_the_wheel_declares_is_all_that_it_needs(installation: Installation) -> None:
    assert "No broken requirements" in run(*pip(installation), "check", cwd=installation.home)
    installation.python("-c", "import penstock")


def test_the_package_comes_from_the_wheel(installation: Installation) -> None:
    where = installation.python("-c", "import penstock; print(penstock.__file__)").strip()
    assert Path(where).is_relative_to(installation.packages)


def test_the_command_says_the_version_of_the_wheel(wheel: Path, installation: Installation) -> None:
    _, version, *_ = wheel.name.split("-")
    assert version in installation.command("--version")


def test_python_dash_m_is_the_same_command(installation: Installation) -> None:
    as_module = installation.python("-m", "penstock", "--help")
    assert "worker" in as_module
    assert as_module.partition("\n")[2] == installation.command("--help").partition("\n")[2]
