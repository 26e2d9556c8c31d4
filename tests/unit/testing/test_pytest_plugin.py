"""The pytest plugin, in a run of pytest of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
from penstock import App

app = App("postgresql://a.place.that/does.not.exist")


@app.task(retry=["1m"])
def send(order_id: int) -> str:
    return f"sent {order_id}"
"""

TESTS = """
from orders import send


def test_in_memory(penstock_app):
    execution = send.enqueue(1)
    assert penstock_app.enqueued(send, order_id=1) == [execution]
    penstock_app.run_until_idle()
    assert execution.result() == "sent 1"


def test_each_with_a_database_of_its_own(penstock_app):
    assert penstock_app.enqueued(send) == []
"""


def run_pytest(directory: Path, *, ini: str, code: int) -> str:
    (directory / "orders.py").write_text(PROGRAM)
    (directory / "test_orders.py").write_text(TESTS)
    (directory / "pytest.ini").write_text(f"[pytest]\n{ini}\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    finished = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    assert finished.returncode == code, finished.stdout + finished.stderr
    return finished.stdout


def test_the_fixture_is_the_app_of_the_ini_file_in_the_hands_of_the_test(tmp_path: Path) -> None:
    assert "2 passed" in run_pytest(tmp_path, ini="penstock_app = orders:app", code=0)


@pytest.mark.parametrize(
    ("ini", "because"),
    [
        ("", "The setting `penstock_app` is empty"),
        ("penstock_app = orders", "'orders' does not say where the App is"),
        ("penstock_app = oders:app", "There is no module 'oders'"),
        (
            "penstock_app = orders:send",
            "Module 'orders' has 'send', but that is of type",
        ),
    ],
)
def test_what_leads_to_no_app_says_why_and_what_to_write(
    tmp_path: Path, ini: str, because: str
) -> None:
    told = run_pytest(tmp_path, ini=ini, code=1)
    assert f"NoAppNamed: The fixture `penstock_app` found no App. {because}" in told
