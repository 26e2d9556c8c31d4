"""A plugin for pytest: leaves behind what a run came to, for whoever started it to tell again."""

import json
from collections import Counter
from pathlib import Path
from typing import TypedDict

import pytest
from _pytest.terminal import TerminalReporter

TOLD_IN = "--told-in"

# As the line at the end of a run has them.
COUNTED = ("failed", "error", "passed", "skipped", "rerun", "xfailed", "xpassed")


class Told(TypedDict):
    """How many tests ended how, and a line for each that failed, was repeated or did not run."""

    counted: str
    lines: list[str]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(TOLD_IN, metavar="FILE", required=True, help="Where to leave it.")


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    config = terminalreporter.config
    if hasattr(config, "workerinput"):
        return  # one of several processes, which knows its own part alone
    stats = terminalreporter.stats
    ended = [f"{len(stats[kind])} {kind}" for kind in COUNTED if stats.get(kind)]
    told = Told(counted=", ".join(ended) or "no test", lines=[*_named(stats), *_skipped(stats)])
    Path(config.getoption(TOLD_IN)).write_text(json.dumps(told))


def _named(stats: dict[str, list[pytest.TestReport]]) -> list[str]:
    return [
        f"{kind.upper()} {report.nodeid}"
        for kind in ("failed", "error", "rerun")
        for report in stats.get(kind, ())
    ]


def _skipped(stats: dict[str, list[pytest.TestReport]]) -> list[str]:
    reasons = Counter(
        (Path(report.longrepr[0]).name, report.longrepr[2].removeprefix("Skipped: "))
        for report in stats.get("skipped", ())
        if isinstance(report.longrepr, tuple | list)
    )
    return [f"SKIPPED [{count}] {file}: {why}" for (file, why), count in reasons.items()]
