"""The tables that are claimed from in these tests: somebody's, not Penstock's."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import (
    Column,
    DateTime,
    Engine,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    func,
    insert,
    select,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

metadata = MetaData()

invoices = Table(
    "invoices",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("state", String(20), nullable=False),
    Column("priority", Integer, nullable=False, default=0),
    Column("tries", Integer, nullable=False, default=0),
    # The criteria first, then the order: the first rows of it are the next to be claimed.
    Index("invoices_by_state", "state", "priority", "id"),
)

# Two columns make the key, and neither alone does.
lines = Table(
    "lines",
    metadata,
    Column("invoice", Integer, primary_key=True, autoincrement=False),
    Column("number", String(8), primary_key=True),
    Column("state", String(20), nullable=False),
    Column("weight", Integer, nullable=False, default=0),
)


class Base(DeclarativeBase):
    metadata = metadata


class Job(Base):
    """With a lease, a fence, a version, and a subclass in the same table."""

    __tablename__ = "jobs"
    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "job"}  # noqa: RUF012

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    kind: Mapped[str] = mapped_column(String(10))
    state: Mapped[str] = mapped_column("job_state", String(20), default="new")
    locked_until: Mapped[datetime | None] = mapped_column(DateTime)
    fence: Mapped[int] = mapped_column(default=0)
    title: Mapped[str] = mapped_column(String(40), default="")


class Report(Job):
    __mapper_args__ = {"polymorphic_identity": "report"}  # noqa: RUF012


NEW = invoices.c.state == "new"
SENDING: dict[Any, Any] = {"state": "sending", "tries": invoices.c.tries + 1}
URGENT = (invoices.c.priority, invoices.c.id)


def fill(engine: Engine, count: int, *, priorities: Sequence[int] = (0,)) -> None:
    """Put so many new invoices there, from 1; priorities take turns."""
    rows = [
        {"id": n, "state": "new", "priority": priorities[n % len(priorities)], "tries": 0}
        for n in range(1, count + 1)
    ]
    with engine.begin() as connection:
        connection.execute(insert(invoices), rows)


def count_of(engine: Engine, state: str) -> int:
    with engine.connect() as connection:
        counted = select(func.count()).select_from(invoices).where(invoices.c.state == state)
        return connection.execute(counted).scalar_one()
