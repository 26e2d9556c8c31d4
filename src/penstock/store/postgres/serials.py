"""Serials on PostgreSQL: one at a time, in the order of the commits."""

from collections.abc import Collection

from penstock.store.batches import encode_strings
from penstock.store.postgres.session import Session


def advance(session: Session, serials: Collection[str]) -> int:
    """Let the heads of these serials go; leave to others those that a caller is adding to.

    Returns how many serials were free.
    """
    if not serials:
        return 0
    wanted = sorted(serials)
    locked = [row[0] for row in session.rows("try_lock_serials", serials=wanted)]
    if locked:
        session.rows(
            "advance_serials",
            serials=encode_strings(locked),
            created="[]",
            now=session.now and session.now.isoformat(),
            notify="yes" if session.notify else "no",
        )
        session.rows("forget_empty_serials", serials=locked)
    if in_use := sorted(set(wanted) - set(locked)):
        session.rows("leave_propagations", serials=in_use)
    return len(locked)
