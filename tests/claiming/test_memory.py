"""The same contract over dicts and dataclasses."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from penstock.claiming import (
    InvalidClaim,
    InvalidLimit,
    MemoryTable,
    UnheldClaim,
    UnknownColumn,
)

Row = dict[str, Any]


@dataclass(frozen=True)
class Parcel:
    street: str
    number: int
    state: str = "new"
    fence: int = 0


def new(row: Row) -> bool:
    return bool(row["state"] == "new")


@pytest.fixture
def invoices() -> MemoryTable[Row]:
    return MemoryTable(
        {"id": n, "state": "new", "priority": n % 3, "tries": 0} for n in range(1, 9)
    )


TAKEN: dict[str, Any] = {"state": "sending", "tries": lambda row: row["tries"] + 1}


def test_rows_come_back_as_they_are_after_the_claim(invoices: MemoryTable[Row]) -> None:
    rows = invoices.claim(where=new, values=TAKEN, limit=2)
    assert rows == [
        {"id": 1, "state": "sending", "priority": 1, "tries": 1},
        {"id": 2, "state": "sending", "priority": 2, "tries": 1},
    ]
    assert invoices.rows()[:2] == rows


def test_no_row_changes_through_what_went_in_or_came_out() -> None:
    given: Row = {"id": 1, "state": "new", "tags": ["a"]}
    table: MemoryTable[Row] = MemoryTable([given])
    added = ["b"]
    given["tags"].append("changed")
    table.rows()[0]["tags"].append("changed")
    assert table.rows() == [{"id": 1, "state": "new", "tags": ["a"]}]

    (claimed,) = table.claim(where=new, values={"state": "sending", "tags": added}, limit=1)

    added.append("changed")
    claimed["tags"].append("changed")
    assert table.rows() == [{"id": 1, "state": "sending", "tags": ["b"]}]


def test_the_order_is_the_one_asked_and_ties_go_by_key(invoices: MemoryTable[Row]) -> None:
    values = {"state": "sending", "priority": lambda row: -row["priority"]}
    rows = invoices.claim(where=new, values=values, limit=4, order_by="-priority")
    assert [row["id"] for row in rows] == [2, 5, 8, 1]
    assert [row["priority"] for row in rows] == [-2, -2, -2, -1]


def test_each_row_goes_to_one_thread() -> None:
    table: MemoryTable[Row] = MemoryTable(
        {"id": n, "state": "new", "tries": 0} for n in range(2_000)
    )

    def claim_all(_number: int) -> list[int]:
        mine: list[int] = []
        while rows := table.claim(where=new, values=TAKEN, limit=50):
            assert len(rows) <= 50
            mine += [row["id"] for row in rows]
        return mine

    with ThreadPoolExecutor(8) as pool:
        given = Counter(number for mine in pool.map(claim_all, range(8)) for number in mine)
    assert given == dict.fromkeys(range(2_000), 1)


def test_what_a_caller_does_with_its_copy_stays_with_it(invoices: MemoryTable[Row]) -> None:
    (row,) = invoices.claim(where=new, values=TAKEN, limit=1)
    row["state"] = "new"
    assert invoices.rows()[0]["state"] == "sending"


def test_dataclasses_with_a_key_of_two_fields_and_a_fence() -> None:
    parcels = MemoryTable(
        [Parcel("B", 1), Parcel("A", 2), Parcel("A", 1)], key=("street", "number")
    )

    def free(parcel: Parcel) -> bool:
        return parcel.state == "new"

    raised = {"fence": lambda parcel: parcel.fence + 1}
    first, second = parcels.claim(where=free, values={"state": "out", **raised}, limit=2)
    assert (first, second) == (Parcel("A", 1, "out", 1), Parcel("A", 2, "out", 1))

    parcels.update(where=lambda parcel: parcel.number == 2, values={"state": "new"})
    (again,) = parcels.claim(
        where=lambda parcel: free(parcel) and parcel.street == "A",
        values={"state": "out", **raised},
        limit=1,
    )
    late = parcels.update(where=lambda parcel: parcel == second, values={"state": "done"})
    assert late == 0
    assert again.fence == 2


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"limit": -1}, InvalidLimit),
        ({"values": {"sate": "x"}}, UnknownColumn),
        ({"values": {}}, InvalidClaim),
        ({"values": {"id": 9}}, InvalidClaim),
        ({"values": {"tries": 1}}, UnheldClaim),
        ({"order_by": "-prority"}, UnknownColumn),
    ],
)
def test_wrong_use_is_refused_and_nothing_is_claimed(
    invoices: MemoryTable[Row], changed: dict[str, Any], error: type[Exception]
) -> None:
    wanted: dict[str, Any] = {"where": new, "values": TAKEN, "limit": 5}
    with pytest.raises(error):
        invoices.claim(**{**wanted, **changed})
    assert all(new(row) for row in invoices.rows())


def test_a_limit_of_none_gives_none_and_a_key_is_taken_once(invoices: MemoryTable[Row]) -> None:
    assert invoices.claim(where=new, values=TAKEN, limit=0) == []
    with pytest.raises(InvalidClaim, match=r"a row with the key \(1,\) is there already"):
        invoices.add({"id": 1, "state": "new"})
    with pytest.raises(InvalidClaim, match="neither a dict nor a dataclass"):
        MemoryTable([object()])
