"""From rows to values: the columns come in the same order from both databases."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from penstock.model.events import Event
from penstock.model.executions import CancelAnswer, RerunAnswer, Snapshot
from penstock.model.runs import RunSnapshot, RunState
from penstock.model.states import FINAL, State, SubState
from penstock.model.workers import Peer, WorkerInfo

LOWEST_ID = "00000000-0000-0000-0000-000000000000"
HIGHEST_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff"

ABANDONED = msgspec.json.encode(
    {
        "type": "WorkerDied",
        "message": "The worker died while it ran this task, as often as max_crashes allows.",
    }
).decode()

ASKED = "somebody asked for it"  # why a scheduled execution is ready before its time
OUT_OF_TIME = msgspec.json.encode(
    {"type": "WorkflowTimeout", "message": "The run had not ended within its timeout."}
).decode()

_decode_data = msgspec.json.Decoder(dict[str, object]).decode
_decode_worker = msgspec.json.Decoder(WorkerInfo).decode


class _Why(msgspec.Struct):
    reason: str | None = None


_decode_why = msgspec.json.Decoder(_Why).decode


def reason_in(data: str) -> str | None:
    """Why somebody cancelled something, from the data of the event that says so."""
    return _decode_why(data).reason


def _as_it_is(moment: datetime) -> datetime:
    return moment


def decode_snapshot(row: Sequence[Any], moment: Callable[[Any], datetime] = _as_it_is) -> Snapshot:
    def at(column: int) -> datetime | None:
        return None if row[column] is None else moment(row[column])

    return Snapshot(
        id=row[0],
        root_id=row[1],
        task=row[2],
        args=row[3],
        queue=row[4],
        priority=row[5],
        state=State(row[6]),
        sub_state=None if row[7] is None else SubState(row[7]),
        attempt=row[8],
        retries=row[9],
        crashes=row[10],
        max_crashes=row[11],
        suspect=bool(row[12]),
        cancel_requested=bool(row[13]),
        fence=row[14],
        worker_id=row[15],
        key=row[16],
        serial=row[17],
        run_at=at(18),
        result=row[19],
        error=row[20],
        progress=row[21],
        writes=row[22],
        created_at=moment(row[23]),
        claimed_at=at(24),
        started_at=at(25),
        finished_at=at(26),
        awaits=row[27],
    )


def decode_run(row: Sequence[Any], moment: Callable[[Any], datetime] = _as_it_is) -> RunSnapshot:
    def at(column: int) -> datetime | None:
        return None if row[column] is None else moment(row[column])

    return RunSnapshot(
        id=row[0],
        workflow=row[1],
        state=RunState(row[2]),
        graph=row[3],
        fingerprint=row[4],
        inputs=row[5],
        cancel_requested=bool(row[6]),
        error=row[7],
        deadline=at(8),
        created_at=moment(row[9]),
        finished_at=at(10),
    )


def decode_event(row: Sequence[Any], moment: Callable[[Any], datetime] = _as_it_is) -> Event:
    seq, type_, at, worker_id, data, execution_id = row
    return Event(
        seq=seq,
        type=type_,
        at=moment(at),
        worker_id=worker_id,
        data={} if data is None else _decode_data(data),
        execution_id=execution_id,
    )


def encode_worker(worker: WorkerInfo) -> str:
    return msgspec.json.encode(worker).decode()


def decode_peer(row: Sequence[Any], moment: Callable[[Any], datetime] = _as_it_is) -> Peer:
    _, info, beat, beat_at, started_at = row
    return Peer(
        info=_decode_worker(info), beat=beat, beat_at=moment(beat_at), started_at=moment(started_at)
    )


def cancel_answer(state: State | None) -> CancelAnswer:
    """What to say to someone who cancels an execution that was in this state."""
    if state is None:
        return "unknown"
    if state is State.RUNNING:
        return "requested"
    return "finished" if state in FINAL else "cancelled"


def rerun_answer(state: State | None) -> RerunAnswer:
    """What to say to someone who reruns an execution that was in this state."""
    if state is None:
        return "unknown"
    return "rerun" if state in FINAL else "live"
