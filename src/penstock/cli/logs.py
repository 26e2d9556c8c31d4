"""What a worker's log looks like: text for people, or JSON, one object a line.

A record that is emitted inside a task carries the id of its execution.
"""

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal

import msgspec

from penstock.cli.tables import printable
from penstock.engine.current import current_execution

LogFormat = Literal["text", "json"]

LEVELS = ("debug", "info", "warning", "error", "critical")
# What every record has, and what its way here has added: the rest is its `extra`.
_OF_EVERY_RECORD = frozenset(
    {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "execution_id"}
)


def configure_logging(level: str, log_format: LogFormat) -> None:
    """Send the records of this process to its standard error; the last call counts."""
    handler = logging.StreamHandler()
    handler.addFilter(_name_execution)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(capture=True)


def _name_execution(record: logging.LogRecord) -> bool:
    if getattr(record, "execution_id", None) is None:
        record.execution_id = current_execution.get()
    return True


class TextFormatter(logging.Formatter):
    """`2030-01-31 08:00:00.000 INFO penstock.worker: it started`.

    A message stays on its line, whatever is in it; the traceback of an exception follows below.
    """

    def __init__(self) -> None:
        super().__init__("{at} {levelname} {name}{where}: {message}", style="{")

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).astimezone().replace(tzinfo=None)
        record.at = at.isoformat(" ", "milliseconds")
        execution_id = getattr(record, "execution_id", None)
        record.where = f" [{execution_id}]" if execution_id else ""
        return super().format(record)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - named by logging
        # What a task raises or logs may come from outside, and must not look like a line of ours.
        record.message = printable(record.message.rstrip("\n"))
        return super().formatMessage(record)


class JsonFormatter(logging.Formatter):
    """One object a line: at, level, logger, pid, message, execution_id; error and extra if any."""

    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC),
            "level": record.levelname.lower(),
            "logger": record.name,
            "pid": record.process,
            "message": record.getMessage(),
            "execution_id": getattr(record, "execution_id", None),
        }
        if record.exc_info:
            told["error"] = self.formatException(record.exc_info)
        extra = {
            name: value for name, value in vars(record).items() if name not in _OF_EVERY_RECORD
        }
        if extra:  # apart from the rest, so that no name of theirs takes the place of one of ours
            told["extra"] = msgspec.Raw(_as_object(extra).encode())
        return _as_object(told)


def _as_object(told: Mapping[str, object]) -> str:
    """Return it as JSON, whatever is in it: no record must be lost over one of its values."""
    return f"{{{','.join(f'{_as_json(name)}:{_as_json(value)}' for name, value in told.items())}}}"


def _as_json(value: object) -> str:
    if isinstance(value, str):
        value = value.encode("utf-8", "backslashreplace").decode()  # lone surrogates are no UTF-8
    try:
        return msgspec.json.encode(value, enc_hook=str).decode()
    except Exception:  # noqa: BLE001 - it runs code of users, which may raise anything
        return _as_json(_described(value))


def _described(value: object) -> str:
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - as above
        return object.__repr__(value)
