import json

import pytest

from penstock.model.outcomes import Completed, Failed
from penstock.store.contract import Store
from tests.contract.support import claim, enqueue, get, last_event, new, run_one, worker

PAYLOADS = {
    "one megabyte": json.dumps({"text": "x" * 1_000_000}),
    "unicode": json.dumps({"héllo 世界 🎉": "\u202e\u2028\ufeff"}, ensure_ascii=False),
    "escapes": r'{"nul":"\\u0000 is text here","quote":"\"","slash":"\/","tab":"\t"}',
    "surrogate pairs": r'{"party":"\ud83c\udf89"}',
    "minus zero": '{"a":-0.0,"b":-0,"c":0.0}',
    "beyond 64 bits": f'{{"a":{2**63},"b":{-(2**63) - 1},"c":{10**30}}}',
    "number spellings": '{"a":1.0,"b":1e2,"c":1E+2,"d":0.10,"e":100000000000000000000.5}',
    "key order": '{"b":1,"a":2,"c":{"z":1,"y":2}}',
    "twice the same key": '{"a":1,"a":2}',
    "whitespace": ' {\n\t"a" : [ 1 , 2 ] }\r\n',
    "not an object": "null",
    "empty text": '""',
    "looks like SQL": """{"a":"'; DROP TABLE task_executions; --","b":":now %s %(x)s $1 ?"}""",
}

every_payload = pytest.mark.parametrize("payload", PAYLOADS.values(), ids=list(PAYLOADS))


@every_payload
def test_arguments_come_back_byte_for_byte(store: Store, payload: str) -> None:
    worker(store)
    task_id = enqueue(store, args=payload)

    (claimed,) = claim(store)

    assert claimed.args == payload
    assert get(store, task_id).args == payload


@every_payload
def test_results_come_back_byte_for_byte(store: Store, payload: str) -> None:
    claimed = run_one(store)
    store.settle([Completed(lease=claimed.lease, result=payload)])

    assert get(store, claimed.lease.execution_id).result == payload


@every_payload
def test_errors_come_back_byte_for_byte_and_in_the_history(store: Store, payload: str) -> None:
    claimed = run_one(store)
    store.settle([Failed(lease=claimed.lease, error=payload)])

    assert get(store, claimed.lease.execution_id).error == payload
    assert last_event(store, claimed.lease.execution_id).data["error"] == json.loads(payload)


def test_payloads_of_a_batch_do_not_mix(store: Store) -> None:
    worker(store)
    store.create([new(args=payload) for payload in PAYLOADS.values()])
    batch = claim(store, limit=100)

    store.settle([Completed(lease=one.lease, result=one.args) for one in batch])

    for one in batch:
        stored = get(store, one.lease.execution_id)
        assert stored.result == stored.args == one.args
    assert [one.args for one in batch] == list(PAYLOADS.values())
