"""Eight processes empty one table together."""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

import pytest
from sqlalchemy import Engine, select

from penstock.claiming import PathName
from tests.claiming.racing import race
from tests.claiming.tables import count_of, fill, invoices

ROWS = 20_000
BATCH = 50


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_each_row_goes_to_one_caller_and_no_error_escapes(
    racing: ProcessPoolExecutor, engine: Engine, path: PathName | None, note: Callable[[str], None]
) -> None:
    fill(engine, ROWS)

    finished = race(racing, engine, path, limit=BATCH)

    note(f"{finished.rate:,.0f} rows a second")
    assert finished.given == dict.fromkeys(range(1, ROWS + 1), 1)
    assert finished.largest <= BATCH
    assert count_of(engine, "sending") == ROWS
    with engine.connect() as connection:
        assert connection.execute(select(invoices.c.tries).distinct()).scalars().all() == [1]
