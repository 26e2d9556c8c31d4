"""The demo: the first thing that a newcomer runs."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.cli.demo import TASKS
from penstock.cli.demo_shop import SLOTS
from tests.e2e.command_line import ESCAPE, is_alive, on_terminal, run, start, wait_until


@pytest.fixture(autouse=True)
def temporary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A directory for temporary files that nobody else uses."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setenv("TMPDIR", str(directory))
    return directory


def test_the_demo_keeps_its_promises_and_leaves_nothing_behind(temporary: Path) -> None:
    began = time.monotonic()
    answer = run("-m", "penstock", "demo")
    took = time.monotonic() - began
    assert answer.status == 0, answer.out + answer.err
    assert took < 40  # it takes less than 10 on a machine that does little else
    assert ESCAPE not in answer.out
    assert answer.err == ""
    assert "committed: 1 order, 1 task" in answer.out
    assert "rolled back: still 1 order, 1 task" in answer.out
    (killed, ran), *_ = re.findall(r"kill -9 (\d+): it was running (\d+) task", answer.out)
    assert 1 <= int(ran) <= 3 * SLOTS
    history = re.findall(r"^ +[\d.]+ s +(task\.\w+)", answer.out, re.MULTILINE)
    assert history[:4] == ["task.created", "task.marked_ready", "task.claimed", "task.started"]
    assert "task.recovered" in history
    assert history[-1] in {"task.completed", "task.failed"}
    assert f"process {killed} was lost, crash 1" in answer.out
    completed, failed = map(int, re.findall(r"(\d+) completed, (\d+) failed", answer.out)[0])
    assert completed + failed == TASKS + 1
    assert f"{ran} task" in re.findall(r".*of the killed worker recovered", answer.out)[0]
    assert list(temporary.iterdir()) == []


def test_a_demo_whose_workers_cannot_start_says_what_they_said(
    temporary: Path,
) -> None:
    """A file that is missing for the workers alone stands in for whatever may be wrong there."""
    code = (
        "import sys\n"
        "from penstock.cli import main\n"
        "from penstock.cli.demo_shop import WORKER_SETTINGS\n"
        "WORKER_SETTINGS['PENSTOCK_CONFIG'] = 'missing.toml'\n"
        "sys.argv[1:] = ['demo']\n"
        "main()\n"
    )
    answer = run("-c", code)
    assert answer.status == 1
    assert "The workers of the demo ended while it waited for the workers to start" in answer.err
    assert "missing.toml: there is no such file" in answer.err
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(
    "numbers",
    [[signal.SIGINT], [signal.SIGTERM], [signal.SIGINT, signal.SIGINT, signal.SIGTERM]],
    ids=["Ctrl-C", "SIGTERM", "again and again"],
)
def test_an_interrupted_demo_stops_its_workers_and_leaves_nothing_behind(
    temporary: Path, numbers: list[signal.Signals]
) -> None:
    demo = start("-u", "-m", "penstock", "demo")
    workers = pids_at_work(demo)
    assert all(is_alive(pid) for pid in workers)
    for number in numbers:
        demo.send_signal(number)
        time.sleep(0.05)
    _, errors = demo.communicate(timeout=20)
    assert demo.returncode == 1
    assert errors == "\nStopped. The workers have ended and nothing is left behind.\n"
    assert not any(is_alive(pid) for pid in workers)
    assert list(temporary.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of this death")
def test_a_killed_demo_takes_its_workers_along() -> None:
    demo = start("-u", "-m", "penstock", "demo")
    workers = pids_at_work(demo)
    demo.kill()
    demo.communicate()
    wait_until(lambda: not any(is_alive(pid) for pid in workers))


def test_a_terminal_shows_a_bar_that_moves() -> None:
    shown = on_terminal(
        "-c",
        "from penstock.cli.demo_display import progress\n"
        "with progress(10) as move:\n"
        "    move(4, 'half [way]')\n"
        "    move(10, 'done')\n",
    )
    assert "10/10" in shown
    assert "━" in shown
    assert ESCAPE in shown


def pids_at_work(demo: "subprocess.Popen[str]") -> list[int]:
    """Read what the demo says until it names its workers."""
    assert demo.stdout is not None
    for line in demo.stdout:
        if found := re.search(r"processes (\d+) and (\d+) are at work", line):
            return [int(pid) for pid in found.groups()]
    raise AssertionError(demo.communicate())
