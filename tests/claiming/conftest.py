import os
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import Engine, create_engine, delete, make_url, text

from penstock.claiming import PathName
from tests.claiming.mariadb import installed_programs, temporary_server
from tests.claiming.racing import racers
from tests.claiming.tables import metadata

OWN_SERVER = "PENSTOCK_TEST_MARIADB_URL"
UNAVAILABLE = (
    "no MariaDB: install Debian's package mariadb-server (.ci/run does), "
    f"or set {OWN_SERVER} to an empty database for SQLAlchemy"
)

MANY = 1_000

FIGURES = pytest.StashKey[dict[str, str]]()


@pytest.fixture
def note(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Shows what a test has measured at the end of the run, whether it passed or not."""
    figures = request.config.stash.setdefault(FIGURES, {})

    def note(figure: str) -> None:
        figures[request.node.name] = figure

    return note


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if figures := config.stash.get(FIGURES, {}):
        terminalreporter.section("claimed")
        for name, figure in figures.items():
            terminalreporter.line(f"{name}: {figure}")


@pytest.fixture(scope="session")
def mariadb_url() -> Iterator[str]:
    """SQLAlchemy's URL of an empty MariaDB database."""
    if url := os.environ.get(OWN_SERVER):
        yield url
        return
    programs = installed_programs()
    if programs is None:
        pytest.skip(UNAVAILABLE)
    with temporary_server(programs) as url:
        yield url


@pytest.fixture(scope="session")
def sqlalchemy_postgres_url(postgres_url: str) -> Iterator[str]:
    """SQLAlchemy's URL of an empty PostgreSQL schema."""
    schema = f"penstock_test_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
    url = make_url(postgres_url).set(drivername="postgresql+psycopg")
    url = url.update_query_dict({"options": f"-csearch_path={schema}"})
    yield url.render_as_string(hide_password=False)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(schema)))


def opened(url: str) -> Iterator[Engine]:
    engine = create_engine(url)
    metadata.drop_all(engine)
    metadata.create_all(engine)
    yield engine
    metadata.drop_all(engine)
    engine.dispose()


def emptied(engine: Engine) -> Iterator[Engine]:
    yield engine
    with engine.begin() as connection:
        for table in metadata.sorted_tables:
            if connection.execute(delete(table)).rowcount > MANY:
                # Nobody has vacuumed yet, and the next test would walk over what is left.
                connection.execute(text(f"TRUNCATE TABLE {table.name}"))


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[Engine]:
    yield from opened(f"sqlite:///{tmp_path / 'shop.db'}")


# Making tables takes these servers longer than most tests, so there is one set of them.
@pytest.fixture(scope="session")
def opened_postgres(sqlalchemy_postgres_url: str) -> Iterator[Engine]:
    yield from opened(sqlalchemy_postgres_url)


@pytest.fixture(scope="session")
def opened_mariadb(mariadb_url: str) -> Iterator[Engine]:
    yield from opened(mariadb_url)


@pytest.fixture
def postgres(opened_postgres: Engine) -> Iterator[Engine]:
    yield from emptied(opened_postgres)


@pytest.fixture
def mariadb(opened_mariadb: Engine) -> Iterator[Engine]:
    yield from emptied(opened_mariadb)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres), "mariadb"])
def engine(request: pytest.FixtureRequest) -> Engine:
    """An engine with empty tables, on each database in turn."""
    engine: Engine = request.getfixturevalue(request.param)
    return engine


@pytest.fixture(scope="session")
def racing() -> Iterator[ProcessPoolExecutor]:
    """Eight processes that claim at the same time when they are told to."""
    with racers() as pool:
        yield pool


@pytest.fixture(params=[None, "portable"], ids=["fast", "portable"])
def path(request: pytest.FixtureRequest) -> PathName | None:
    """The path that the database offers, and the floor."""
    chosen: PathName | None = request.param
    return chosen
