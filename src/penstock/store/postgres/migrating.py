"""The tables on PostgreSQL: made and changed on request, never by a reading command."""

from uuid import uuid4

from penstock.store.migrations import Applied, Migration, load_migrations, missing
from penstock.store.postgres.session import Session
from penstock.store.sql import in_schema

PACKAGE = "penstock.store.postgres"
LOCK_TIMEOUT = "2s"


def shipped() -> tuple[Migration, ...]:
    return load_migrations(PACKAGE)


def applied(session: Session) -> list[Applied]:
    ((has_tables,),) = session.rows("has_tables")
    return [Applied(*row) for row in session.rows("versions")] if has_tables else []


def migrate(session: Session, *, schema: str, where: str) -> list[int]:
    """Run what is missing, in one transaction; whoever comes at the same time waits."""
    with session.transaction():
        # Waiting longer in the server's queue would make every reader wait behind us.
        session.connection.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")
        session.rows("lock_migrations")
        before = applied(session)
        to_run = missing(shipped(), before, where=where)
        database_id = before[0].database_id if before else str(uuid4())
        if not before:
            session.rows("create_schema")
        for migration in to_run:
            session.connection.execute(in_schema(migration.sql, schema))
            session.rows(
                "record_migration",
                version=migration.version,
                name=migration.name,
                checksum=migration.checksum,
                min_compatible=migration.min_compatible,
                database_id=database_id,
            )
        return [migration.version for migration in to_run]
