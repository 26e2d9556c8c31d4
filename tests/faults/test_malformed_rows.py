"""Rows that somebody has written by hand, past the library, and got wrong."""

import pytest

from penstock import App, TaskFailed
from tests.support import tasks
from tests.support.handling import connected
from tests.support.workers import Place, Workers

WRONG_ARGUMENTS = {
    "not JSON": "{oops",
    "not an object": "[1, 2]",
    "no such parameter": '{"weight": 3}',
    "another type": '{"number": "three"}',
    "nothing": "",
}


@pytest.mark.parametrize("wrong", WRONG_ARGUMENTS)
def test_arguments_that_make_no_sense_fail_their_task_alone_and_say_why(
    app: App, place: Place, workers: Workers, wrong: str
) -> None:
    before, spoilt, after = [tasks.step.enqueue(number) for number in range(3)]
    with connected(place) as connection:
        connection.execute(
            f"UPDATE task_executions SET args = '{WRONG_ARGUMENTS[wrong]}' WHERE id = '{spoilt.id}'"
        )
    worker = workers.start(slots=1, heartbeat=0.3, lease=1.5)

    assert (before.result(timeout=20), after.result(timeout=20)) == (0, 2)
    with pytest.raises(TaskFailed):
        spoilt.result(timeout=20)
    assert spoilt.refresh().attempt == 1
    assert tasks.step.enqueue(9).result(timeout=20) == 9
    assert worker.alive
