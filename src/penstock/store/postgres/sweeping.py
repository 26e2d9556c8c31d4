"""Retention on PostgreSQL: what has ended long ago goes, in batches that hold few locks."""

from datetime import timedelta

from penstock.model.executions import Swept
from penstock.store.decoding import LOWEST_ID
from penstock.store.postgres.session import Session
from penstock.store.ranges import behind


def sweep(
    session: Session, *, older_than: timedelta, after: str | None, limit: int, dry_run: bool
) -> Swept:
    ((removed, found, last, root),) = session.rows(
        "count_sweepable" if dry_run else "sweep",
        older_than=older_than,
        after=after or LOWEST_ID,
        limit=limit,
        now=session.now,
    )
    following = None if found < limit else behind(last, root)
    return Swept(removed, following)


def sweep_events(
    session: Session, *, older_than: timedelta, after: str | None, limit: int, dry_run: bool
) -> Swept:
    begin = after or LOWEST_ID
    ((upto, end, before),) = session.rows(
        "events_to_look_at", older_than=older_than, after=begin, limit=limit, now=session.now
    )
    following = None if upto == end else upto
    found = session.rows("roots_to_forget", after=begin, upto=upto, before=before)
    if not found:
        return Swept(0, following)
    roots = [row[0] for row in found]
    if dry_run:
        ((removed,),) = session.rows("count_events_of", roots=roots)
    else:
        ((removed,),) = session.rows("sweep_events", roots=roots, before=before)
    return Swept(removed, following)
