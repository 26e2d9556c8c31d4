from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.store.sqlite.store import SqliteStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    """A new SQLite file, `penstock.db`."""
    store = SqliteStore(tmp_path / "penstock.db")
    store.migrate()
    yield store
    store.close()
