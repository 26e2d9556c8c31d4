"""mypy and pyright agree about what users write: nothing in the right samples, every mark in the
wrong ones.

The samples are checked as a user's would be, in a directory of their own against the installed
package: once with the drivers there, and the core ones once more in an environment in which no
package is installed at all. Driver types that are missing become `Any`, and signatures that lean on
them then accept everything.
"""

import json
import re
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

import penstock

HERE = Path(__file__).parent
SOURCE = Path(penstock.__file__).parents[1]
PROGRAMS = Path(sys.executable).parent

CORE = ("right.py", "right_workflows.py", "wrong.py", "wrong_workflows.py")
WITH_DRIVERS = (
    *CORE,
    "right_asyncpg.py",
    "right_psycopg.py",
    "right_sqlalchemy.py",
    "wrong_drivers.py",
)
OLDEST_PYTHON = "3.11"
MARK = "# error"
SILENCER = "# mypy: ignore-errors"

Place = tuple[str, int]  # the name of a sample, and a line of it
Checker = Callable[[Path, Path], set[Place]]


def mypy(samples: Path, python: Path) -> set[Place]:
    """The lines in which `mypy --strict` finds an error, with the packages that `python` has."""
    config = samples / "mypy.ini"
    config.write_text(f"[mypy]\nstrict = true\nmypy_path = {SOURCE}\n")
    output = _output_of(
        str(PROGRAMS / "mypy"),
        f"--config-file={config}",
        f"--cache-dir={samples / 'cache'}",
        f"--python-executable={python}",
        f"--python-version={OLDEST_PYTHON}",
        "--no-error-summary",
        "--hide-error-context",
        *(path.name for path in sorted(samples.glob("*.py"))),
        cwd=samples,
    )
    found = re.findall(r"^([^:\n]+):(\d+): error:", output, re.MULTILINE)
    # In an empty environment our own modules miss what they import, and mypy says so.
    return {(name, int(line)) for name, line in found if (samples / name).parent == samples}


def pyright(samples: Path, python: Path) -> set[Place]:
    """The lines in which pyright finds an error, with the packages that `python` has."""
    settings = {
        "include": ["."],
        "extraPaths": [str(SOURCE)],
        "pythonVersion": OLDEST_PYTHON,
        "typeCheckingMode": "standard",
    }
    (samples / "pyrightconfig.json").write_text(json.dumps(settings))
    output = _output_of(
        str(PROGRAMS / "pyright"),
        "--outputjson",
        "--pythonpath",
        str(python),
        "--project",
        str(samples),
        cwd=samples,
    )
    report = json.loads(output)
    assert report["summary"]["filesAnalyzed"] >= len(list(samples.glob("*.py")))
    return {
        (Path(one["file"]).name, one["range"]["start"]["line"] + 1)
        for one in report["generalDiagnostics"]
        if one["severity"] == "error"
    }


def _output_of(*command: str, cwd: Path) -> str:
    finished = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, check=False, timeout=110
    )
    # 1 says that there are errors in the samples; anything else, that the checker failed.
    assert finished.returncode in {0, 1}, finished.stdout + finished.stderr
    return finished.stdout


def copied(names: tuple[str, ...], place: Path) -> set[Place]:
    """Put samples where no setting of this project reaches them; return the marked lines."""
    marked: set[Place] = set()
    for name in names:
        text = (HERE / name).read_text()
        lines = text.splitlines()
        marked |= {(name, n) for n, line in enumerate(lines, 1) if line.endswith(MARK)}
        (place / name).write_text(text.replace(SILENCER, "#", 1))
    return marked


@pytest.fixture(scope="session")
def empty_environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("empty-environment")
    venv.create(place, with_pip=False, symlinks=True)
    return place / "bin" / "python"


both_checkers = pytest.mark.parametrize("check", [mypy, pyright])


@both_checkers
def test_the_marked_lines_are_errors_and_no_others(check: Checker, tmp_path: Path) -> None:
    marked = copied(WITH_DRIVERS, tmp_path)
    assert check(tmp_path, Path(sys.executable)) == marked


@both_checkers
def test_the_answer_is_the_same_without_any_driver(
    check: Checker, tmp_path: Path, empty_environment: Path
) -> None:
    marked = copied(CORE, tmp_path)
    assert check(tmp_path, empty_environment) == marked


def test_there_are_enough_wrong_lines_to_mean_something(tmp_path: Path) -> None:
    assert len(copied(("wrong.py",), tmp_path)) >= 25


@both_checkers
def test_the_empty_environment_really_hides_the_drivers(
    check: Checker, tmp_path: Path, empty_environment: Path
) -> None:
    (tmp_path / "drivers.py").write_text("import sqlalchemy\nimport asyncpg\nimport psycopg\n")
    missing = {("drivers.py", line) for line in (1, 2, 3)}
    assert missing <= check(tmp_path, empty_environment)
