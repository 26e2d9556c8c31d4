"""OpenTelemetry: one trace from whoever enqueues to every attempt that comes of it.

Needs the extra `traces`, which brings the API alone. The program chooses an SDK, a provider and
an exporter, as for the rest of its traces; without them nothing is recorded.
"""

import threading
from collections.abc import Mapping
from typing import Any

import msgspec
from opentelemetry import context, propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider

from penstock.engine.hooks import AttemptBegan, AttemptEnded, Hooks
from penstock.integrations.outcomes import NAME_OF
from penstock.model.executions import Claimed, Lease
from penstock.model.outcomes import Failed, RetryScheduled

_decode_headers = msgspec.json.Decoder(dict[str, str]).decode
_decode_error = msgspec.json.Decoder(dict[str, Any]).decode

# What is stored of an error, and what OpenTelemetry calls it.
_EXCEPTION = {
    "type": "exception.type",
    "message": "exception.message",
    "traceback": "exception.stacktrace",
}


class Tracing(Hooks):
    """Gives every attempt a span, as a child of the one that was current at its enqueueing.

    The span is current in the handler, so what that does and enqueues belongs to it. A retry,
    a rerun and an attempt after a crash belong to the same parent, as do the tasks of a run.
    """

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer("penstock", tracer_provider=tracer_provider)
        # By lease, and not in the handler's context: a timeout ends it from another thread.
        self._spans: dict[Lease, Span] = {}
        self._lock = threading.Lock()

    def trace(self) -> str | None:
        headers: dict[str, str] = {}
        propagate.inject(headers)
        return msgspec.json.encode(headers).decode() if headers else None

    def attempt_began(self, attempt: AttemptBegan) -> None:
        claimed = attempt.claimed
        around = _context_in(claimed)
        span = self._tracer.start_span(
            f"process {attempt.task}",
            around,
            kind=SpanKind.CONSUMER,
            attributes=_attributes(claimed, attempt.task),
        )
        with self._lock:
            self._spans[claimed.lease] = span
        # Never detached: every handler has a context of its own, which ends with it.
        context.attach(trace.set_span_in_context(span, around))

    def attempt_ended(self, attempt: AttemptEnded) -> None:
        with self._lock:
            span = self._spans.pop(attempt.claimed.lease, None)
        if span is None:
            return
        outcome = attempt.outcome
        span.set_attribute("penstock.outcome", NAME_OF[type(outcome)])
        if isinstance(outcome, Failed | RetryScheduled):
            error = _decode_error(outcome.error)
            told = {name: str(error[key]) for key, name in _EXCEPTION.items() if key in error}
            span.add_event("exception", told)
            span.set_status(
                Status(StatusCode.ERROR, f"{error.get('type')}: {error.get('message')}")
            )
        span.end()


def _context_in(claimed: Claimed) -> Context:
    """What travelled with the execution; a bad text costs the connection, not the attempt."""
    if claimed.trace is None:
        return Context()
    try:
        headers = _decode_headers(claimed.trace)
    except msgspec.DecodeError:
        return Context()
    return propagate.extract(headers, Context())


def _attributes(claimed: Claimed, task: str) -> Mapping[str, str | int]:
    attributes: dict[str, str | int] = {
        "messaging.system": "penstock",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": claimed.queue,
        "messaging.message.id": claimed.lease.execution_id,
        "penstock.task": task,
        "penstock.attempt": claimed.attempt,
        "penstock.worker_id": claimed.lease.worker_id,
    }
    if claimed.run_id is not None:
        attributes["penstock.run_id"] = claimed.run_id
    return attributes
