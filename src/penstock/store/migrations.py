"""Which migrations there are, which have run, and whether this version can work with them."""

import hashlib
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import NamedTuple

import msgspec

from penstock.errors import SchemaAhead, SchemaBehind, SchemaChanged, SchemaMissing

_FILE = re.compile(r"(\d{4})_(\w+)\.sql")
_MIN_COMPATIBLE = re.compile(r"^-- min_compatible: (\d+)$", re.MULTILINE)


class Migration(msgspec.Struct, frozen=True):
    """One step of the schema. It only adds, so that workers of the version before go on."""

    version: int
    name: str
    sql: str
    min_compatible: int

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


class Applied(NamedTuple):
    """A migration as the database remembers it."""

    version: int
    checksum: str
    min_compatible: int
    database_id: str


@cache
def load_migrations(package: str) -> tuple[Migration, ...]:
    """Read the migrations of a store's package, in order, without gaps."""
    migrations = []
    for file in files(package).joinpath("migrations").iterdir():
        if match := _FILE.fullmatch(file.name):
            sql = file.read_text(encoding="utf-8")
            (min_compatible,) = _MIN_COMPATIBLE.findall(sql)
            migrations.append(Migration(int(match[1]), match[2], sql, int(min_compatible)))
    migrations.sort(key=lambda migration: migration.version)
    if [migration.version for migration in migrations] != list(range(1, len(migrations) + 1)):
        message = f"the migrations of {package} are not numbered from 1 without gaps"
        raise ValueError(message)
    return tuple(migrations)


def missing(
    migrations: Sequence[Migration], applied: Sequence[Applied], *, where: str
) -> list[Migration]:
    """Return what has yet to run; raise SchemaChanged when what ran is not what we ship."""
    shipped = {migration.version: migration.checksum for migration in migrations}
    changed = [
        one.version for one in applied if shipped.get(one.version, one.checksum) != one.checksum
    ]
    if changed:
        raise SchemaChanged(where, versions=changed)
    done = {one.version for one in applied}
    return [migration for migration in migrations if migration.version not in done]


def check_compatible(
    migrations: Sequence[Migration], applied: Sequence[Applied], *, where: str
) -> None:
    """Raise a SchemaError unless this version can work with the tables as they are."""
    if not applied:
        raise SchemaMissing(where)
    needed, found = migrations[-1].version, applied[-1]
    if found.version < needed:
        raise SchemaBehind(where, found=found.version, needed=needed)
    if found.min_compatible > needed:
        raise SchemaAhead(
            where, found=found.version, known=needed, min_compatible=found.min_compatible
        )
    missing(migrations, applied, where=where)
