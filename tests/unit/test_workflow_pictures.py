"""What a workflow shows of itself: a fingerprint that tells changes, and pictures."""

import importlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from penstock import Registry, all_done, failed, value
from penstock.engine.fingerprints import fingerprint


@dataclass
class Daily:
    day: str


def fetch(day: str) -> list[int]:
    return [len(day)]


def last() -> int:
    return 1


# --- fingerprints -----------------------------------------------------------------------------

MODULE = """
from penstock import Registry, value
tasks = Registry()
flow = tasks.workflow("printed")

@flow.task
def one() -> set[str]:
    {doc}
    return {{"b", "a", "c"}} if one else set()

@flow.task(after=[one], when=value("n") > {bound})
def two() -> int:
    return (lambda: {result})()
"""


def printed(place: Path, monkeypatch: pytest.MonkeyPatch, **changes: object) -> str:
    source = MODULE.format(**{"doc": "", "bound": 1, "result": 1, **changes})
    (place / "printed_flow.py").write_text(source)
    monkeypatch.syspath_prepend(str(place))
    sys.modules.pop("printed_flow", None)
    importlib.invalidate_caches()
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return str(importlib.import_module("printed_flow").flow.fingerprint)


def test_a_fingerprint_changes_with_the_graph_the_rules_and_the_code_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = [tmp_path / name for name in ("a", "b")]
    for place in places:
        place.mkdir()
    first = printed(places[0], monkeypatch)
    assert printed(places[0], monkeypatch) == first
    assert printed(places[1], monkeypatch) == first
    assert printed(places[1], monkeypatch, doc='"""What it does."""\n\n    # and why') == first
    assert printed(places[1], monkeypatch, result=2) != first
    assert printed(places[1], monkeypatch, bound=2) != first


def test_a_fingerprint_needs_no_source() -> None:
    code = compile("def one(): return 1", "<nowhere>", "exec")
    scope: dict[str, Any] = {}
    exec(code, scope)  # noqa: S102
    assert fingerprint("{}", [scope["one"]]) != fingerprint("{}", [last])
    assert len(fingerprint("{}", [scope["one"], max])) == 32


# --- pictures ---------------------------------------------------------------------------------


def test_a_workflow_draws_itself() -> None:
    flow = Registry().workflow("drawn", inputs=Daily)
    first = flow.task(fetch)
    flow.task(name="end", after=[first], when=all_done)(last)
    flow.task(name="last one", after=["end"], when=failed(first) & (value("n") < 3))(last)
    assert flow.graph() == (
        "flowchart TD\n"
        '    fetch["fetch"]\n'
        '    task_1["end<br/>when all_done"]\n'
        "    task_2[\"last one<br/>when failed(fetch) &amp; (value('n') &lt; 3)\"]\n"
        "    fetch --> task_1\n"
        "    task_1 --> task_2\n"
        "    fetch -.-> task_2\n"
    )
    assert flow.graph(form="text").splitlines()[1:] == [
        "  1  fetch     takes day",
        "  2  end       after fetch; when all_done",
        "  3  last one  after end; when failed(fetch) & (value('n') < 3)",
    ]
    with pytest.raises(ValueError, match="There are mermaid and text"):
        flow.graph(form="png")
