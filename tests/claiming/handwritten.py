"""The same claims as somebody would write them by hand, through the same engine and pool."""

from typing import Any

from sqlalchemy import Engine, bindparam, text

ON_POSTGRES = text(
    """
    WITH picked AS MATERIALIZED (
        SELECT id FROM invoices WHERE state = :free ORDER BY priority, id LIMIT :limit
        FOR UPDATE SKIP LOCKED
    )
    UPDATE invoices SET state = :taken, tries = tries + 1 FROM picked
    WHERE invoices.id = picked.id
    RETURNING invoices.id, invoices.state, invoices.priority, invoices.tries
    """
)

PICKED = text(
    "SELECT id FROM invoices WHERE state = :free ORDER BY priority, id LIMIT :limit "
    "FOR UPDATE SKIP LOCKED"
)
TAKEN = text("UPDATE invoices SET state = :taken, tries = tries + 1 WHERE id IN :ids").bindparams(
    bindparam("ids", expanding=True)
)
READ_BACK = text(
    "SELECT id, state, priority, tries FROM invoices WHERE id IN :ids ORDER BY priority, id"
).bindparams(bindparam("ids", expanding=True))


def claim_by_hand(engine: Engine, limit: int) -> list[Any]:
    if engine.dialect.name == "postgresql":
        return _on_postgres(engine, limit)
    return _on_mariadb(engine, limit)


def _on_postgres(engine: Engine, limit: int) -> list[Any]:
    with engine.begin() as connection:
        rows = connection.execute(
            ON_POSTGRES, {"free": "new", "taken": "sending", "limit": limit}
        ).all()
    return sorted(rows, key=lambda row: (row.priority, row.id))


def _on_mariadb(engine: Engine, limit: int) -> list[Any]:
    with engine.begin() as connection:
        connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        ids = connection.execute(PICKED, {"free": "new", "limit": limit}).scalars().all()
        if not ids:
            return []
        connection.execute(TAKEN, {"taken": "sending", "ids": ids})
        return list(connection.execute(READ_BACK, {"ids": ids}).all())
