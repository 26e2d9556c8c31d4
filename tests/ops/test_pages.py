"""The pages about operating: what they link to, type and name is there."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from penstock.cli import commands

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "how-to" / "operate").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_and_files_lead_somewhere(page: Path) -> None:
    text = page.read_text("utf-8")
    for link in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (page.parent / link).exists(), link
    for file in re.findall(r"\bops/[\w./-]*\w", text):
        assert (ROOT / file).exists(), file


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_that_are_shown_exist(page: Path) -> None:
    for typed in re.findall(r"`penstock ([a-z][^`…]*)`", page.read_text("utf-8")):
        group: click.Command = commands
        words = shlex.split(typed)
        while words and isinstance(group, click.Group):
            assert words[0] in group.commands, typed
            group = group.commands[words.pop(0)]
        options = {option for parameter in group.params for option in parameter.opts}
        for word in words:
            if word.startswith("--"):
                assert word.partition("=")[0] in options, typed


def test_the_index_names_every_page() -> None:
    index = (ROOT / "docs" / "how-to" / "operate" / "README.md").read_text("utf-8")
    for page in PAGES:
        assert page.name == "README.md" or f"({page.name})" in index


def test_the_page_about_alerts_names_every_alert() -> None:
    rules = (ROOT / "ops" / "prometheus" / "penstock.rules.yml").read_text("utf-8")
    page = (ROOT / "docs" / "how-to" / "operate" / "metrics-and-alerts.md").read_text("utf-8")
    for alert in re.findall(r"- alert: (\w+)", rules):
        assert f"`{alert}`" in page


def test_the_example_of_hooks_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "how-to" / "operate" / "hooks.md").read_text("utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    namespace: dict[str, object] = {}
    exec(code, namespace)  # noqa: S102 - our own page
    app = namespace["app"]
    assert app is not None
    for name in re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", page, re.MULTILINE):
        for hook in re.findall(r"\w+", name):
            assert hasattr(namespace["Hooks"], hook), hook


def test_the_example_of_traces_runs(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "how-to" / "operate" / "traces.md").read_text("utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    work = "with app.worker() as worker: worker.wait_until_idle()\nprovider.shutdown()\n"
    # In a process of its own: a provider is set once and for all.
    finished = subprocess.run(
        [sys.executable, "-c", code + work],
        cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    for name in re.findall(r"`((?:messaging|penstock)\.[\w.]+)`", page):
        assert name == "penstock.run_id" or f'"{name}"' in finished.stdout, name
    assert finished.stdout.count('"trace_id"') >= 2
    assert len(set(re.findall(r'"trace_id": "(\w+)"', finished.stdout))) == 1
