"""Reading a stretch of the tables on SQLite, all of it as it was at one moment."""

from collections.abc import Iterable
from functools import partial

from penstock.model.examinations import Examined
from penstock.store.examining import examine_view
from penstock.store.scripts import Row
from penstock.store.sqlite.transaction import Transaction


def examine(view: Transaction, *, after: str | None, until: str | None, limit: int) -> Examined:
    return examine_view(view, partial(_events, view), after=after, until=until, limit=limit)


def _events(view: Transaction, after: str, until: str) -> Iterable[Row]:
    statement = view.statements["examine_events"]
    return view.connection.execute(statement.sql, {"after": after, "until": until})
