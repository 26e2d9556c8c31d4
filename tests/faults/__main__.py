"""`make matrix`: run every row of the matrix, and write down what came of it."""

import sys
from collections import defaultdict

import click
import pytest

from tests.faults.matrix import ROWS, Row
from tests.faults.table import NOT_RUN, PAGE, ROOT, line, written

DATABASES = ("SQLite", "PostgreSQL")


class Results:
    """Listens to a run of pytest: what became of each test, on which database."""

    def __init__(self) -> None:
        self._database: dict[str, str] = {}
        self._ended: dict[str, set[tuple[str, str]]] = defaultdict(set)
        self._reasons: dict[str, str] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            on_postgres = item.get_closest_marker("postgres") is not None
            self._database[item.nodeid] = DATABASES[on_postgres]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        outcome: str = report.outcome  # pytest-rerunfailures has one more than pytest
        if outcome == "rerun" or (report.passed and report.when != "call"):
            return
        name = report.nodeid.partition("[")[0].removeprefix("tests/")
        self._ended[name].add((self._database[report.nodeid], outcome))
        if report.skipped and isinstance(report.longrepr, tuple):
            self._reasons[name] = report.longrepr[2].removeprefix("Skipped: ")

    def of(self, row: Row) -> str:
        ended = {one for test in row.tests for one in self._ended[test]}
        if any(outcome == "failed" for _, outcome in ended) or not all(
            self._ended[test] for test in row.tests
        ):
            return "FAILED"
        passed = [one for one in DATABASES if (one, "passed") in ended]
        parts = [f"holds on {' and '.join(passed)}"] if passed else []
        parts += [f"{NOT_RUN}{self._reasons[test]}" for test in row.tests if test in self._reasons]
        return "; ".join(parts)


def main() -> None:
    results = Results()
    tests = [f"{ROOT}/tests/{test}" for row in ROWS for test in row.tests]
    pytest.main(["-q", *tests, *sys.argv[1:]], plugins=[results])
    lines = [line(row, results.of(row)) for row in ROWS]
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), lines), encoding="utf-8")
    failed = [row.fault for row in ROWS if results.of(row) == "FAILED"]
    for fault in failed:
        click.echo(f"FAILED: {fault}")
    click.echo(f"{len(ROWS) - len(failed)} of {len(ROWS)} rows hold; see {PAGE.relative_to(ROOT)}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
