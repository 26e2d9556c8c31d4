"""The recipe of docs/how-to/claim-from-your-own-table.md: a lease that ends, and a fence."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from multiprocessing.connection import Connection as Pipe
from typing import Any

from sqlalchemy import DateTime, Engine, Index, and_, create_engine, text, update
from sqlalchemy.orm import Mapped, mapped_column

from penstock.claiming import PathName, claim
from tests.claiming.tables import Base

START = datetime(2026, 11, 15, 12)  # noqa: DTZ001 - MariaDB and SQLite keep no time zone
BATCH = 10
WORK = timedelta(seconds=3)
LEASE = BATCH * WORK * 2

MAX_TRIES = 5


class Delivery(Base):
    __tablename__ = "deliveries"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    finished_at: Mapped[datetime | None] = mapped_column(DateTime)
    locked_until: Mapped[datetime] = mapped_column(DateTime, default=START)
    fence: Mapped[int] = mapped_column(default=0)
    tries: Mapped[int] = mapped_column(default=0)

    __table_args__ = (
        Index(
            "deliveries_free",
            "locked_until",
            "id",
            postgresql_where=text("finished_at IS NULL"),
            sqlite_where=text("finished_at IS NULL"),
        ),
    )


def free(now: datetime) -> Mapping[str, Any]:
    """What a claim on deliveries asks for: what is open, and nobody's at this time."""
    return {
        "where": and_(
            Delivery.finished_at.is_(None),
            Delivery.locked_until <= now,
            Delivery.tries < MAX_TRIES,
        ),
        "order_by": [Delivery.locked_until, Delivery.id],
        "limit": BATCH,
    }


def take(engine: Engine, now: datetime, *, path: PathName | None = None) -> list[Delivery]:
    return claim(
        engine,
        Delivery,
        values={
            "locked_until": now + LEASE,
            "fence": Delivery.fence + 1,
            "tries": Delivery.tries + 1,
        },
        path=path,
        **free(now),
    )


def finish(engine: Engine, delivery: Delivery, now: datetime) -> bool:
    """Record that it is done, unless somebody else has claimed it since."""
    with engine.begin() as connection:
        done = connection.execute(
            update(Delivery)
            .where(Delivery.id == delivery.id, Delivery.fence == delivery.fence)
            .values(finished_at=now)
        )
    return done.rowcount == 1


def claim_and_wait(url: str, path: PathName | None, pipe: Pipe) -> None:
    """Claim, say what was claimed, and do the work when told to; too late, perhaps."""
    engine = create_engine(url)
    deliveries = take(engine, START, path=path)
    pipe.send([delivery.id for delivery in deliveries])
    now = pipe.recv()
    pipe.send([finish(engine, delivery, now) for delivery in deliveries])
    engine.dispose()
