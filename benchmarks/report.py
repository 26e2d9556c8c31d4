"""What a run found: a table to read, a file for programs, and the lines that must hold."""

import json
import os
import platform
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.figures import FIGURES, PROMISES, Results
from benchmarks.systems import SYSTEMS, System

BEGIN = "<!-- begin: written by `make bench` -->"
END = "<!-- end: written by `make bench` -->"


def describe_machine(server: str) -> dict[str, str]:
    """Return what the figures depend on: the hardware, and the versions of what was used."""
    with psycopg.connect(server) as connection:
        row = connection.execute(
            "SELECT current_setting('server_version'), current_setting('fsync'), "
            "current_setting('synchronous_commit'), current_setting('shared_buffers')"
        ).fetchone()
    assert row is not None
    return {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "memory": f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 1e9:.0f} GB",
        "system": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        "PostgreSQL": (
            f"{row[0]}, fsync {row[1]}, synchronous_commit {row[2]}, shared_buffers {row[3]}"
        ),
        "SQLite": f"{sqlite3.sqlite_version}, WAL, synchronous FULL",
        "psycopg": version("psycopg"),
        "load before": f"{os.getloadavg()[0]:.1f}",
    }


def as_json(
    results: Results, machine: Mapping[str, str], missing: Mapping[str, str]
) -> dict[str, Any]:
    return {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": dict(machine),
        "systems": {
            system.name: {"title": system.title, "settings": system.settings} for system in SYSTEMS
        },
        "missing": dict(missing),
        "failures": results.failures,
        "figures": {
            figure.key: {
                "title": figure.title,
                "unit": figure.unit,
                "better": figure.better,
                "systems": {
                    system.name: {
                        "median": results.get(figure.key, system.name),
                        "rounds": results.rounds(figure.key, system.name),
                    }
                    for system in SYSTEMS
                    if results.rounds(figure.key, system.name)
                },
            }
            for figure in FIGURES
        },
        "promises": [
            {
                "says": promise.says(results),
                "found": promise.found(results),
                "least": promise.least,
                "most": promise.most,
                "holds": promise.holds(results),
            }
            for promise in PROMISES
        ],
    }


def as_markdown(
    results: Results, machine: Mapping[str, str], missing: Mapping[str, str]
) -> Iterator[str]:
    yield (
        f"Measured on {datetime.now(UTC).date().isoformat()}: medians of the rounds of one run. "
        f"{_verified(results)}"
    )
    yield ""
    yield from _table(["", ""], ([what, value] for what, value in machine.items()))
    measured = [one for one in SYSTEMS if results.has(one.name)]
    for title, kinds in (
        ("Beside each other on PostgreSQL and Redis", {"postgres", "redis"}),
        ("On SQLite", {"sqlite"}),
    ):
        systems = [one for one in measured if one.kind in kinds]
        if systems:
            yield from ("", f"### {title}", "")
            yield from _beside_each_other(results, systems)
    yield from ("", "### What must hold", "")
    yield from _table(["", "found", "turn by turn", "wanted", ""], _lines(results, missing))
    yield from ("", "### Settings", "")
    yield from _table(["system", "settings"], ([one.title, one.settings] for one in measured))
    for system in SYSTEMS:
        if system.name in missing:
            yield from ("", f"Not measured: {system.title}, because {missing[system.name]}.")
    for failure in results.failures:
        yield from ("", f"Failed: {failure}")


def _verified(results: Results) -> str:
    failed = len(results.failures)
    if failed:
        return f"**{failed} could not be measured**, and the end of this says why."
    return "What ran, ran once; in the rows that empty a table nothing was left."


def write_into(page: Path, lines: Iterable[str]) -> None:
    """Replace what stands between the two marks of a page."""
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    text = "\n".join(lines)
    page.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


def write_json(path: Path, what: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(what, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _beside_each_other(results: Results, systems: list[System]) -> Iterator[str]:
    figures = [
        figure for figure in FIGURES if any(results.get(figure.key, one.name) for one in systems)
    ]
    yield from _table(
        ["", *(one.title for one in systems)],
        (
            [
                f"{figure.title}{', ' if figure.unit else ''}{figure.unit}",
                *(_shown(results.get(figure.key, one.name)) for one in systems),
            ]
            for figure in figures
        ),
    )


def _lines(results: Results, missing: Mapping[str, str]) -> Iterator[list[str]]:
    for promise in PROMISES:
        found, holds = promise.found(results), promise.holds(results)
        is_missing = promise.compared_with is not None and promise.compared_with[1] in missing
        if holds is None and not is_missing:
            continue  # a run of some systems, or of some parts
        wanted = f"≥ {promise.least:,g}" if promise.most is None else f"≤ {promise.most:,g}"
        verdict = "not measured" if holds is None else "holds" if holds else "**falls short**"
        turns = promise.turns(results)
        apart = f"{shown(min(turns))} to {shown(max(turns))}" if len(turns) > 1 else "–"
        yield [promise.says(results), _shown(found), apart, wanted, verdict]


def _shown(value: float | None) -> str:
    return "–" if value is None else shown(value)


def shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _table(head: list[str], rows: Iterable[list[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())
