"""What the page "Keep secrets out" says is not printed, logged and counted is not."""

import signal

import pytest

from tests.e2e.command_line import CommandLine, run, wait_until
from tests.support.scraping import free_ports, page, scrape

SAFE = """
from dataclasses import dataclass

from penstock import App

app = App()


@app.task
def unlock(code: str) -> str:
    return code[::-1]


@app.task
def sign_in(user: str, password: str) -> dict[str, str]:
    return {"user": user, "token": password[::-1]}


@dataclass
class Guest:
    user: str
    password: str


welcome = app.workflow("welcome", inputs=Guest)


@welcome.task
def greet(user: str, password: str) -> dict[str, str]:
    return {"user": user, "token": password[::-1]}


@app.task(retry=[0, 0])
def stumble(code: str) -> None:
    raise RuntimeError("no luck")
"""
CODE = "open-sesame-4711"


def test_arguments_and_results_are_neither_logged_nor_counted_nor_in_the_history(
    penstock: CommandLine,
) -> None:
    (penstock.directory / "safe.py").write_text(SAFE, "utf-8")
    ids = [penstock.enqueue(task, f'{{"code": "{CODE}"}}') for task in ("unlock", "stumble")]
    port = free_ports()
    worker = penstock.start(
        "worker", "safe:app", "--metrics-port", str(port), "--log-level", "debug"
    )
    ended = (("outcome", "failed"), ("task", "stumble"))
    wait_until(lambda: scrape(port).get(("penstock_task_processed_total", ended)) == 1)
    pages = "".join(page(port, path)[1] for path in ("/metrics", "/livez", "/readyz"))
    worker.send_signal(signal.SIGTERM)
    out, err = worker.communicate(timeout=30)
    histories = "".join(penstock("history", one, "--json").out for one in ids)

    assert "stumble" in pages + err
    assert "task.completed" in histories
    assert "no luck" in histories
    for told in (pages, out, err, histories):
        assert CODE not in told
        assert CODE[::-1] not in told


def test_members_with_a_hidden_name_are_printed_by_no_command(penstock: CommandLine) -> None:
    (penstock.directory / "safe.py").write_text(SAFE, "utf-8")
    arguments = f'{{"user": "ann", "password": "{CODE}"}}'
    asked = penstock.alone("enqueue", "safe:app", "sign_in", arguments, "--json")
    execution_id = asked.json["id"]
    start = f"from safe import welcome; print(welcome.start(user='ann', password='{CODE}').id)"
    where = {"PENSTOCK_DATABASE_URL": penstock.url}
    if penstock.schema is not None:
        where["PENSTOCK_DATABASE_SCHEMA"] = penstock.schema
    run_id = run("-c", start, environment=where).out.strip()
    assert penstock.alone("worker", "safe:app", "--until-idle").status == 0

    told = {
        command: penstock(*command.split())
        for command in (
            f"show {execution_id}", f"show {execution_id} --json", "list --json",
            f"show {run_id}", f"show {run_id} --json", "list --runs --json",
            f"history {run_id} --json", f"why {execution_id} --json", f"why {run_id} --json",
        )
    }  # fmt: skip
    for command, answer in {"enqueue --json": asked, **told}.items():
        assert answer.status == 0, command
        assert CODE not in answer.out + answer.err, command
        assert CODE[::-1] not in answer.out + answer.err, command
    shown = told[f"show {execution_id} --json"].json
    assert shown["args"] == {"user": "ann", "password": "***"}
    assert shown["result"] == {"user": "ann", "token": "***"}
    assert told[f"show {run_id} --json"].json["inputs"] == {"user": "ann", "password": "***"}


def test_the_settings_say_what_is_hidden(
    penstock: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    execution_id = penstock.enqueue("unlock", f'{{"code": "{CODE}", "password": "1234"}}')
    monkeypatch.setenv("PENSTOCK_PRIVACY_HIDDEN", "code")
    shown = penstock("show", execution_id, "--json").json
    assert shown["args"] == {"code": "***", "password": "1234"}


@pytest.mark.parametrize(
    "arguments", [("status",), ("worker", "safe:app"), ("enqueue", "safe:app", "unlock")]
)
@pytest.mark.parametrize(
    "rest",
    ["u:Hush%zzKey@h/d", "u:Hush Key@h/d", "u:Hush@Key@h/d", "u:Key/d", "h/d?password=Hush Key"],
)
def test_no_command_quotes_the_password_of_a_url_that_cannot_be_read(
    on_sqlite: CommandLine, arguments: tuple[str, ...], rest: str
) -> None:
    (on_sqlite.directory / "safe.py").write_text(SAFE, "utf-8")
    environment = {"PENSTOCK_DATABASE_URL": f"postgresql://{rest}"}
    answer = run("-m", "penstock", *arguments, environment=environment)
    assert (answer.status, answer.out) == (2, "")
    (told,) = answer.err.splitlines()
    assert told.startswith("PENSTOCK_DATABASE_URL: database.url cannot be read: ")
    assert "Hush" not in told
    assert "Key" not in told
