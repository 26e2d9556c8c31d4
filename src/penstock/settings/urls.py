"""Database URLs: which ones we take, and how to show one without its secret.

No message here repeats any part of a URL but its scheme. A URL that is malformed is exactly
one in which we cannot be sure where the password ends.
"""

import re
from dataclasses import dataclass

from penstock.settings.kinds import Kind, Unfit

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_SECRET_PARAMETER = re.compile(
    r"""\w*(?:password|secret)\w* \s* = \s*
        (?P<hidden> '(?:[^'\\]|\\.)*' (?=\s|$)  |  [^&\s]* )""",
    re.IGNORECASE | re.VERBOSE,
)
# From the first colon behind the scheme to the last @, because a password may hold either one
# unquoted. That sometimes hides too much, which is the right side to err on.
_USER_AND_PASSWORD = re.compile(
    r"(?:^|//) [^:]* : (?! //) (?P<hidden> .* ) @", re.DOTALL | re.VERBOSE
)
_STRAY_PERCENT = re.compile(r"% (?: 00 | (?! [0-9a-f]{2}))", re.IGNORECASE | re.VERBOSE)
_HOST_AND_PORT = re.compile(r"(?: \[ [^]]* \] | [^]:[]* ) (?: : [0-9]* )?", re.VERBOSE)
_ENCODE = (
    "Percent-encode what is special in its user, password and parameters "
    "(@ is %40, : is %3A, / is %2F, & is %26, % is %25, a blank is %20)"
)


@dataclass(frozen=True, slots=True)
class DatabaseUrl(Kind[str]):
    """A URL that names a PostgreSQL database or an SQLite file."""

    sqlite: bool = True
    may_be_empty: bool = False

    @property
    def expected(self) -> str:
        return "a URL that begins with postgresql://" + (" or sqlite:///" if self.sqlite else "")

    def read(self, value: object) -> str:
        if not isinstance(value, str):
            raise Unfit(why=f"must be {self.expected}, written as text")
        if not value:
            if self.may_be_empty:
                return value
            raise Unfit(why=f"must be {self.expected}, and it is empty")
        # A line break often comes along from a file that holds the secret.
        if not value.isprintable() or value != value.strip():
            raise Unfit(why="has a line break, a control character or a blank at its end")
        return self._of_known_scheme(value)

    def _of_known_scheme(self, url: str) -> str:
        found = _SCHEME.match(url)
        if found is None:
            file = "; a file is named by sqlite:/// and then its path" if self.sqlite else ""
            raise Unfit(why=f"must be {self.expected}{file}")
        rest = url[found.end() :]
        match found[1].lower():
            case "postgresql" | "postgres":  # two spellings that libpq takes; one for our code
                if fault := _fault_of(rest):
                    raise Unfit(why=f"cannot be read: {fault}. {_ENCODE}")
                return f"postgresql://{rest}"
            case "sqlite" if self.sqlite:
                if not rest.startswith("/") or rest == "/":
                    raise Unfit(
                        why="must have three slashes and then the file (sqlite:///orders.db), "
                        "four before an absolute path, or be sqlite:///:memory:"
                    )
                return f"sqlite://{rest}"
            case scheme:
                # As SQLAlchemy writes it, say.
                driver = "; leave the name of the driver out" if "+" in scheme else ""
                raise Unfit(why=f"must be {self.expected}, not {scheme}://{driver}")


def _fault_of(rest: str) -> str | None:
    """Say what is wrong behind the scheme, where a driver would quote it, password and all.

    The parts are cut as libpq cuts them: a user ends at the first @, unless a slash comes first.
    """
    if " " in rest:
        return "it has a blank in it"
    if _STRAY_PERCENT.search(rest):
        return "it has a % without two hexadecimal digits behind it, or %00"
    behind_user = rest.partition("@")[2] if "@" in rest.partition("/")[0] else rest
    place = behind_user.partition("?")[0]
    if "@" in place:
        return "it has an @ where the host or the database is named"
    hosts = place.partition("/")[0].split(",")
    if not all(_HOST_AND_PORT.fullmatch(host) for host in hosts):
        return "there is no number behind the colon of its host, where the port belongs"
    if not _is_read_by_driver(f"postgresql://{rest}"):
        return "PostgreSQL does not know one of its parameters, or cannot tell where one ends"
    return None


def _is_read_by_driver(url: str) -> bool:
    try:
        from psycopg import ProgrammingError  # noqa: PLC0415 - only for PostgreSQL
        from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415
    except ImportError:
        return True  # opening the database says what to install
    try:
        conninfo_to_dict(url)
    except ProgrammingError:
        return False
    return True


def hide_password(url: str) -> str:
    """Return `url` with `***` for every password in it, fit for logs and messages."""
    # All found in the URL as it is: what one finds may begin or end within the other.
    found = [*_SECRET_PARAMETER.finditer(url), *_USER_AND_PASSWORD.finditer(url)]
    shown, end = "", 0
    for start, stop in sorted(one.span("hidden") for one in found):
        if start >= end:
            shown += f"{url[end:start]}***"
        end = max(end, stop)
    return shown + url[end:]
