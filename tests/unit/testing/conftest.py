"""An App whose own database is nowhere, in the hands of a test, on each kind of database."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import App
from penstock.testing import ManualApp

ELSEWHERE = "sqlite:////a/place/that/does/not/exist.db"


@pytest.fixture
def app() -> App:
    return App(ELSEWHERE)


@pytest.fixture(params=["memory", "file", "postgres"])
def manual(request: pytest.FixtureRequest, app: App, tmp_path: Path) -> Iterator[ManualApp]:
    databases = {"memory": "sqlite:///:memory:", "file": f"sqlite:///{tmp_path / 'tests.db'}"}
    if request.param == "postgres":
        databases["postgres"] = request.getfixturevalue("postgres_url")
    with ManualApp(app, database=databases[request.param]) as manual:
        yield manual
