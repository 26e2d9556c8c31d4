"""How failed executions go that somebody has looked at: whole, with their histories."""

from collections.abc import Collection, Mapping

from penstock.store.batches import encode_rows
from penstock.store.ranges import encode_ranges
from penstock.store.scripts import Script, Step
from penstock.store.sql import Statement

_BESIDE = ("dismiss_once", "dismiss_steps", "dismiss_signals", "dismiss_tasks")


def dismiss(statements: Mapping[str, Statement], ids: Collection[str]) -> Script[set[str]]:
    """Remove those that failed; return their ids. Runs first, as everywhere locks are taken."""
    wanted = {"ids": encode_rows(sorted(set(ids)))}
    runs = [row[0] for row in (yield Step(statements["failed_runs"], wanted))]
    tasks = [row[0] for row in (yield Step(statements["failed_tasks"], wanted))]
    roots = [*runs, *tasks]
    if runs:
        ranges = {"runs": encode_ranges(runs)}
        tasks += [row[0] for row in (yield Step(statements["tasks_of_runs"], ranges))]
    for name in _BESIDE:
        yield Step(statements[name], {"ids": encode_rows(tasks)})
    yield Step(statements["dismiss_runs"], {"ids": encode_rows(runs)})
    yield Step(statements["dismiss_events"], {"ids": encode_rows(roots)})
    return set(roots)
