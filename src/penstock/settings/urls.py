"""Database URLs: which ones we take, and how to show one without its secret.

No message here repeats any part of a URL but its scheme. A URL that is malformed is exactly
one in which we cannot be sure where the password ends.
"""

import re
from dataclasses import dataclass

from penstock.settings.kinds import Kind, Unfit

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_SECRET_PARAMETER = re.compile(
    r"""(?P<name> \w*(?:password|secret)\w* \s* = \s*)
        (?: '(?:[^'\\]|\\.)*'  |  [^&\s]* )""",
    re.IGNORECASE | re.VERBOSE,
)
# From the first colon behind the scheme to the last @, because a password may hold either one
# unquoted. That sometimes hides too much, which is the right side to err on.
_USER_AND_PASSWORD = re.compile(
    r"(?P<user> (?:^|//) [^:]* :) (?! //) .* (?= @)", re.DOTALL | re.VERBOSE
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


def hide_password(url: str) -> str:
    """Return `url` with `***` for every password in it, fit for logs and messages."""
    shown = _USER_AND_PASSWORD.sub(r"\g<user>***", url, count=1)
    return _SECRET_PARAMETER.sub(r"\g<name>***", shown)
