"""SQL lives in `.sql` files, one named statement after the other, as it would be typed.

A file writes parameters as `:name` and puts every table into the schema `penstock`, so a
statement can be pasted into a shell and explained. What differs at run time is rendered
here: the real schema, and the parameter style of the driver.
"""

import re
from collections.abc import Mapping
from functools import cached_property
from importlib.resources import files

import msgspec

_NAME = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*\n?", re.MULTILINE)
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)\b")  # not the second colon of a cast
_SCHEMA = re.compile(r"\bpenstock\.(?=[a-z])|(?<=SCHEMA IF NOT EXISTS )penstock\b")


class Statement(msgspec.Struct, frozen=True, dict=True):
    """One named statement, ready for any driver."""

    name: str
    sql: str  # parameters as :name, which is also what sqlite3 takes

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """The names, each once, in the order in which they first appear."""
        return tuple(dict.fromkeys(_PARAMETER.findall(self.sql)))

    @cached_property
    def question_marks(self) -> str:
        """For sqlite3, to be given a value for each place, in their order: no names to look up."""
        return _PARAMETER.sub("?", self.sql)

    @cached_property
    def pyformat(self) -> str:
        """For psycopg: `%(name)s`."""
        return _PARAMETER.sub(r"%(\1)s", self.sql.replace("%", "%%"))

    @cached_property
    def dollar(self) -> str:
        """For asyncpg: `$1`, to be given the values in the order of `parameters`."""
        place = {name: f"${number}" for number, name in enumerate(self.parameters, start=1)}
        return _PARAMETER.sub(lambda match: place[match[1]], self.sql)


def load_statements(package: str, *, schema: str | None = None) -> Mapping[str, Statement]:
    """Read every named statement of a package's `.sql` files."""
    statements: dict[str, Statement] = {}
    for file in sorted(files(package).iterdir(), key=lambda file: file.name):
        if not file.name.endswith(".sql"):
            continue
        _, *named = _NAME.split(file.read_text(encoding="utf-8"))
        for name, body in zip(named[::2], named[1::2], strict=True):
            if name in statements:
                message = f"two statements of {package} are called {name!r}"
                raise ValueError(message)
            sql = _COMMENT.sub("", body).strip().rstrip(";")
            statements[name] = Statement(name, in_schema(sql, schema) if schema else sql)
    return statements


def in_schema(sql: str, schema: str) -> str:
    """Put the tables that `sql` names into `schema`, whatever the search_path is."""
    quoted = '"' + schema.replace('"', '""') + '"'
    literal = "'" + schema.replace("'", "''") + "'"
    moved = _SCHEMA.sub(lambda match: f"{quoted}." if match[0].endswith(".") else quoted, sql)
    return moved.replace("'penstock'", literal)
