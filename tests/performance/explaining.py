"""A PostgreSQL store that has every statement explained, where it runs, before it runs it."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from psycopg import sql

from penstock.store.postgres.connecting import Connection
from penstock.store.postgres.deadlines import WatchedConnection
from penstock.store.postgres.session import Session
from penstock.store.postgres.store import PostgresStore
from penstock.store.scripts import Row
from tests.contract.databases import PostgresDatabase

PLANNED = ("WITH", "SELECT", "INSERT", "UPDATE", "DELETE")


class Step(NamedTuple):
    """One node of a plan, after it ran: the rows it looked at, and the blocks, those below too."""

    statement: str
    kind: str
    table: str | None
    rows: int
    blocks: int


class _ExplainingSession(Session, frozen=True):
    explain: Callable[[Connection, str, Mapping[str, object]], None]

    def rows(self, name: str, /, **parameters: object) -> list[Row]:
        self.explain(self.connection, name, parameters)
        return Session.rows(self, name, **parameters)


class ExplainingStore(PostgresStore):
    """Notes what each step of each plan touched.

    A statement is prepared when it is first needed, and stays so: with
    `force_generic_plan`, the plan of that day is the plan of every day.
    """

    def __init__(
        self, database: PostgresDatabase, *, plan_cache_mode: str, url: str | None = None
    ) -> None:
        super().__init__(url or database.url, schema=database.schema)
        self.steps: list[Step] = []
        self._plan_cache_mode = plan_cache_mode
        self._prepared: set[tuple[int, str]] = set()

    def _on(self, connection: WatchedConnection) -> Session:
        return _ExplainingSession(
            connection, self.statements, self._now(), self._notify, self._explain
        )

    def _explain(self, connection: Connection, name: str, parameters: Mapping[str, object]) -> None:
        statement = self.statements[name]
        if not statement.sql.startswith(PLANNED):
            return
        prepared = f"explained_{name}"
        # Under the locks of the transaction that it is part of; then undone.
        with connection.transaction(force_rollback=True):
            if (connection.info.backend_pid, name) not in self._prepared:
                self._prepared.add((connection.info.backend_pid, name))
                connection.execute(f"PREPARE {prepared} AS {statement.dollar}".encode())
            connection.execute(f"SET LOCAL plan_cache_mode = {self._plan_cache_mode}".encode())
            values = [sql.Literal(parameters[parameter]) for parameter in statement.parameters]
            given = sql.SQL("({})").format(sql.SQL(", ").join(values)) if values else sql.SQL("")
            row = connection.execute(
                sql.SQL("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE {}{}").format(
                    sql.Identifier(prepared), given
                )
            ).fetchone()
        assert row is not None
        self.steps += _steps(name, row[0][0]["Plan"])


def _steps(statement: str, node: Mapping[str, Any]) -> Iterator[Step]:
    looked_at: float = node["Actual Rows"] + sum(
        node.get(f"Rows Removed by {reason}", 0) for reason in ("Filter", "Index Recheck")
    )
    yield Step(
        statement=statement,
        kind=node["Node Type"],
        table=node.get("Relation Name"),
        rows=round(looked_at * node["Actual Loops"]),
        blocks=node["Shared Hit Blocks"] + node["Shared Read Blocks"],
    )
    for inner in node.get("Plans", ()):
        yield from _steps(statement, inner)
