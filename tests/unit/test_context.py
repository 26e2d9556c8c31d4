"""What the tasks of a workflow share, and how it is merged."""

from penstock.model.context import merged


def test_a_list_takes_in_what_json_tells_apart_from_what_it_has() -> None:
    writes = [
        '{"seen":[1,"1",[1]]}',
        '{"seen":[true,1.0,[true],null,false,0,{"a":1,"b":2}]}',
        '{"seen":[false,{"b":2,"a":1},null,"1"]}',
    ]
    seen = merged("{}", writes)["seen"]
    # Compared as texts: as values, true would be the same as 1.
    assert repr(seen) == repr([1, "1", [1], True, [True], None, False, 0, {"a": 1, "b": 2}])
