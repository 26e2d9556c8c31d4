from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock import App
from tests.support import tasks
from tests.support.auditing import audit
from tests.support.remote import Remote, remote_site
from tests.support.workers import Place, Workers, workers_at


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """SQLite, then PostgreSQL: what a test promises, it promises for both."""
    if request.param == "sqlite":
        place = Place(f"sqlite:///{tmp_path / 'penstock.db'}", "unused", tmp_path)
    else:
        url = request.getfixturevalue("postgres_url")
        place = Place(url, request.getfixturevalue("postgres_schema"), tmp_path)
    for variable, value in place.environment.items():
        monkeypatch.setenv(variable, value)
    return place


@pytest.fixture
def declared() -> App:
    """The App that workers in other processes import too; a file of tests may have another."""
    return tasks.app


@pytest.fixture
def app(place: Place, declared: App) -> Iterator[App]:
    """That App on the database of this test.

    Whatever a test did to the workers, nothing is lost and every run is explained.
    """
    declared.configure(database=place.url, schema=place.schema)
    declared.migrate()
    yield declared
    found = audit(declared.store, place)
    declared.close()
    assert found == []


@pytest.fixture
def workers(place: Place, app: App) -> Iterator[Workers]:
    with workers_at(place, app.store) as workers:
        yield workers


@pytest.fixture
def make_app(place: Place) -> Iterator[Callable[[], App]]:
    """Apps of the test's own, for tasks that are declared inside it."""
    made: list[App] = []

    def make() -> App:
        app = App(place.url, schema=place.schema, migrate=True)
        made.append(app)
        return app

    yield make
    found = [sentence for app in made for sentence in audit(app.store, place)]
    for app in made:
        app.close()
    assert found == []


@pytest.fixture
def remote(postgres_url: str, postgres_schema: str, tmp_path: Path) -> Iterator[Remote]:
    """Workers that reach PostgreSQL through a network that fails on request."""
    with remote_site(postgres_url, postgres_schema, tmp_path) as remote:
        yield remote
