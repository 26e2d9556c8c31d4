"""A connection of every kind that a caller may have, instead of just both databases."""

from collections.abc import Iterator

import pytest

from penstock.store.contract import Store
from tests.contract.completing import (
    ALL_KINDS,
    Handler,
    Kind,
    drop_effects,
    effects_table,
    with_connection,
)
from tests.contract.databases import Database


@pytest.fixture(params=ALL_KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    chosen: Kind = request.param
    return chosen


@pytest.fixture
def database(request: pytest.FixtureRequest, kind: Kind) -> Iterator[Database]:
    database: Database = request.getfixturevalue(kind[0])
    yield database
    drop_effects(database)


@pytest.fixture
def effects(database: Database, store: Store) -> str:
    return effects_table(database)


@pytest.fixture
def handler(kind: Kind, database: Database, store: Store) -> Handler:
    return with_connection(kind, database)
