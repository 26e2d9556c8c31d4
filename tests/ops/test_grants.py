"""The grants are enough for each role, and each of them is needed."""

import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from psycopg import sql

from penstock.errors import StoreUnavailable
from penstock.model.executions import Claimed, NewExecution, StepDone
from penstock.model.ids import new_id
from penstock.model.outcomes import Completed, DeferredFor, Failed, Released
from penstock.model.workers import WorkerInfo
from penstock.store.postgres.store import PostgresStore
from tests.contract import flows
from tests.contract.support import QUEUE as FLOW_QUEUE
from tests.contract.support import TASK as FLOW_TASK
from tests.e2e.command_line import CommandLine
from tests.ops.tools import OPS

GRANTS = (OPS / "postgres" / "grants.sql").read_text("utf-8")
ROLES = ("penstock_enqueuer", "penstock_worker", "penstock_monitor")
TASK, QUEUE, LINE = "send", "mail", "customer-1"


@dataclass(frozen=True)
class House:
    """A database of its own, with the tables and the three roles under names of their own."""

    owner_url: str
    tag: str

    def role(self, name: str) -> str:
        return f"{name}_{self.tag}"

    def execute(self, statement: str) -> None:
        with psycopg.connect(self.owner_url, autocommit=True) as connection:
            connection.execute(statement.encode())

    def renamed(self, statement: str) -> str:
        for name in ROLES:
            statement = re.sub(rf"\b{name}\b", self.role(name), statement)
        return statement

    def open(self, role: str | None = None) -> PostgresStore:
        """A store whose every connection acts as this role; without one, as the owner."""
        if role is None:
            return PostgresStore(self.owner_url)
        return PostgresStore(self.url_of(role))

    def url_of(self, role: str) -> str:
        return f"{self.owner_url}?options=-c%20role%3D{self.role(role)}"


@pytest.fixture(scope="module")
def house(postgres_url: str) -> Iterator[House]:
    tag = uuid.uuid4().hex[:8]
    name = f"penstock_grants_{tag}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        try:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        except psycopg.errors.InsufficientPrivilege:
            pytest.skip("the user of this server may not create databases and roles")
        house = House(urlunsplit(urlsplit(postgres_url)._replace(path=f"/{name}", query="")), tag)
        with closing(house.open()) as store:
            store.migrate()
        house.execute(house.renamed(GRANTS))
        yield house
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
        for role in ROLES:
            connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(house.role(role))))


# --- what each role does ----------------------------------------------------------------


def new(**options: object) -> NewExecution:
    return NewExecution(id=new_id(), task=TASK, args="{}", queue=QUEUE, **options)  # type: ignore[arg-type]


def enqueue_everything(house: House) -> None:
    with closing(house.open("penstock_enqueuer")) as store:
        store.check_schema()
        key = new_id()
        plain = new(key=key)
        store.create([plain, new(delay=timedelta(hours=1)), new(priority=3)])
        store.create([new(key=key)])
        store.create([new(serial=LINE), new(serial=LINE)])
        store.get([plain.id])
        store.find(task=TASK)
        store.history(plain.id)
        run_id = flows.start(store, flows.diamond())
        store.runs([run_id])
        with psycopg.connect(house.owner_url) as connection:
            role = sql.Identifier(house.role("penstock_enqueuer"))
            connection.execute(sql.SQL("SET ROLE {}").format(role))
            store.create_on(connection, [new()])
            store.signal_on(connection, plain.id, "paid", "1")


def work_through_everything(house: House) -> None:
    me, other = new_id(), new_id()
    with closing(house.open("penstock_worker")) as store:
        store.check_schema()
        for id_ in (me, other):
            store.register(WorkerInfo(id=id_, queues=[QUEUE], tasks=[TASK]))
        assert store.heartbeat(me).alive
        store.create([new() for _ in range(8)])
        store.create([new(serial=LINE), new(serial=LINE)])

        def claim(worker: str, limit: int) -> list[Claimed]:
            return store.claim(worker, queues=[QUEUE], tasks=[TASK], limit=limit)

        first, second, third, fourth, handler = claim(me, 5)
        store.start([first.lease])
        store.defer([second.lease])
        store.undefer([second.lease])
        store.progress(first.lease, "1")
        with psycopg.connect(house.owner_url) as connection:
            role = sql.Identifier(house.role("penstock_worker"))
            connection.execute(sql.SQL("SET ROLE {}").format(role))
            store.once_on(connection, handler.lease, "charged")
            store.complete_on(connection, handler.lease, result="null", started_at=None)
        store.read_back([handler.lease])
        store.settle(
            [
                Completed(lease=first.lease),
                Failed(lease=second.lease, error='{"type":"E"}'),
                Released(lease=third.lease),
                DeferredFor(lease=fourth.lease, delay=timedelta(0)),
            ]
        )
        for claimed in claim(other, 2):
            store.start([claimed.lease])
        (beat,) = [peer.seen for peer in store.workers() if peer.info.id == other]
        store.recover(me, dead=[beat])
        store.promote()
        store.chores()
        store.propagate()
        store.reconcile(me, [])
        store.cancel_requests(me)
        while claimed_now := claim(me, 100):
            store.settle([Completed(lease=one.lease, serial=one.serial) for one in claimed_now])
        _live_a_run(house, store, me)
        store.sweep(older_than=timedelta(0))
        store.sweep_events(older_than=timedelta(0))
        store.unregister(me)


def _live_a_run(house: House, store: PostgresStore, me: str) -> None:
    flows.start(store, flows.diamond())
    (first,) = store.claim(me, queues=[FLOW_QUEUE], tasks=[FLOW_TASK], limit=1)
    with psycopg.connect(house.owner_url) as connection:
        role = sql.Identifier(house.role("penstock_worker"))
        connection.execute(sql.SQL("SET ROLE {}").format(role))
        store.complete_on(connection, first.lease, result="null", started_at=None)
    store.propagate()
    told = new()
    store.create([told])
    (waiting,) = store.claim(me, queues=[QUEUE], tasks=[TASK], limit=1)
    store.store_steps([StepDone(waiting.lease, "first", "1")])
    store.memory(told.id)
    store.signal(told.id, "paid", "1")
    store.propagate()
    store.settle([Completed(lease=waiting.lease)])
    assert len(flows.live_through(store, worker_id=me)) == 3


def look_at_everything(house: House) -> None:
    with closing(house.open("penstock_monitor")) as store:
        store.check_schema()
        store.gauges()
        store.counts()
        store.find(task=TASK)
        store.history(new_id())
        store.workers()
        store.find_runs()


SCENES: dict[str, Callable[[House], None]] = {
    "penstock_enqueuer": enqueue_everything,
    "penstock_worker": work_through_everything,
    "penstock_monitor": look_at_everything,
}


@pytest.fixture(autouse=True)
def nothing_left_behind(house: House) -> Iterator[None]:
    yield
    house.execute(
        "DELETE FROM penstock.task_outbox; DELETE FROM penstock.task_executions;"
        "DELETE FROM penstock.execution_events; DELETE FROM penstock.workers;"
        "DELETE FROM penstock.serials; DELETE FROM penstock.propagations;"
        "DELETE FROM penstock.once_ledger; DELETE FROM penstock.workflow_executions;"
        "DELETE FROM penstock.run_propagations; DELETE FROM penstock.step_results;"
        "DELETE FROM penstock.signals; DELETE FROM penstock.task_wakes;"
    )


@pytest.mark.parametrize("role", ROLES)
def test_the_grants_are_enough(house: House, role: str) -> None:
    SCENES[role](house)


def _grants() -> list[tuple[str, str, str]]:
    """Each privilege by itself: what, on what, to whom."""
    found = re.findall(r"^GRANT (.+) ON (.+) TO (\w+);$", GRANTS, re.MULTILINE)
    return [(one, what, role) for privileges, what, role in found for one in privileges.split(", ")]


@pytest.mark.parametrize(
    ("privilege", "what", "role"),
    _grants(),
    ids=lambda value: value.replace("penstock_", "").replace("penstock.", ""),
)
def test_each_of_the_grants_is_needed(house: House, privilege: str, what: str, role: str) -> None:
    name = house.role(role)
    house.execute(f"REVOKE {privilege} ON {what} FROM {name}")
    try:
        with pytest.raises((psycopg.errors.InsufficientPrivilege, StoreUnavailable)) as refused:
            SCENES[role](house)
        assert "permission denied" in f"{refused.value} {refused.value.__cause__}"
    finally:
        house.execute(f"GRANT {privilege} ON {what} TO {name}")


@pytest.mark.parametrize(
    ("role", "allowed", "refused"),
    [
        ("penstock_worker", ("doctor", "verify", "status", "workers", "list"), ("pause mail",)),
        ("penstock_monitor", ("status", "workers", "list", "metrics"), ("doctor", "verify")),
        ("penstock_enqueuer", ("list",), ("doctor", "verify", "status", "workers")),
    ],
)
def test_who_may_run_which_command(
    house: House,
    tmp_path: Path,
    role: str,
    allowed: Sequence[str],
    refused: Sequence[str],
) -> None:
    penstock = CommandLine(tmp_path, house.url_of(role))
    for command in allowed:
        assert "may not do this" not in penstock(*command.split()).err, command
    for command in refused:
        answer = penstock(*command.split())
        assert answer.status != 0, command
        assert "may not do this: permission denied" in answer.err, command


def test_no_table_is_forgotten(house: House) -> None:
    with psycopg.connect(house.owner_url) as connection:
        tables = connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'penstock'"
        ).fetchall()
    granted = {what for _, what, role in _grants() if role == "penstock_worker"}
    assert [table for (table,) in tables if f"penstock.{table}" not in granted] == []


@pytest.mark.parametrize(
    ("role", "statement"),
    [
        ("penstock_enqueuer", "DELETE FROM penstock.task_executions"),
        ("penstock_enqueuer", "DELETE FROM penstock.execution_events"),
        ("penstock_enqueuer", "UPDATE penstock.execution_events SET data = NULL"),
        ("penstock_worker", "UPDATE penstock.execution_events SET data = NULL"),
        ("penstock_worker", "ALTER TABLE penstock.task_executions ADD COLUMN mine text"),
        ("penstock_worker", "CREATE TABLE penstock.mine (id integer)"),
        ("penstock_worker", "DELETE FROM penstock.schema_version"),
        ("penstock_monitor", "DELETE FROM penstock.workers"),
        ("penstock_monitor", "INSERT INTO penstock.paused_queues VALUES ('mail', now())"),
    ],
)
def test_nothing_else_is_allowed(house: House, role: str, statement: str) -> None:
    with psycopg.connect(house.owner_url) as connection:
        connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(house.role(role))))
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(statement.encode())
