"""The pytest plugin: a fixture `penstock_app`, which is the App that the ini-file names.

[pytest]
penstock_app = orders:app
"""

from collections.abc import Iterator

import pytest

from penstock.testing.finding import named_app
from penstock.testing.manual import ManualApp

INI = "penstock_app"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(INI, "where the App is that the fixture `penstock_app` rebinds, as `orders:app`")


@pytest.fixture
def penstock_app(request: pytest.FixtureRequest) -> Iterator[ManualApp]:
    """The App of the ini-file in the hands of the test, on SQLite in memory and a clock to move.

    For another database, override it: `with ManualApp(app, database=…) as manual: yield manual`.
    """
    app = named_app(str(request.config.getini(INI)), directory=request.config.rootpath)
    with ManualApp(app) as manual:
        yield manual
