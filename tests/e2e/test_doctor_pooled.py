"""doctor behind a real PgBouncer, in both modes that are in use."""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.command_line import Answer, CommandLine
from tests.ops.pooling import pooled

Behind = Callable[[str, str], CommandLine]


@pytest.fixture
def behind(on_postgres: CommandLine, tmp_path: Path) -> Iterator[Behind]:
    """The command line behind a PgBouncer in a mode, which ignores some startup parameters."""
    assert on_postgres("admin", "migrate").status == 0
    with ExitStack() as running:

        def enter(mode: str, ignored: str) -> CommandLine:
            url = running.enter_context(
                pooled(on_postgres.url, tmp_path, mode=mode, ignored=ignored)
            )
            return replace(on_postgres, url=url)

        yield enter


def found(answer: Answer, check: str) -> tuple[str, str, str]:
    (one,) = [one for one in answer.json["findings"] if one["check"] == check]
    return one["level"], one["message"], one["remedy"] or ""


def test_in_session_mode_only_the_settings_that_do_not_arrive_are_told(behind: Behind) -> None:
    answer = behind("session", "options")("doctor", "--json")
    assert answer.status == 0
    level, message, remedy = found(answer, "isolation")
    assert (level, "do not arrive" in message) == ("warning", True)
    assert "ALTER ROLE" in remedy
    assert found(answer, "LISTEN")[0] == "ok"
    assert found(answer, "pooler")[0] == "ok"


def test_in_transaction_mode_nobody_can_listen_unless_past_the_pooler(
    behind: Behind, on_postgres: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    penstock = behind("transaction", "options")

    answer = penstock("doctor", "--json")

    assert answer.status == 1
    level, message, remedy = found(answer, "LISTEN")
    assert (level, "did not arrive" in message) == ("problem", True)
    assert "database.listen_url" in remedy

    monkeypatch.setenv("PENSTOCK_DATABASE_LISTEN_URL", on_postgres.url)
    answer = penstock("doctor", "--json")
    assert answer.status == 0
    assert found(answer, "LISTEN")[0] == "ok"
    assert found(answer, "indexes")[0] == "ok"


@pytest.mark.parametrize(
    "arguments",
    [
        ("doctor",),
        ("worker", "shop:app", "--log-level", "error"),
        ("enqueue", "shop:app", "linger"),
    ],
)
def test_a_pooler_that_refuses_what_connections_ask_for_is_told_with_the_way_out(
    behind: Behind, arguments: tuple[str, ...]
) -> None:
    penstock = behind("session", "extra_float_digits")
    penstock.open_shop()
    refused = penstock.alone(*arguments)
    assert refused.status == 1
    assert re.search(r"ignore_startup_parameters = options", refused.err)
    assert len(refused.err.splitlines()) == 1


def test_without_a_pooler_nothing_is_said_about_one(on_postgres: CommandLine) -> None:
    on_postgres("admin", "migrate")
    checks = [one["check"] for one in on_postgres("doctor", "--json").json["findings"]]
    assert "pooler" not in checks
    assert "isolation" in checks
