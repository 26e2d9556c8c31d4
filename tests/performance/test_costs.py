"""What a task costs from claim to settlement, and what an import brings along: counts, not seconds.

A worker gathers claims and outcomes into batches by itself. How large they get depends on the
machine; the limits here are what a batch of a few tasks would break.
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import App
from tests.performance.counting import Counter
from tests.support.servers import private_server

TASKS = 3_000
RUNS = 300
STEPS = 5

WORKER_PARTS = ("engine.worker", "engine.runner", "engine.processes", "store.postgres")
OTHERS = ("psycopg", "rich", "sqlalchemy", "prometheus_client", "http.server", "multiprocessing")


def app_at(url: str) -> App:
    app = App(url, migrate=True)

    @app.task
    async def nothing(number: int) -> None: ...

    chain = app.workflow("chain")

    def step() -> Callable[[], None]:
        def do_nothing() -> None: ...

        return do_nothing

    previous = chain.task(name="step_0")(step())
    for place in range(1, STEPS):
        previous = chain.task(name=f"step_{place}", after=[previous])(step())
    app.migrate()
    return app


def enqueue_tasks(app: App) -> int:
    nothing = app.tasks["nothing"]
    app.enqueue_many([nothing.request(number) for number in range(TASKS)])
    return TASKS


def start_runs(app: App) -> int:
    for _ in range(RUNS):
        app.workflows["chain"].start()
    return RUNS * STEPS


Fill = Callable[[App], int]
# The tasks of a run wait for each other, so that fewer of them can be written together.
fills = pytest.mark.parametrize(("fill", "most"), [(enqueue_tasks, 0.1), (start_runs, 0.3)])


def test_an_execution_on_sqlite_is_one_statement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = Counter()
    counter.watch(monkeypatch)
    app = app_at(f"sqlite:///{tmp_path / 'costs.db'}")
    nothing = app.tasks["nothing"]
    nothing.enqueue(1)
    counter.forget()

    nothing.enqueue(2)

    # For each statement of a trigger SQLite tells the one that set it off once more, or a comment.
    sent = {one for one in counter.statements if not one.startswith("--")}
    app.close()
    assert len(sent) == 1


@fills
def test_a_worker_on_sqlite_commits_once_for_many_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fill: Fill, most: float
) -> None:
    counter = Counter()
    counter.watch(monkeypatch)
    app = app_at(f"sqlite:///{tmp_path / 'costs.db'}")
    tasks = fill(app)
    counter.forget()

    app.run_worker(until_idle=True)

    commits = counter.count("COMMIT")
    assert app.counts()["completed"] == tasks
    app.close()
    assert 0 < commits / tasks < most


@pytest.mark.slow
@pytest.mark.postgres
@fills
def test_a_worker_on_postgres_sends_one_statement_for_many_tasks(fill: Fill, most: float) -> None:
    with private_server() as server:
        app = app_at(server.url)
        tasks = fill(app)
        server.log_statements()
        place = server.end_of_log()

        app.run_worker(until_idle=True)

        statements = server.statements_since(place)
        assert app.counts()["completed"] == tasks
        app.close()
    commits = sum(text.upper().startswith("COMMIT") for text in statements)
    work = [
        text for text in statements if not text.upper().startswith(("BEGIN", "COMMIT", "ROLLBACK"))
    ]
    assert 0 < len(work) / tasks < most
    assert commits / tasks < most


def modules_after(statement: str) -> set[str]:
    told = subprocess.run(
        [sys.executable, "-c", f"{statement}; import sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(told.stdout.split())


def test_an_import_leaves_out_what_only_workers_need() -> None:
    """So that a program which just enqueues starts at once."""
    loaded = modules_after("import penstock")
    assert "penstock.app" in loaded
    assert not {f"penstock.{part}" for part in WORKER_PARTS} & loaded
    assert not {"asyncio", "hashlib", "penstock.settings", "psycopg", "sqlite3"} & loaded
    ours = loaded - modules_after("pass")  # an environment may load more when it starts
    assert not {"concurrent.futures", "json", "logging", "pathlib", "signal", "urllib.parse"} & ours
    assert not set(OTHERS) & loaded


def test_an_import_makes_no_class_by_generating_code() -> None:
    """A dataclass takes forty times as long to declare as a Struct, and there were 33 of them."""
    count = (
        "import penstock, sys; from dataclasses import is_dataclass; "
        "kinds = {kind for name, module in sys.modules.items() if name.startswith('penstock') "
        "for kind in vars(module).values() if isinstance(kind, type) and is_dataclass(kind)}; "
        "print(*sorted(kind.__name__ for kind in kinds))"
    )
    told = subprocess.run([sys.executable, "-c", count], capture_output=True, text=True, check=True)
    # Many libraries make JSON of the first; what the second is made from is not what it keeps.
    assert told.stdout.split() == ["Event", "Retry"]


def test_help_appears_without_what_only_single_commands_need() -> None:
    loaded = modules_after("import penstock.cli")
    assert "click" in loaded
    assert not {"asyncio", "hashlib", "http.client", "penstock.testing"} & loaded
    assert not set(OTHERS) & loaded
