"""Arrays as the server reads them.

Given a list, the driver looks at every item several times, to find out what they have in common:
for the names of a hundred tasks that took a tenth of a claim.
"""

from collections.abc import Iterable
from functools import lru_cache


def array(items: Iterable[object]) -> str:
    """Write numbers, or whatever else needs no quotes."""
    return "{" + ",".join([str(item) for item in items]) + "}"


def text_array(texts: Iterable[str | None]) -> str:
    return "{" + ",".join([_quoted(text) for text in texts]) + "}"


def _quoted(text: str | None) -> str:
    if text is None:
        return "NULL"
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


@lru_cache(maxsize=64)
def names_array(names: frozenset[str]) -> str:
    """Write a set that is asked for again and again."""
    return text_array(names)
