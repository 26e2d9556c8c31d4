"""`penstock demo`: what it does, in a few seconds, on a SQLite file that is gone afterwards."""

import shutil
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import click

from penstock.cli import demo_display as display
from penstock.cli.demo_shop import Killed, Shop, kill_one
from penstock.cli.reading import details, event_cell
from penstock.cli.stopping import told_to_stop
from penstock.cli.tables import print_table
from penstock.model.events import Event, EventType
from penstock.model.executions import Snapshot
from penstock.model.states import LIVE, State
from penstock.model.telling import count

TASKS = 300
WORKERS = 2
KILL_AT = 0.4  # of all that there is to do


@click.command
@click.option("--keep", is_flag=True, help="Keep the database, to look at it afterwards.")
def demo(*, keep: bool) -> None:
    """Show what it does: transactions, retries, and a worker that is killed half way."""
    try:
        with told_to_stop() as check, _shop(check, keep=keep) as shop:
            went_well = _play(shop)
    except KeyboardInterrupt:
        click.echo("\nStopped. The workers have ended and nothing is left behind.", err=True)
        sys.exit(1)
    if not went_well:
        sys.exit(1)


@contextmanager
def _shop(check: Callable[[], None], *, keep: bool) -> Iterator[Shop]:
    import tempfile  # noqa: PLC0415 - only the demo needs these

    from penstock.cli.demo_tasks import app  # noqa: PLC0415

    shop = Shop(Path(tempfile.mkdtemp(prefix="penstock-demo-")), app, check)
    finished = False
    try:
        app.configure(database=shop.url)
        yield shop
        finished = True
    finally:
        shop.stop()
        if keep and finished:
            _say_what_to_try(shop)
        else:
            shutil.rmtree(shop.directory, ignore_errors=True)


def _play(shop: Shop) -> bool:
    began = time.monotonic()
    click.echo("A small shop sends receipts. Its orders and its tasks are in one SQLite file.")
    shop.app.migrate()
    _order_and_receipt_together(shop)
    _start_workers(shop)
    display.act(
        4,
        "A worker is killed half way",
        f"{TASKS} more receipts, some to a mail server that is busy; then `kill -9` for a worker.",
    )
    started = time.monotonic()
    _enqueue_the_rest(shop)
    killed = _watch(shop)
    took = time.monotonic() - started
    told = _tell_what_became_of(shop, killed)
    return _sum_up(shop, killed, told, took=took, in_all=time.monotonic() - began)


# --- the acts -------------------------------------------------------------------------


def _order_and_receipt_together(shop: Shop) -> None:
    from penstock.cli.demo_tasks import send_receipt  # noqa: PLC0415

    with closing(sqlite3.connect(shop.path)) as connection:
        connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, email TEXT NOT NULL)")
        display.act(
            1, "Together", "An order and the task of its receipt are written in one transaction."
        )
        display.code(
            "with connection:",
            '    connection.execute("INSERT INTO orders …")',
            "    send_receipt.using(connection=connection).enqueue(1, to=…)",
        )
        with connection:
            connection.execute("INSERT INTO orders VALUES (1, 'ada@example.com')")
            send_receipt.using(connection=connection).enqueue(1, to="ada@example.com")
        display.fact(f"committed: {_orders_and_tasks(shop, connection)}")

        display.act(2, "Or not at all", "The next order fails before it is committed.")
        with suppress(_CardDeclined), connection:
            connection.execute("INSERT INTO orders VALUES (2, 'bob@example.com')")
            send_receipt.using(connection=connection).enqueue(2, to="bob@example.com")
            raise _CardDeclined
        display.fact(f"rolled back: still {_orders_and_tasks(shop, connection)}")


class _CardDeclined(Exception):
    pass


def _orders_and_tasks(shop: Shop, connection: sqlite3.Connection) -> str:
    ((orders,),) = connection.execute("SELECT count(*) FROM orders")
    tasks = sum(shop.store.counts().values())
    return f"{count(orders, 'order')}, {count(tasks, 'task')}"


def _start_workers(shop: Shop) -> None:
    display.act(
        3, "Workers", f"{WORKERS} processes start on the file; the first receipt goes out at once."
    )
    for _ in range(WORKERS):
        shop.start_worker()
    for _ in shop.wait("the workers to start"):
        if all(shop.worker_id_of(process) for process in shop.workers):
            break
    first = None
    for _ in shop.wait("the first receipt"):
        first = next(iter(shop.store.find(state=State.COMPLETED)), None)
        if first is not None:
            break
    pids = " and ".join(str(process.pid) for process in shop.workers)
    display.fact(f"processes {pids} are at work; the first result: {first.result if first else ''}")


def _enqueue_the_rest(shop: Shop) -> None:
    from penstock.cli.demo_tasks import address_of, send_receipt  # noqa: PLC0415

    began = time.monotonic()
    numbers = range(2, TASKS + 2)
    shop.app.enqueue_many([send_receipt.request(n, to=address_of(n)) for n in numbers])
    display.fact(f"{TASKS} tasks enqueued in {1000 * (time.monotonic() - began):.0f} ms")


def _watch(shop: Shop) -> Killed | None:
    """Show the progress until all is done, and kill a worker in the middle of it."""
    killed: Killed | None = None
    total = TASKS + 1
    with display.progress(total) as move:
        for _ in shop.wait("all tasks to end"):
            counts = shop.store.counts()
            live = sum(counts[state] for state in LIVE)
            alive = "1 worker" if killed else f"{WORKERS} workers"
            move(total - live, f"{alive}, to be retried: {counts[State.SCHEDULED]}")
            if live == 0:
                break
            if killed is None and total - live >= KILL_AT * total:
                killed = kill_one(shop)
                if killed:
                    display.event(
                        f"kill -9 {killed.pid}: it was running {count(len(killed.ids), 'task')}"
                    )
    return killed


# --- what became of it ----------------------------------------------------------------


def _tell_what_became_of(shop: Shop, killed: Killed | None) -> dict[str, list[Event]]:
    display.act(
        5,
        "Nothing is lost",
        "The other worker saw that the process was gone and recovered its tasks. One of them:",
    )
    if killed is None:
        return {}
    told = {id_: shop.store.history(id_) for id_ in killed.ids}
    _print_history(told[killed.ids[0]], killed.names)
    return told


def _print_history(events: list[Event], names: dict[str, str]) -> None:
    click.echo()
    print_table(
        ("  after", "event", "worker", "details"),
        [
            (
                f"  {(event.at - events[0].at).total_seconds():.3f} s",
                event_cell(event),
                names.get(event.worker_id or "", ""),
                _with_names(details(event), names),
            )
            for event in events
        ],
        whole=("  after", "event"),
    )


def _with_names(text: str, names: dict[str, str]) -> str:
    for id_, name in names.items():
        text = text.replace(f"worker {id_}", name)
    return text


def _sum_up(
    shop: Shop,
    killed: Killed | None,
    told: dict[str, list[Event]],
    *,
    took: float,
    in_all: float,
) -> bool:
    everything = shop.store.find(limit=TASKS + 1)
    counts = shop.store.counts()
    moments = [
        event.at
        for events in told.values()
        for event in events
        if event.type == EventType.RECOVERED
    ]
    again = _finished_after_recovery(everything, told)
    display.act(6, "Summary", "Every task that was committed has come to an end.")
    display.fact(
        f"{counts[State.COMPLETED]} completed, "
        f"{counts[State.FAILED]} failed for good, to addresses where nobody lives"
    )
    display.fact(f"{sum(one.retries for one in everything)} retries, all by themselves")
    if killed and moments:
        late = max((max(moments) - killed.at).total_seconds(), 0)
        display.fact(
            f"{count(again, 'task')} of the killed worker recovered {late:.1f} s after its death"
        )
    display.fact(
        f"{TASKS} tasks in {took:.1f} s, {TASKS / took:.0f} a second "
        f"(each takes about a tenth of a second); {in_all:.1f} s in all"
    )
    ended = sum(counts[state] for state in LIVE) == 0 and len(everything) == TASKS + 1
    return ended and again == len(told) > 0


def _finished_after_recovery(everything: list[Snapshot], told: dict[str, list[Event]]) -> int:
    """How many of the killed worker's tasks were recovered and have ended."""
    ended = {one.id for one in everything if one.finished_at}
    return sum(
        id_ in ended and any(event.type == EventType.RECOVERED for event in events)
        for id_, events in told.items()
    )


def _say_what_to_try(shop: Shop) -> None:
    click.echo("\nThe database stays. Look at it with:")
    for command in ("status", "list --state failed", "history ID"):
        click.echo(f"  penstock {command} --database {shop.url}")
    click.echo(f"and remove it with:\n  rm -r {shop.directory}")
