"""What holds for all commands: settings, exit status, where output goes, the reference."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import penstock as package
from penstock.cli.reference import all_commands, with_reference
from penstock.cli.shapes import EXECUTION_FIELDS
from tests.e2e.command_line import ESCAPE, CommandLine, on_terminal, run

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"


def test_the_reference_is_what_the_commands_declare() -> None:
    """If it is not: python -m penstock.cli.reference docs/reference/cli.md."""
    page = REFERENCE.read_text("utf-8")
    assert with_reference(page) == page


def test_every_command_and_every_field_is_in_the_reference() -> None:
    page = REFERENCE.read_text("utf-8")
    for typed, command in all_commands():
        assert f"## `{typed}`" in page
        assert command.help
    for name in EXECUTION_FIELDS:
        assert f"| `{name}` |" in page


def test_python_dash_m_is_the_same_command() -> None:
    program = Path(sys.executable).with_name("penstock")
    as_program = subprocess.run([program, "--help"], capture_output=True, text=True, check=True)
    assert run("-m", "penstock", "--help").out == as_program.stdout
    assert run("-m", "penstock", "--version").out == f"penstock {package.__version__}\n"


def test_help_appears_at_once() -> None:
    durations = []
    for _ in range(3):
        began = time.monotonic()
        assert run("-m", "penstock", "--help").status == 0
        durations.append(time.monotonic() - began)
    assert min(durations) < 1.0


@pytest.mark.parametrize(
    ("imported", "heavy"),
    [
        ("penstock", ["click", "rich", "psycopg", "sqlalchemy", "penstock.cli"]),
        ("penstock.cli", ["rich", "psycopg", "sqlalchemy", "penstock.cli.demo_tasks"]),
    ],
)
def test_nothing_is_imported_before_it_is_needed(imported: str, heavy: list[str]) -> None:
    found = run("-c", f"import sys, {imported}; print(*set({heavy}) & set(sys.modules))")
    assert (found.status, found.out.split()) == (0, [])


def test_no_command_and_an_unknown_one_are_misuses(on_sqlite: CommandLine) -> None:
    assert run("-m", "penstock").status == 2
    assert run("-m", "penstock", "lst").status == 2
    assert run("-m", "penstock", "admin", "nothing").status == 2


# --- which database -------------------------------------------------------------------


def test_the_command_line_counts_before_the_environment_before_the_file(tmp_path: Path) -> None:
    for name in ("first", "second", "third"):
        at = CommandLine(tmp_path, f"sqlite:///{tmp_path}/{name}.db")
        at("admin", "migrate")
        at.enqueue(name)
    (tmp_path / "penstock.toml").write_text('[database]\nurl = "sqlite:///third.db"\n', "utf-8")

    def listed(*arguments: str, **environment: str) -> str:
        answer = run("-m", "penstock", "list", *arguments, environment=environment)
        assert answer.status == 0, answer.err
        return answer.out.splitlines()[1].split()[1]

    from_environment = {"PENSTOCK_DATABASE_URL": "sqlite:///second.db"}
    assert listed() == "third"
    assert listed(**from_environment) == "second"
    assert listed("--database", "sqlite:///first.db", **from_environment) == "first"


def test_the_command_line_counts_before_the_apps_own_argument(on_sqlite: CommandLine) -> None:
    module = 'from penstock import App\napp = App("sqlite:///own.db")\n@app.task\ndef t(): ...\n'
    (on_sqlite.directory / "own.py").write_text(module, "utf-8")
    assert on_sqlite.alone("enqueue", "own:app", "t").status == 0
    assert len(on_sqlite("list", "--json").json) == 1
    assert not (on_sqlite.directory / "own.db").exists()


def test_without_any_database_named_the_answer_says_how_to_name_one(tmp_path: Path) -> None:
    # A port where nothing listens stands in for the default one.
    answer = run("-m", "penstock", "list", environment={"PGPORT": "1", "PGHOST": "localhost"})
    assert answer.status == 1
    assert "No database was named" in answer.err
    assert "PENSTOCK_DATABASE_URL" in answer.err


@pytest.mark.parametrize(
    ("file", "environment", "complaint"),
    [
        ('[database]\nurk = "x"\n', {}, "penstock.toml:2"),
        ("", {"PENSTOCK_DATABASE_URL": "mysql://x"}, "PENSTOCK_DATABASE_URL: database.url"),
        ("", {"PENSTOCK_DATABASE": "x"}, "PENSTOCK_DATABASE"),
    ],
)
def test_settings_that_cannot_be_are_a_misuse(
    tmp_path: Path, file: str, environment: dict[str, str], complaint: str
) -> None:
    (tmp_path / "penstock.toml").write_text(file, "utf-8")
    answer = run("-m", "penstock", "list", environment=environment)
    assert answer.status == 2
    assert answer.err.startswith(complaint)
    assert len(answer.err.splitlines()) == 1


# --- where output goes ----------------------------------------------------------------


def test_a_pipe_gets_plain_text_in_full(on_sqlite: CommandLine) -> None:
    on_sqlite("admin", "migrate")
    on_sqlite.enqueue("a_task_with_a_long_name_" * 8)
    answer = run("-m", "penstock", "list", *on_sqlite.database)
    assert ESCAPE not in answer.out
    assert "a_task_with_a_long_name_" * 8 in answer.out


def test_a_terminal_gets_colours_within_its_width(on_sqlite: CommandLine) -> None:
    on_sqlite("admin", "migrate")
    execution_id = on_sqlite.enqueue("a_task_with_a_long_name_" * 8, queue="[bold]x[/bold]")
    shown = on_terminal("-m", "penstock", "list", *on_sqlite.database, columns=80)
    assert f"{ESCAPE}[34mready" in shown
    assert execution_id in shown
    assert "…" in shown
    assert "(no room for queue, attempt, created)" in shown
    assert max(len(line) for line in without_colours(shown).splitlines()) <= 80
    wide = without_colours(on_terminal("-m", "penstock", "list", *on_sqlite.database, columns=400))
    assert "[bold]x[/bold]" in wide
    assert "…" not in wide
    assert "no room" not in wide


def test_no_color_takes_the_colours_away(
    on_sqlite: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_sqlite("admin", "migrate")
    on_sqlite.enqueue("add")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "[34m" not in on_terminal("-m", "penstock", "list", *on_sqlite.database)


def test_columns_narrow_a_table_in_a_pipe_too(on_sqlite: CommandLine) -> None:
    on_sqlite("admin", "migrate")
    on_sqlite.enqueue("größe_日本語_" * 20)
    answer = run("-m", "penstock", "list", *on_sqlite.database, environment={"COLUMNS": "70"})
    assert "…" in answer.out
    assert "no room" not in answer.out
    assert max(map(len, answer.out.splitlines())) <= 70


def test_a_reader_that_leaves_early_is_no_error(on_sqlite: CommandLine) -> None:
    on_sqlite("admin", "migrate")
    for _ in range(50):
        on_sqlite.enqueue("add")
    command = [sys.executable, "-m", "penstock", "list", "--json", *on_sqlite.database]
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        finished = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE, check=False)
    assert b"Traceback" not in finished.stderr


def without_colours(text: str) -> str:
    plain, *rest = text.split(f"{ESCAPE}[")
    return plain + "".join(piece.partition("m")[2] for piece in rest)
