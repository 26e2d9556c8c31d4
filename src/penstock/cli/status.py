"""The status command: all at a glance, once or again and again."""

import sys
import time
from collections.abc import Collection, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

import click

from penstock.cli.living import silent_among
from penstock.cli.options import DatabaseOptions, database_options, json_option
from penstock.cli.reading import worker_lines
from penstock.cli.shapes import Shape, print_json, queue_shapes, worker_shape
from penstock.cli.tables import Cell, Line, moment, print_line, state_cell, table_lines, terminal
from penstock.errors import PenstockError, StoreUnavailable
from penstock.model.runs import RunState
from penstock.model.states import State
from penstock.model.telling import span
from penstock.model.waiting import QueueDepth
from penstock.model.workers import Peer
from penstock.store.contract import Store

if TYPE_CHECKING:
    from rich.text import Text

WATCH_EVERY = 2.0


class NothingToRedraw(PenstockError):
    """`--watch` somewhere else than on a terminal, or with `--json`."""

    def __init__(self) -> None:
        super().__init__(
            "--watch redraws a terminal's window, and this output goes elsewhere. Leave it out, "
            "and call `penstock status --json` as often as you like."
        )


class _Seen(NamedTuple):
    counts: dict[State, int]
    depths: list[QueueDepth]
    peers: list[Peer]
    silent: Collection[str]  # of those, by their ids
    paused: list[str]
    runs: dict[RunState, int]


@click.command
@click.option("--watch", is_flag=True, help="Show it again every 2 s, until Ctrl-C.")
@json_option
@database_options
def status(*, database: DatabaseOptions, watch: bool, as_json: bool) -> None:
    """Count executions and runs in each state; show the queues and the workers.

    For each queue: how many executions are ready and for how long the oldest of them has been,
    how many workers serve it, and whether it is paused. A worker that has sent no heartbeat for
    two leases is marked as silent, and does not count.
    """
    if watch and (as_json or not sys.stdout.isatty()):
        raise NothingToRedraw
    lease = database.settings().worker.lease
    with database.opened() as store:
        if watch:
            _watch(store, lease)
            return
        seen = _look(store, lease)
    if as_json:
        print_json(_shape(seen))
        return
    for line in _lines(seen):
        print_line(line)


def _look(store: Store, lease: timedelta) -> _Seen:
    peers = store.workers()
    return _Seen(
        store.counts(),
        store.depths(),
        peers,
        silent_among(store, peers, lease=lease),
        store.paused(),
        store.run_counts(),
    )


def _queues(seen: _Seen) -> list[Shape]:
    return queue_shapes(seen.peers, seen.paused, seen.depths, silent=seen.silent)


def _shape(seen: _Seen) -> Shape:
    return {
        "states": {state.value: count for state, count in seen.counts.items()},
        "runs": {state.value: count for state, count in seen.runs.items()},
        "queues": _queues(seen),
        "workers": [worker_shape(peer, silent=seen.silent) for peer in seen.peers],
    }


def _lines(seen: _Seen) -> Iterator[Line]:
    yield from table_lines(
        ("state", "executions"),
        [(state_cell(state), str(count)) for state, count in seen.counts.items()],
    )
    yield []
    if any(seen.runs.values()):
        yield from table_lines(
            ("state", "runs"),
            [(state_cell(state), str(count)) for state, count in seen.runs.items()],
        )
        yield []
    ages = {depth.queue: span(depth.oldest_age) for depth in seen.depths}
    if queues := _queues(seen):
        yield from table_lines(
            ("queue", "ready", "oldest", "workers", ""),
            [
                (
                    queue["name"],
                    str(queue["ready"]),
                    ages.get(queue["name"], ""),
                    _served(queue["workers"], ready=queue["ready"]),
                    Cell("paused", "bold yellow") if queue["paused"] else "",
                )
                for queue in queues
            ],
            whole=("ready", "workers", ""),
        )
        yield []
    if seen.peers:
        yield from worker_lines(seen.peers, silent=seen.silent)
    else:
        yield [Cell("No worker is alive.")]


def _served(workers: int, *, ready: int) -> Cell:
    return Cell(str(workers), "bold red" if ready and not workers else "")


def _watch(store: Store, lease: timedelta) -> None:
    from rich.live import Live  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    seen: _Seen | None = None
    try:
        with Live(console=terminal(), screen=True, auto_refresh=False) as live:
            while True:
                note = Cell("Ctrl-C ends it.", "dim")
                try:
                    seen = _look(store, lease)
                except StoreUnavailable as error:
                    # It may be back in a moment; what was seen last is still worth showing.
                    note = Cell(f"{error} Trying again every {WATCH_EVERY:g} s.", "bold red")
                now = Cell(f"{moment(datetime.now(UTC))}  ")
                lines = [*(_lines(seen) if seen else ()), [], [now, note]]
                live.update(Text("\n").join(_text(line) for line in lines), refresh=True)
                time.sleep(WATCH_EVERY)
    except KeyboardInterrupt:
        return


def _text(line: Line) -> "Text":
    from rich.text import Text  # noqa: PLC0415

    return Text.assemble(*((cell.text, cell.style) for cell in line))
