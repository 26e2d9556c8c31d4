"""The metrics command, and what the worker command serves beside its work."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import click

from penstock.app import App
from penstock.cli.options import DatabaseOptions, database_options
from penstock.errors import PenstockError

HOST = "127.0.0.1"


class MetricsNotInstalled(PenstockError):
    """The package that writes metrics is an extra, and is not there."""

    def __init__(self) -> None:
        super().__init__(
            "Metrics need the package prometheus-client, which is not installed. "
            "Install it with: pip install 'penstock[metrics]'"
        )


@click.command
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    metavar="PORT",
    help="Serve them on this port, at /metrics, until a signal says stop.",
)
@click.option(
    "--host", default=HOST, show_default=True, metavar="ADDRESS", help="The address to serve on."
)
@database_options
def metrics(*, database: DatabaseOptions, port: int | None, host: str) -> None:
    """Print what the database knows as Prometheus metrics, or serve it.

    How much is ready by queue, scheduled, running, deferred and failed, how old the oldest is,
    and how many workers are alive. One such server is enough for a database. What workers do is
    counted by themselves: `penstock worker --metrics-port`.
    """
    try:
        from prometheus_client import CollectorRegistry  # noqa: PLC0415 - an extra

        from penstock.integrations.prometheus import (  # noqa: PLC0415
            DatabaseCollector,
            page_of,
        )
    except ImportError as error:
        raise MetricsNotInstalled from error
    from penstock.integrations.serving import serving  # noqa: PLC0415 - and an HTTP server

    lease = database.settings().worker.lease
    with database.opened() as store:
        registry = CollectorRegistry()
        registry.register(DatabaseCollector(store, lease=lease))
        if port is None:
            click.echo(page_of(registry).body.decode(), nl=False)
            return
        with (
            _until_signal() as stopped,
            serving(host, port, {"/metrics": lambda: page_of(registry)}),
        ):
            click.echo(f"Metrics of the database are at {_address(host, port)}/metrics", err=True)
            # With a timeout, because a wait without one cannot be interrupted on every system.
            while not stopped.wait(1.0):
                pass


@contextmanager
def watched(app: App, *, host: str, port: int) -> Iterator[str]:
    """Serve the metrics and the health of this App's workers; the value is the address."""
    try:
        from prometheus_client import disable_created_metrics  # noqa: PLC0415 - an extra

        from penstock.integrations.prometheus import WorkerMetrics  # noqa: PLC0415
    except ImportError as error:
        raise MetricsNotInstalled from error
    from penstock.integrations.health import Health  # noqa: PLC0415
    from penstock.integrations.serving import serving  # noqa: PLC0415 - and an HTTP server

    # A further series for each of ours, which no query of ours needs; the process is our own.
    disable_created_metrics()  # type: ignore[no-untyped-call]
    counting = WorkerMetrics(lambda: app.tasks)
    health = Health(lambda: counting.since_scrape)
    app.add_hooks(counting)
    app.add_hooks(health)
    with serving(host, port, {**counting.pages, **health.pages}) as bound:
        yield _address(host, bound)


def _address(host: str, port: int) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


@contextmanager
def _until_signal() -> Iterator[threading.Event]:
    stopped = threading.Event()

    def received(_number: int, _frame: FrameType | None) -> None:
        stopped.set()

    before = {number: signal.signal(number, received) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
