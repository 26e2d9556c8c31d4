"""A look at a running PostgreSQL store: what is well, what is not, and what to do about it."""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
from psycopg import sql

from penstock.model.durations import format_duration
from penstock.model.health import Finding, ok, problem, warning
from penstock.store.decoding import decode_peer
from penstock.store.judging import (
    UNSEEN,
    Backlog,
    is_silent,
    judge_backlog,
    judge_failed,
    judge_workers,
    rough,
)
from penstock.store.postgres.connecting import KEEPALIVES, is_pooled
from penstock.store.postgres.migrating import shipped
from penstock.store.postgres.session import Session

# What runs all the time, and what maintenance does: each must enter its tables by an index.
HOT = (
    "claim_ready", "lanes", "settle", "settle_completed", "settled_before", "promote", "recover",
    "chores", "beat", "lock_runs", "run_states", "let_go", "sweep", "events_to_look_at",
    "roots_to_forget", "sweep_events",
)  # fmt: skip
GROWING = frozenset({"task_executions", "workflow_executions", "task_outbox", "execution_events"})

SKEW = timedelta(seconds=2)
SKEW_THAT_HURTS = timedelta(minutes=1)
LONG_TRANSACTION = timedelta(minutes=5)
ENDLESS_TRANSACTION = timedelta(hours=1)
MANY_DEAD = 100_000
VACUUMED_LATELY = timedelta(minutes=10)
NOTIFIED_WITHIN = 2.0

_CREATED = re.compile(r"^CREATE (?:UNIQUE )?INDEX (\w+)", re.MULTILINE)


def inspect(session: Session, *, lease: timedelta) -> Iterator[Finding]:
    ((isolation, as_asked, compiles, autovacuum, at),) = _at_once(session)
    if is_pooled(session.connection):
        yield ok("pooler", "Connections go through a pooler, so nothing is prepared on them.")
    yield _judge_session(isolation, as_asked=as_asked, compiles=compiles)
    yield judge_clock(at - host_now())
    yield _judge_indexes(session)
    yield _judge_dead_tuples(session, autovacuum=autovacuum)
    yield _judge_transactions(session)
    yield from _judge_work(session, lease=lease)


def host_now() -> datetime:
    return datetime.now(UTC)


def _at_once(session: Session) -> list[tuple[Any, ...]]:
    session.rows("inspect_session")  # the first time is slow, and would look like skew
    return session.rows("inspect_session")


# --- the server -------------------------------------------------------------------------


def _judge_session(isolation: str, *, as_asked: bool, compiles: bool) -> Finding:
    if isolation != "read committed":
        return problem(
            "isolation",
            f"Transactions are {isolation}: a claim would not see what committed while it waited.",
            remedy="Take default_transaction_isolation out of the `options` in the database URL.",
        )
    if not as_asked:
        return warning(
            "isolation",
            "Settings that our connections ask for do not arrive: statements may have no deadline, "
            "and plans may read whole tables.",
            remedy="Behind PgBouncer, give the role what is ignored, with ALTER ROLE … SET: "
            "docs/how-to/operate/run-behind-pgbouncer.md lists it.",
        )
    if compiles:
        return warning(
            "isolation",
            "The server may compile our statements (jit is on), and does so anew each time: 300 ms "
            "for a claim.",
            remedy="Behind PgBouncer: ALTER ROLE … SET jit = off. Otherwise take jit out of the "
            "`options` in the database URL.",
        )
    return ok("isolation", "Transactions are read committed, and statements have a deadline.")


def judge_clock(ahead: timedelta) -> Finding:
    """Judge how far the database's clock is ahead of this host's, or behind."""
    by = format_duration(abs(ahead) // timedelta(milliseconds=1) * timedelta(milliseconds=1))
    if abs(ahead) <= SKEW:
        return ok("clock", f"This host and the database agree within {by}.")
    judge = problem if abs(ahead) > SKEW_THAT_HURTS else warning
    return judge(
        "clock",
        f"The database's clock is {by} {'ahead of' if ahead > timedelta() else 'behind'} this "
        "host's: times that callers compute here come due early or late.",
        remedy="Have both keep time by NTP; pass durations to `run_after`, which the database "
        "counts itself.",
    )


def listens(url: str | None, notify: Callable[[str], object]) -> Finding:
    """Whether a notification that we send to ourselves arrives where workers listen."""
    if url is None:
        return ok(
            "LISTEN",
            "Notifications are switched off, so workers look for work every 500 ms.",
            hint="Set database.notify = true to have a commit wake them.",
        )
    channel = f"penstock_doctor_{uuid4().hex[:16]}"
    remedy = (
        "Behind PgBouncer in transaction mode nobody can listen: let database.listen_url name the "
        "server itself, with the same database."
    )
    try:
        with psycopg.connect(url, autocommit=True, **KEEPALIVES) as connection:
            connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
            begun = time.monotonic()
            notify(channel)
            for _ in connection.notifies(timeout=NOTIFIED_WITHIN, stop_after=1):
                took = time.monotonic() - begun
                return ok("LISTEN", f"A notification arrives within {1000 * took:.0f} ms.")
    except psycopg.Error as error:
        reason = str(error).partition("\n")[0]
        return problem("LISTEN", f"Workers cannot listen for work: {reason}.", remedy=remedy)
    return problem(
        "LISTEN",
        f"A notification did not arrive within {NOTIFIED_WITHIN:g} s, so new work waits for the "
        "next poll.",
        remedy=remedy,
    )


# --- the tables -------------------------------------------------------------------------


def _judge_indexes(session: Session) -> Finding:
    there = {row[0] for row in session.rows("inspect_indexes")}
    lost = sorted(
        name
        for migration in shipped()
        for name in _CREATED.findall(migration.sql)
        if name not in there
    )
    scans = sorted({f"{name} reads all of {table}" for name, table in _full_reads(session)})
    if not lost and not scans:
        return ok("indexes", f"All {len(HOT)} hot statements enter their tables by an index.")
    told = [f"{', '.join(lost)} missing or invalid"] if lost else []
    return problem(
        "indexes",
        f"{'; '.join(told + scans)}.",
        remedy="`penstock admin sql` prints every index: create those again, with CONCURRENTLY "
        "while workers run, and drop an invalid one first.",
    )


def _full_reads(session: Session) -> Iterator[tuple[str, str]]:
    """Which hot statements read a whole table that grows."""
    for name, explained in explain_hot(session):
        for table in _read_whole(explained["Plan"]):
            yield name, table


def explain_hot(session: Session) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What the server says about each hot statement, by the plan for any values."""
    for name in HOT:
        statement = session.statements[name]
        prepared = f"penstock_doctor_{name}"
        nothing = ", ".join(["NULL"] * len(statement.parameters))
        given = f"({nothing})" if nothing else ""
        connection = session.connection
        with session.transaction():
            # With values it could be planned for these alone, and NULL finds nothing anywhere.
            connection.execute("SET LOCAL plan_cache_mode = force_generic_plan")
            # As every connection of ours asks; that it did not arrive has been told already.
            connection.execute("SET LOCAL enable_seqscan = off")
            connection.execute("SET LOCAL enable_sort = off")
            connection.execute(f"PREPARE {prepared} AS {statement.dollar}".encode())
            row = connection.execute(
                f"EXPLAIN (FORMAT JSON) EXECUTE {prepared}{given}".encode()
            ).fetchone()
            connection.execute(f"DEALLOCATE {prepared}".encode())
        if row is not None:
            yield name, row[0][0]


def _read_whole(node: Mapping[str, Any]) -> Iterator[str]:
    if node["Node Type"] == "Seq Scan" and node["Relation Name"] in GROWING:
        yield node["Relation Name"]
    for inner in node.get("Plans", ()):
        yield from _read_whole(inner)


def _judge_dead_tuples(session: Session, *, autovacuum: bool) -> Finding:
    if not autovacuum:
        return problem(
            "dead tuples",
            "Autovacuum is off: every claim will read through more and more dead rows.",
            remedy="Set autovacuum = on, and run VACUUM once.",
        )
    for table, dead, live, vacuumed in session.rows("inspect_dead_tuples"):
        lately = vacuumed is not None and vacuumed < VACUUMED_LATELY
        if dead > MANY_DEAD and dead > live and not lately:
            return warning(
                "dead tuples",
                f"{table} has {dead} dead rows beside {live} live ones, and was not vacuumed "
                "lately.",
                remedy=f"Look for what holds VACUUM back (an old transaction, a replication slot), "
                f"then run VACUUM {table}.",
            )
    return ok("dead tuples", "No table has more dead rows than autovacuum can be expected to keep.")


def _judge_transactions(session: Session) -> Finding:
    for pid, whose, state, age in session.rows("inspect_transactions"):
        if age < LONG_TRANSACTION:
            break
        judge = problem if age >= ENDLESS_TRANSACTION else warning
        kind = "prepared" if pid is None else "open"
        return judge(
            "open transactions",
            f"A transaction of {whose} ({state}) has been {kind} for {rough(age)}: no dead row "
            "that is younger can be removed.",
            remedy=f"COMMIT PREPARED or ROLLBACK PREPARED '{whose}'."
            if pid is None
            else f"End it where it was begun, or with SELECT pg_terminate_backend({pid}).",
        )
    return ok("open transactions", f"None is older than {format_duration(LONG_TRANSACTION)}.")


# --- the work ---------------------------------------------------------------------------


def _judge_work(session: Session, *, lease: timedelta) -> Iterator[Finding]:
    ((*_, at),) = session.rows("inspect_session")
    now = session.now or at
    with session.transaction():
        session.connection.execute(
            "SET LOCAL enable_seqscan = on"
        )  # it does read all that is ready
        session.connection.execute("SET LOCAL enable_sort = on")
        rows = session.rows("inspect_backlog", now=session.now)
    peers = [decode_peer(row) for row in session.rows("workers")]
    paused = [row[0] for row in session.rows("paused")]
    yield from judge_workers(peers, now=now, lease=lease)
    alive = [peer for peer in peers if not is_silent(peer, now=now, lease=lease)]
    yield from judge_backlog([Backlog(*row) for row in rows], alive, paused=paused)
    ((failed, oldest),) = session.rows("inspect_failed", older_than=UNSEEN, now=session.now)
    yield judge_failed(failed, oldest)
