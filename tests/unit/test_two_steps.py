"""`make test` feels like one run: what each step is asked for, and what comes of both."""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import tests.__main__ as runner
from tests.support.postgres import OWN_SERVER
from tests.support.telling import TOLD_IN

Asked = list[list[str]]


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[Sequence[str], Sequence[int]], tuple[int, Asked]]:
    """Run with these arguments where the steps would end like this; also what they were asked."""
    monkeypatch.delenv(OWN_SERVER, raising=False)
    monkeypatch.setattr(runner, "_cores", lambda: 2)

    def run(arguments: Sequence[str], statuses: Sequence[int]) -> tuple[int, Asked]:
        left, asked = list(statuses), []

        def pytest_(arguments: Sequence[str], *, told_in: Path | None = None) -> int:
            asked.append(list(arguments))
            if told_in is not None:
                told = {"counted": "3 passed, 1 skipped", "lines": ["SKIPPED [1] a.py: no cat"]}
                told_in.write_text(json.dumps(told))
            return left.pop(0)

        monkeypatch.setattr(runner, "_pytest", pytest_)
        return runner.main(arguments), asked

    return run


@pytest.mark.parametrize(
    ("arguments", "statuses", "expected"),
    [
        ([], [0, 0], 0),
        ([], [0, 1], 1),
        ([], [1, 0], 1),  # the second step runs all the same
        (["-x"], [1], 1),
        (["-qx"], [1], 1),
        (["--maxfail=3"], [1], 1),
        (["-x"], [0, 1], 1),
        (["-k", "claim"], [5, 0], 0),  # all of what was asked for is in the other step
        (["-k", "claim"], [0, 5], 0),
        (["-k", "claim"], [5, 1], 1),
        (["-k", "claim"], [1, 5], 1),
        (["-k", "nothing"], [5, 5], 5),
        ([], [2], 2),  # interrupted
        (["--no-such-option"], [4], 4),
    ],
)
def test_the_exit_status_is_that_of_all_that_was_to_run(
    run: Callable[..., tuple[int, Asked]],
    arguments: list[str],
    statuses: list[int],
    expected: int,
) -> None:
    status, asked = run(arguments, statuses)
    assert status == expected
    assert len(asked) == len(statuses)


def test_both_steps_get_the_arguments_and_what_the_first_had_is_told_at_the_end(
    run: Callable[..., tuple[int, Asked]], capsys: pytest.CaptureFixture[str]
) -> None:
    _, (together, alone) = run(["-k", "claim"], [0, 0])
    assert together[:4] == ["-k", "claim", "-n", "2"]
    assert together[-3:] == ["-p", "tests.support.parts", "--part=together"]
    assert alone == ["-k", "claim", "-p", "tests.support.parts", "--part=alone"]
    told = capsys.readouterr().out
    assert "Step 1 of 2 had: 3 passed, 1 skipped.\nSKIPPED [1] a.py: no cat\n" in told


TESTS = {
    "unit/test_short.py": "def test_short(): ...\n",
    "docs/test_long.py": """\
import pytest

@pytest.mark.alone
def test_alone(): ...

@pytest.mark.performance
def test_measured(): ...

def test_long(): ...
""",
}


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ("together", ["test_long", "test_short"]),
        ("alone", ["test_alone", "test_measured"]),
    ],
)
def test_every_test_is_in_one_of_the_steps_and_long_ones_come_first(
    tmp_path: Path, part: str, expected: list[str]
) -> None:
    for name, text in TESTS.items():
        file = tmp_path / "tests" / name
        file.parent.mkdir(parents=True)
        file.write_text(text, "utf-8")
    command = [sys.executable, "-m", "pytest", "-c", str(runner.ROOT / "pyproject.toml")]
    command += [f"--rootdir={tmp_path}", "-p", "no:cacheprovider", "--co", "-q"]
    command += [*runner._part(part), str(tmp_path / "tests")]
    said = subprocess.run(command, cwd=runner.ROOT, check=True, capture_output=True, text=True)
    found = [line.rpartition("::")[2] for line in said.stdout.splitlines() if "::" in line]
    assert found == expected


UNSTEADY = """\
import pytest

times = []

@pytest.mark.flaky(reruns=2)
def test_unsteady():
    times.append(1)
    assert len(times) == 2

def test_broken():
    assert False
"""


def test_a_test_that_was_repeated_is_named_like_one_that_failed(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(UNSTEADY, "utf-8")
    told_in = tmp_path / "told"
    command = [sys.executable, "-m", "pytest", "-c", str(runner.ROOT / "pyproject.toml")]
    command += [f"--rootdir={tmp_path}", "-p", "no:cacheprovider", "-p", "tests.support.telling"]
    command += [f"{TOLD_IN}={told_in}", str(tmp_path)]
    subprocess.run(command, cwd=runner.ROOT, check=False, capture_output=True)
    told = json.loads(told_in.read_text("utf-8"))
    assert told["counted"] == "1 failed, 1 passed, 1 rerun"
    assert told["lines"] == [
        "FAILED test_some.py::test_broken",
        "RERUN test_some.py::test_unsteady",
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--lf"],
        ["--pdb"],
        ["-s"],
        ["-vs"],
        ["-n4"],
        ["--co", "-q"],
        ["tests/unit/test_ids.py::one"],
    ],
    ids=" ".join,
)
def test_what_only_one_run_can_answer_is_one_run(
    run: Callable[..., tuple[int, Asked]], arguments: list[str]
) -> None:
    assert run(arguments, [0]) == (0, [arguments])


def test_one_core_or_a_server_that_others_use_is_not_crowded(
    run: Callable[..., tuple[int, Asked]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(runner, "_cores", lambda: 1)
        assert run(["-q"], [0]) == (0, [["-q"]])
    monkeypatch.setenv(OWN_SERVER, "postgresql://localhost/ours")
    assert run(["-q"], [0]) == (0, [["-q"]])
