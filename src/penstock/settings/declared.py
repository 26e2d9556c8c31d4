"""Every setting, declared once: type, default, limits and meaning.

The annotations below are the table. The loader, the names of the environment variables and the
reference in the documentation are derived from them, so a new setting is one new line here.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import Annotated, Any, get_type_hints

from penstock.model.workers import SHORTEST_REST
from penstock.settings.kinds import (
    Address,
    Kind,
    Length,
    Names,
    SchemaName,
    Switch,
    WholeNumber,
)
from penstock.settings.nearest import unknown_key
from penstock.settings.urls import DatabaseUrl, hide_password

PREFIX = "PENSTOCK_"

# Long enough for any program, short enough that date arithmetic cannot overflow.
A_CENTURY_IN_DAYS = 36_500


@dataclass(frozen=True, slots=True)
class About:
    """What an annotation says about its setting beyond the type."""

    kind: Kind[Any]
    meaning: str
    example: object = None


@dataclass(frozen=True, slots=True, repr=False)
class DatabaseSettings:
    """Where the tasks are kept."""

    url: Annotated[
        str,
        About(
            DatabaseUrl(),
            "The database: `postgresql://user@host/db`, `sqlite:///orders.db` or "
            "`sqlite:///:memory:`. `postgres://` is read as `postgresql://`.",
        ),
    ] = "postgresql://localhost/app"
    schema: Annotated[
        str,
        About(SchemaName(), "The PostgreSQL schema of Penstock's tables. SQLite has none."),
    ] = "penstock"
    notify: Annotated[
        bool,
        About(
            Switch(),
            "Whether a commit wakes sleeping workers: one NOTIFY per transaction and queue. "
            "Without it they find work when they poll.",
        ),
    ] = True
    listen_url: Annotated[
        str,
        About(
            DatabaseUrl(sqlite=False, may_be_empty=True),
            "A direct connection for LISTEN when `url` goes through PgBouncer. Empty: `url`.",
            example="postgresql://localhost:5432/app",
        ),
    ] = ""

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(url={hide_password(self.url)!r}, schema={self.schema!r}, "
            f"notify={self.notify!r}, listen_url={hide_password(self.listen_url)!r})"
        )


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """How a worker works."""

    slots: Annotated[
        int,
        About(WholeNumber(1, 10_000), "How many tasks a worker runs at the same time."),
    ] = 10
    queues: Annotated[
        tuple[str, ...],
        About(
            Names(),
            "The queues that a worker serves. Empty: all queues of the tasks that it knows.",
            example=("mail", "default"),
        ),
    ] = ()
    heartbeat: Annotated[
        timedelta,
        About(Length(SHORTEST_REST), "How often a worker says that it is alive."),
    ] = timedelta(seconds=3)
    lease: Annotated[
        timedelta,
        About(
            Length(SHORTEST_REST),
            "How long a worker may be silent before its tasks are recovered. At least two "
            "heartbeats.",
        ),
    ] = timedelta(seconds=15)
    grace: Annotated[
        timedelta,
        About(
            Length(timedelta(0)),
            "How long a worker that was told to stop lets running tasks finish before it "
            "releases them.",
        ),
    ] = timedelta(seconds=30)
    poll: Annotated[
        timedelta,
        About(
            Length(SHORTEST_REST),
            "How often a worker looks for work that no wake-up told it of: a safety net. Where "
            "LISTEN is not possible it looks every 500 ms instead, and says so.",
        ),
    ] = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """What workers show of themselves over HTTP: `/metrics`, `/livez` and `/readyz`."""

    port: Annotated[
        int,
        About(
            WholeNumber(0, 65_535),
            "The port of a worker's metrics and health; several processes take as many ports from "
            "it. 0: none.",
            example=9108,
        ),
    ] = 0
    host: Annotated[
        str,
        About(Address(), "The address to serve them on.", example="0.0.0.0"),  # noqa: S104
    ] = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class PrivacySettings:
    """What commands do not print, although it is stored."""

    hidden: Annotated[
        tuple[str, ...],
        About(
            Names("argument"),
            "Members of arguments, results and workflows' inputs and contexts that commands print "
            "as `***`: by name, in any case, at any depth. They are stored all the same.",
            example=("password", "token", "iban"),
        ),
    ] = ("password", "secret", "token")


@dataclass(frozen=True, slots=True)
class EventSettings:
    """How long history is kept."""

    retention_days: Annotated[
        int,
        About(
            WholeNumber(1, A_CENTURY_IN_DAYS),
            "How many days the events of finished executions are kept. Those of live and failed "
            "ones stay.",
        ),
    ] = 90


@dataclass(frozen=True, slots=True)
class CleanupSettings:
    """How long finished executions are kept."""

    completed_after_days: Annotated[
        int,
        About(
            WholeNumber(1, A_CENTURY_IN_DAYS),
            "After how many days completed, skipped and cancelled executions are removed. "
            "Failed ones stay until someone decides.",
        ),
    ] = 30


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings, each with a value. `source_of` says where a value came from."""

    database: DatabaseSettings = field(default_factory=DatabaseSettings)
    worker: WorkerSettings = field(default_factory=WorkerSettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    privacy: PrivacySettings = field(default_factory=PrivacySettings)
    execution_events: EventSettings = field(default_factory=EventSettings)
    cleanup: CleanupSettings = field(default_factory=CleanupSettings)
    sources: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    def source_of(self, name: str) -> str:
        """Say where the value of "section.key" came from.

        The answer is a place in a file ("penstock.toml:12"), the name of an environment variable,
        "argument", "command line" or "default". An unknown name raises UnknownSetting.
        """
        if name not in SETTINGS:
            raise unknown_key(name, source=None, valid=SETTINGS)
        return self.sources.get(name, "default")


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting, as its declaration describes it."""

    section: str
    key: str
    kind: Kind[Any]
    default: Any
    meaning: str
    example: Any

    @property
    def name(self) -> str:
        return f"{self.section}.{self.key}"

    @property
    def variable(self) -> str:
        return f"{PREFIX}{self.section}_{self.key}".upper()


def _sections() -> dict[str, Any]:
    return {name: hint for name, hint in get_type_hints(Settings).items() if name != "sources"}


def _settings() -> Iterator[Setting]:
    for section, declaration in SECTIONS.items():
        hints = get_type_hints(declaration, include_extras=True)
        for declared in fields(declaration):
            (about,) = hints[declared.name].__metadata__
            yield Setting(
                section=section,
                key=declared.name,
                kind=about.kind,
                default=declared.default,
                meaning=about.meaning,
                example=declared.default if about.example is None else about.example,
            )


SECTIONS: Mapping[str, Any] = _sections()
"""The class of each section, by the section's name."""

SETTINGS: Mapping[str, Setting] = {setting.name: setting for setting in _settings()}
"""Every setting by its dotted name, in the order of the declaration."""
