"""The page with every command shows what they really say."""

import socket
from pathlib import Path

import pytest

from penstock.cli.reference import all_commands
from tests.docs.commands import PAGE, CommandFailed, Tour, check
from tests.docs.settling import Words

ELSEWHERE = {"penstock demo", "penstock bench"}  # a show of a minute, and figures of one machine


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_page_shows_what_commands_say_on_sqlite(tmp_path: Path) -> None:
    settings = '[database]\nurl = "sqlite:///orders.db"\n'
    check(Tour("sqlite", tmp_path, settings, Words(tmp_path)))


def test_every_command_is_on_the_page() -> None:
    page = PAGE.read_text("utf-8")
    missing = {typed for typed, _ in all_commands() if f"$ {typed}" not in page}
    assert missing == ELSEWHERE


# --- the runner itself ------------------------------------------------------------------------

SAID = """\
WORKER                                NAME         STARTED
01a1de8a-48be-7445-8d7f-2934737da527  host:123456  2031-01-02 10:20:30

01a1de8a-4453-773d-9eaf-894ae73ea94e failed 12m3.4s ago, at 2031-01-02 10:20:30.123 in /tmp/x/y.py
01a1de8a-48be-7445-8d7f-2934737da527 waits for 0.2s; they go after 30d
"""
SHOWN = """\
WORKER                                NAME       STARTED
01990a3c-6c1e-7b54-9d2f-000000000001  shop:4711  2026-11-15 09:00:00

01990a3c-6c1e-7b54-9d2f-000000000002 failed 1s ago, at 2026-11-15 09:00:00.000 in /srv/shop/y.py
01990a3c-6c1e-7b54-9d2f-000000000001 waits for 1s; they go after 30d
"""


def test_what_changes_from_run_to_run_is_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "host")
    words = Words(Path("/tmp/x"))  # noqa: S108 - only a name
    assert words.settled(SAID) == SHOWN
    assert words.real("penstock show 01990a3c-6c1e-7b54-9d2f-000000000002") == (
        "penstock show 01a1de8a-4453-773d-9eaf-894ae73ea94e"
    )


def test_a_page_is_followed_with_what_was_really_said(tmp_path: Path) -> None:
    page = "```text\n# told\nhello\n```\n```console\n$ cat told\n# told\ngoodbye\n```\n"
    tour = Tour("sqlite", tmp_path, "", Words(tmp_path))
    assert tour.followed(page) == page.replace("goodbye", "hello")
    other = "<!-- postgres -->\n```console\n$ exit 3\n```\n"
    assert tour.followed(other) == other
    with pytest.raises(CommandFailed, match="ended with 3"):
        tour.followed(other.replace("postgres", "sqlite"))
