"""What a claim costs beside the same SQL written by hand, compared within one run and by turns.

What disturbs one side disturbs the other; another program's minute cannot make a comparison fail,
because there are three, and a path that is really too slow shows in each of them.
"""

import time
from collections.abc import Callable
from statistics import median

import pytest
from sqlalchemy import Engine, text

from penstock.claiming import PathName, claim
from tests.claiming.handwritten import claim_by_hand
from tests.claiming.tables import NEW, SENDING, URGENT, fill, invoices

BATCH = 50
COMPARISONS = 3
TURNS = 80

databases = pytest.mark.parametrize("database", ["postgres", "mariadb"])
AT_LEAST_OF_HAND_WRITTEN = 0.7


def most(measure: Callable[[], float], *, enough: float) -> float:
    """Measure up to three times, until it is `enough`; return the most."""
    measured: list[float] = []
    while len(measured) < COMPARISONS:
        measured.append(measure())
        if measured[-1] >= enough:
            break
    return max(measured)


def refill(engine: Engine, count: int) -> None:
    with engine.begin() as connection:
        connection.execute(text("TRUNCATE TABLE invoices"))
    fill(engine, count)
    with engine.begin() as connection:
        # Hand-written joins are planned by it; without, theirs walk through the whole table.
        analyse = "ANALYZE" if engine.dialect.name == "postgresql" else "ANALYZE TABLE"
        connection.execute(text(f"{analyse} invoices"))


@pytest.mark.performance
@databases
def test_a_claim_takes_little_longer_than_hand_written_sql(
    request: pytest.FixtureRequest, database: str, note: Callable[[str], None]
) -> None:
    engine: Engine = request.getfixturevalue(database)
    by_hand: list[float] = []
    by_claim: list[float] = []
    on_the_floor: list[float] = []

    def claimed(path: PathName | None) -> object:
        return claim(
            engine,
            invoices,
            where=NEW,
            values=SENDING,
            limit=BATCH,
            order_by=URGENT,
            path=path,
        )

    def share() -> float:
        for durations in (by_hand, by_claim, on_the_floor):
            durations.clear()
        refill(engine, 3 * TURNS * BATCH)
        sides: list[tuple[list[float], Callable[[], object]]] = [
            (by_hand, lambda: claim_by_hand(engine, BATCH)),
            (by_claim, lambda: claimed(None)),
        ]
        for turn in range(TURNS):
            # Who comes second walks over what the first has just left behind.
            for durations, call in sides if turn % 2 else reversed(sides):
                durations.append(duration(call))
            if turn % 4 == 0:
                on_the_floor.append(duration(lambda: claimed("portable")))
        return median(by_hand) / median(by_claim)

    compared = most(share, enough=AT_LEAST_OF_HAND_WRITTEN)

    note(
        f"{1000 * median(by_claim):.2f} ms for {BATCH} rows, by hand "
        f"{1000 * median(by_hand):.2f} ms, on the floor {1000 * median(on_the_floor):.2f} ms: "
        f"{compared:.2f} of the rate by hand"
    )
    assert compared >= AT_LEAST_OF_HAND_WRITTEN


def duration(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun
