"""Whether the app's own database is at the other end of a caller's connection.

Asked before anything is written, and without leaving a trace. On PostgreSQL the id in the
tables tells; on SQLite the file itself does, for a copy of it has the same id.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from penstock.store.connections.refusals import OtherDatabase, TablesMissing
from penstock.store.migrations import Applied
from penstock.store.scripts import Script, Step
from penstock.store.sql import Statement

_SAVEPOINT = Step(Statement("savepoint", "SAVEPOINT penstock_check"), {})
_BACK_TO_SAVEPOINT = Step(Statement("back", "ROLLBACK TO SAVEPOINT penstock_check"), {})
_RELEASE = Step(Statement("release", "RELEASE SAVEPOINT penstock_check"), {})


class OurDatabase(Protocol):
    """The database of one store."""

    @property
    def dialect(self) -> str: ...

    def prepare(self) -> None:
        """Find out what the check needs, on connections of our own: it may take a while."""
        ...

    def check(self, kind: str) -> Script[None]:
        """Raise TablesMissing or OtherDatabase unless the connection leads here."""
        ...


class OurSchema:
    """A schema of a PostgreSQL database."""

    dialect = "postgresql"

    def __init__(self, statements: Mapping[str, Statement], read_id: Callable[[], str]) -> None:
        self._statements = statements
        self._read_id = read_id
        self._id: str | None = None

    def prepare(self) -> None:
        if self._id is None:
            self._id = self._read_id()

    def check(self, kind: str) -> Script[None]:
        found = yield from self._id_over_there(kind)
        if found != self._id:
            raise OtherDatabase(kind, found=found, wanted=str(self._id))

    def _id_over_there(self, kind: str) -> Script[str]:
        # A table that may not be read is an error, and an error ends a transaction: the
        # savepoint keeps it alive for the caller.
        yield _SAVEPOINT
        try:
            ((has_tables,),) = yield Step(self._statements["has_tables"], {})
            rows = (yield Step(self._statements["versions"], {})) if has_tables else []
        except Exception as error:
            yield _BACK_TO_SAVEPOINT
            yield _RELEASE
            raise TablesMissing(kind, reason=str(error).strip().partition("\n")[0]) from error
        yield _RELEASE
        if not rows:
            raise TablesMissing(kind)
        return Applied(*rows[0]).database_id


class OurFile:
    """A SQLite file. Tables that it lacks are made in the caller's own transaction.

    With a connection of our own we would wait for the caller, who waits for us.
    """

    dialect = "sqlite"

    def __init__(
        self,
        path: str,
        statements: Mapping[str, Statement],
        making_tables: Callable[[], Script[list[int]]],
    ) -> None:
        self._path = path
        self._statements = statements
        self._making_tables = making_tables

    def prepare(self) -> None:
        pass

    def check(self, kind: str) -> Script[None]:
        ((file,),) = yield Step(self._statements["database_file"], {})
        columns = yield Step(self._statements["columns_of_schema_version"], {})
        has_tables = ("database_id",) in columns
        if not self._is_ours(file):
            if not has_tables:
                raise TablesMissing(kind)
            raise OtherDatabase(kind, found=file or ":memory:", wanted=self._path)
        if has_tables:
            yield Step(self._statements["take_write_lock"], {})
        yield from self._making_tables()

    def _is_ours(self, file: str | None) -> bool:
        return bool(file) and Path(self._path).exists() and Path(str(file)).samefile(self._path)
