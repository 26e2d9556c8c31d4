"""What `--json` prints: one shape for each kind of thing, listed in the reference.

Stored payloads are passed on as the JSON that they are, so no number loses a digit.
"""

from collections.abc import Collection, Sequence
from typing import Any

import click
import msgspec

from penstock.model.context import merged
from penstock.model.events import Event
from penstock.model.executions import Snapshot
from penstock.model.graph import decode_graph
from penstock.model.runs import RunSnapshot
from penstock.model.states import State
from penstock.model.waiting import QueueDepth
from penstock.model.workers import Peer

Shape = dict[str, Any]

_AS_IT_IS = (
    "id",
    "task",
    "state",
    "sub_state",
    "queue",
    "priority",
    "attempt",
    "key",
    "serial",
)
_JSON = ("args", "result", "error", "progress")
_TIMES_AND_WORKER = ("created_at", "run_at", "started_at", "finished_at", "worker_id")

EXECUTION_FIELDS = (*_AS_IT_IS, *_JSON, *_TIMES_AND_WORKER)


def execution_shape(snapshot: Snapshot) -> Shape:
    return {
        name: _raw(getattr(snapshot, name)) if name in _JSON else getattr(snapshot, name)
        for name in EXECUTION_FIELDS
    }


def run_shape(run: RunSnapshot, tasks: Sequence[Snapshot] | None = None) -> Shape:
    """A run of a workflow; with its tasks and its context where one is shown."""
    shape: Shape = {
        "id": run.id,
        "workflow": run.workflow,
        "state": run.state,
        "inputs": _raw(run.inputs),
        "error": _raw(run.error),
        "fingerprint": run.fingerprint,
        "deadline": run.deadline,
        "created_at": run.created_at,
        "finished_at": run.finished_at,
    }
    if tasks is None:
        return shape
    names = [node.name for node in decode_graph(run.graph).nodes]
    return {
        **shape,
        "context": context_of(run, tasks),
        "tasks": {name: execution_shape(one) for name, one in zip(names, tasks, strict=True)},
    }


def context_of(run: RunSnapshot, tasks: Sequence[Snapshot]) -> Shape:
    """What the tasks of a run share, as far as they have completed."""
    done = (one.writes for one in tasks if one.state is State.COMPLETED)
    return merged(run.inputs, [writes for writes in done if writes is not None])


def event_shape(event: Event) -> Shape:
    return {
        "seq": event.seq,
        "type": event.type,
        "at": event.at,
        "execution_id": event.execution_id,
        "worker_id": event.worker_id,
        "data": dict(event.data),
    }


def worker_shape(peer: Peer, *, silent: Collection[str]) -> Shape:
    info = peer.info
    return {
        "id": info.id,
        "name": info.name,
        "host": info.host,
        "queues": list(info.queues),
        "tasks": list(info.tasks),
        "slots": info.slots,
        "started_at": peer.started_at,
        "beat_at": peer.beat_at,
        "silent": info.id in silent,
    }


def queue_shapes(
    peers: Sequence[Peer],
    paused: Sequence[str],
    depths: Sequence[QueueDepth],
    *,
    silent: Collection[str],
) -> list[Shape]:
    """Every queue that has ready executions, that a worker serves or that is paused, by name.

    Workers that fell silent are not counted, and the queues that they served are told.
    """
    served = {queue for peer in peers for queue in peer.info.queues}
    deep = {depth.queue: depth for depth in depths}
    return [
        {
            "name": name,
            "paused": name in paused,
            "workers": sum(
                name in peer.info.queues for peer in peers if peer.info.id not in silent
            ),
            "ready": deep[name].ready if name in deep else 0,
            "oldest_ready_seconds": (
                deep[name].oldest_age.total_seconds() if name in deep else None
            ),
        }
        for name in sorted(served | set(paused) | set(deep))
    ]


def print_json(shape: Shape | list[Shape]) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(shape), indent=2).decode())


def _raw(text: str | None) -> msgspec.Raw | None:
    return None if text is None else msgspec.Raw(text.encode())
