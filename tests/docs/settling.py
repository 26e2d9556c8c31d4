"""What changes from one run to the next, put into words that stay.

The page `docs/reference/commands-at-work.md` tells its reader the same rules.
"""

import re
import socket
from pathlib import Path

from penstock.settings import hide_password

MOMENT = "2026-11-15 09:00:00"
DIRECTORY = "/srv/shop"
URL = "sqlite:///orders.db"
NAME = "shop:4711"
LENGTH = "1s"

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d(?P<mark>[ T])\d\d:\d\d:\d\d(?P<part>\.\d+)?")
_DURATION = r"(?:\d+(?:\.\d+)?(?:ms|[smhd]))+"
_LENGTH = re.compile(rf"\b(for|within) {_DURATION}|(?<!more than )\b{_DURATION}( ago)\b")
_SECONDS = re.compile(r"(?<=_seconds )[\d.e-]+|(?<=\bwithin )\d+ ms")
_SIZE = re.compile(r"\d+\.\d MB")
_CELL = re.compile(rf"{_DURATION}|\d+\.\d{{3}} s")
_COLUMN = re.compile(r"\S+(?: \S+)*")
_HEAD = re.compile(r"[A-Z]+(?: [A-Z]+)*(?:  +[A-Z]+(?: [A-Z]+)*)+")


class Words:
    """The ids of one run and those on the page; the nth that appears has the number n there."""

    def __init__(self, directory: Path, url: str = URL, schema: str = "penstock") -> None:
        self._directory = directory
        self._url = hide_password(url)  # as all that we say does
        self._schema = schema
        self._settled: dict[str, str] = {}

    def real(self, command: str) -> str:
        """Return what to type for a command on the page."""
        back = {settled: real for real, settled in self._settled.items()}
        return _UUID.sub(lambda found: back.get(found[0], found[0]), command)

    def settled(self, output: str) -> str:
        """Return what the page shows of this output."""
        told: list[str] = []
        lines = output.splitlines()
        while lines:
            if _HEAD.fullmatch(lines[0].rstrip()):
                end = next((n for n, line in enumerate(lines) if not line.strip()), len(lines))
                told += self._table(lines[:end])
                lines = lines[end:]
            else:
                told.append(self._line(lines.pop(0)))
        return "".join(f"{line.rstrip()}\n" for line in told)

    def _line(self, line: str) -> str:
        line = line.replace(self._url, URL).replace(str(self._directory), DIRECTORY)
        line = _SIZE.sub("0.1 MB", line.replace(self._schema, "penstock"))
        line = re.sub(rf"\b{re.escape(socket.gethostname())}:\d+\b", NAME, line)
        line = _UUID.sub(lambda found: self._id(found[0]), line)
        line = _MOMENT.sub(
            lambda found: MOMENT.replace(" ", found["mark"]) + (".000" if found["part"] else ""),
            line,
        )
        line = _LENGTH.sub(
            lambda found: f"{found[1]} {LENGTH}" if found[1] else LENGTH + found[2], line
        )
        return _SECONDS.sub(lambda found: "1 ms" if found[0].endswith("ms") else "0.001", line)

    def _table(self, lines: list[str]) -> list[str]:
        """Settle each cell, then lay the columns out again: words have other lengths by now."""
        starts = [found.start() for found in _COLUMN.finditer(lines[0])]
        ends = [*starts[1:], None]
        rows = [
            [self._cell(line[start:end].strip()) for start, end in zip(starts, ends, strict=True)]
            for line in lines
        ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            for row in rows
        ]

    def _cell(self, cell: str) -> str:
        if _CELL.fullmatch(cell):
            return "0.100 s" if cell.endswith(" s") else LENGTH
        return self._line(cell)

    def _id(self, real: str) -> str:
        if real not in self._settled:
            self._settled[real] = f"01990a3c-6c1e-7b54-9d2f-{len(self._settled) + 1:012d}"
        return self._settled[real]
