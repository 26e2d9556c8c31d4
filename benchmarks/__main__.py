"""`make bench`: our engine on both databases, medians of interleaved rounds."""

import argparse
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.rows import ROWS, Measured, app_on
from tests.support.postgres import installed_programs, temporary_cluster


@contextmanager
def databases() -> Iterator[dict[str, str]]:
    """A SQLite file, and a PostgreSQL cluster where its wheel is installed."""
    with tempfile.TemporaryDirectory() as place:
        urls = {"SQLite": f"sqlite:///{Path(place) / 'bench.db'}"}
        programs = installed_programs()
        if programs is None:
            yield urls
            return
        with temporary_cluster(programs) as url:
            yield {**urls, "PostgreSQL": url}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="rounds to take medians of")
    rounds = parser.parse_args().rounds
    measured: dict[tuple[str, str], list[Measured]] = {}
    with databases() as urls:
        for number in range(1, rounds + 1):
            for database, url in urls.items():
                app = app_on(url, f"bench_{number}")
                for row in ROWS:
                    result = row(app)
                    measured.setdefault((result.row, database), []).append(result)
                app.close()
            print(f"round {number} of {rounds} done", flush=True)
    print(f"\n{'':34}" + "".join(f"{database:>16}" for database in urls))
    for row_name in dict.fromkeys(row for row, _ in measured):
        figures = (_median(measured[row_name, database]) for database in urls)
        print(f"{row_name:34}" + "".join(f"{figure:>16}" for figure in figures))


def _median(results: list[Measured]) -> str:
    value = statistics.median(result.value for result in results)
    return f"{value:,.0f}{results[0].unit}" if value >= 100 else f"{value:.2f}{results[0].unit}"


if __name__ == "__main__":
    main()
