"""One trace from an HTTP request to everything that comes of it, over retries and workflows."""

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import Request, urlopen

import pytest
import uvicorn
from opentelemetry import propagate, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from starlette.applications import Starlette
from starlette.requests import Request as Asked
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from penstock import App, TaskHandle
from penstock.integrations.tracing import Tracing
from tests.e2e.flows import work

BROWSER = "0af7651916cd43dd8448eb211c80319c"


class Recorded:
    """Spans that have ended, by name."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("shop")

    def __iter__(self) -> Iterator[ReadableSpan]:
        return iter(self._exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        return sorted(
            (span for span in self if span.name == name), key=lambda one: one.start_time or 0
        )


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()


@contextmanager
def served(service: Starlette) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(service, log_level="warning", ws="none"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def shop(app: App, recorded: Recorded) -> Starlette:
    """A service whose one request enqueues a task; the task fails once and starts a workflow."""
    fulfil = app.workflow("fulfil")

    @fulfil.task
    def reserve() -> list[int]:
        return [1, 2]

    @fulfil.task(for_each=reserve.output)
    async def pack(item: int) -> int:
        with recorded.tracer.start_as_current_span("inside pack"):
            return item

    @app.task
    def thank() -> None:
        pass

    @app.task(retry=[0, 0], on_success=thank)
    def charge(handle: TaskHandle) -> None:
        if handle.attempt == 1:
            message = "card reader busy"
            raise ConnectionError(message)
        fulfil.start()

    async def order(request: Asked) -> Response:
        around = propagate.extract(request.headers)
        kind = SpanKind.SERVER
        with recorded.tracer.start_as_current_span("POST /orders", around, kind=kind):
            execution = await charge.aenqueue()
        return PlainTextResponse(execution.id)

    return Starlette(routes=[Route("/orders", order, methods=["POST"])])


def test_one_trace_leads_from_a_request_over_a_retry_through_a_workflow(
    flows: App, recorded: Recorded
) -> None:
    flows.add_hooks(Tracing(recorded.provider))
    with served(shop(flows, recorded)) as address:
        headers = {"traceparent": f"00-{BROWSER}-b7ad6b7169203331-01"}
        with urlopen(Request(f"{address}/orders", method="POST", headers=headers)) as answer:  # noqa: S310
            execution_id = answer.read().decode()
    work(flows)

    assert {trace.format_trace_id(span.context.trace_id) for span in recorded} == {BROWSER}
    (request,) = recorded.named("POST /orders")
    first, second = recorded.named("process charge")
    for number, span in enumerate((first, second), start=1):
        told = span.attributes or {}
        assert span.kind is SpanKind.CONSUMER
        assert span.parent is not None
        assert span.parent.span_id == request.context.span_id
        assert told["messaging.message.id"] == execution_id
        assert told["messaging.destination.name"] == "default"
        assert told["penstock.attempt"] == number
    assert (first.attributes or {})["penstock.outcome"] == "retry_scheduled"
    assert first.status.status_code is StatusCode.ERROR
    (error,) = first.events
    assert (error.attributes or {})["exception.type"] == "ConnectionError"
    assert (error.attributes or {})["exception.message"] == "card reader busy"
    assert (second.attributes or {})["penstock.outcome"] == "completed"
    assert second.status.status_code is StatusCode.UNSET

    (reserve,), packs = (
        recorded.named("process fulfil.reserve"),
        recorded.named("process fulfil.pack"),
    )
    assert len(packs) == 2
    for span in (reserve, *packs):
        assert span.parent is not None
        assert span.parent.span_id == second.context.span_id
        assert (span.attributes or {})["penstock.run_id"]
    inner = {span.parent.span_id for span in recorded.named("inside pack") if span.parent}
    assert inner == {span.context.span_id for span in packs}
    (thank,) = recorded.named("process thank")
    assert thank.parent is not None
    assert thank.parent.span_id == request.context.span_id


def test_a_run_that_a_task_waits_for_is_in_the_trace_of_the_task(
    flows: App, recorded: Recorded
) -> None:
    inner = flows.workflow("inner")

    @inner.task
    def leaf() -> int:
        return 1

    @flows.task
    def outer(handle: TaskHandle) -> int:
        return int(handle.run(inner)["leaf"])

    flows.add_hooks(Tracing(recorded.provider))
    with recorded.tracer.start_as_current_span("nightly"):
        execution = outer.enqueue()
    work(flows)

    assert execution.result(timeout=0) == 1
    (nightly,), (leaf_span,) = recorded.named("nightly"), recorded.named("process inner.leaf")
    attempts = recorded.named("process outer")
    told = [(span.attributes or {})["penstock.outcome"] for span in attempts]
    assert told == ["suspended", "completed"]
    for span in (leaf_span, *attempts):
        assert span.parent is not None
        assert span.parent.span_id == nightly.context.span_id


def test_an_attempt_without_a_request_behind_it_is_a_trace_of_its_own(
    flows: App, recorded: Recorded
) -> None:
    @flows.task
    async def tick() -> None:
        pass

    flows.add_hooks(Tracing(recorded.provider))
    tick.enqueue()
    tick.enqueue()
    work(flows)

    spans = recorded.named("process tick")
    assert [span.parent for span in spans] == [None, None]
    assert len({span.context.trace_id for span in spans}) == 2


def test_a_span_ends_with_the_timeout_of_its_thread(flows: App, recorded: Recorded) -> None:
    go_on = threading.Event()

    @flows.task(timeout=0.05, retry=[])
    def linger() -> None:
        go_on.wait(30)

    flows.add_hooks(Tracing(recorded.provider))
    linger.enqueue()
    try:
        work(flows)
        (span,) = recorded.named("process linger")
    finally:
        go_on.set()
    assert (span.attributes or {})["penstock.outcome"] == "failed"
    assert span.end_time is not None
    assert span.end_time < time.time_ns()


def test_what_travelled_and_cannot_be_read_costs_the_connection_and_not_the_attempt(
    flows: App, recorded: Recorded
) -> None:
    @flows.task
    def tick() -> str:
        return "done"

    class Nonsense(Tracing):
        def trace(self) -> str | None:
            return "no headers at all"

    flows.add_hooks(Nonsense(recorded.provider))
    execution = tick.enqueue()
    work(flows)
    assert execution.refresh().state == "completed"
    (span,) = recorded.named("process tick")
    assert span.parent is None


def test_nothing_of_opentelemetry_is_imported_unless_tracing_is() -> None:
    code = (
        "import sys, penstock, penstock.cli, penstock.integrations; "
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
