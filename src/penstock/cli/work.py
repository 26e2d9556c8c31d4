"""The worker command: one worker in this process, or several under a supervisor."""

import logging
import os
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TypedDict, Unpack

import click

from penstock.app import App
from penstock.cli.loading import load_app
from penstock.cli.logs import LEVELS, LogFormat, configure_logging
from penstock.cli.metrics import watched
from penstock.cli.naming import warn_of_strangers, warn_of_unknown_queues
from penstock.cli.options import DatabaseOptions, database_options, default_explained
from penstock.cli.supervising import NEVER_BEGAN, Process, Supervisor, start_worker_process
from penstock.errors import PenstockError
from penstock.model.durations import parse_duration
from penstock.running import WorkerChoices
from penstock.settings import hide_password

log = logging.getLogger("penstock.worker")

SUPERVISED = "penstock.supervised"  # in the command's context: another process looks after us


class NoTasks(PenstockError):
    """An App without a task gives a worker nothing to do."""

    def __init__(self, target: str) -> None:
        self.target = target
        super().__init__(
            f"The App {target} knows no task, so a worker would have nothing to do. Name the "
            "module that declares them with --import, or in `App(include=[…])`."
        )


class Chosen(TypedDict):
    """What the options say about each of the workers."""

    slots: int | None
    queues: tuple[str, ...]
    modules: tuple[str, ...]
    until_idle: bool
    grace: str | None
    metrics_port: int | None
    metrics_host: str | None


@click.command
@click.argument("target", metavar="MODULE:APP")
@click.option(
    "--slots", type=click.IntRange(min=1), metavar="N", help="How many tasks run at the same time."
)
@click.option(
    "--queue",
    "queues",
    metavar="NAME",
    multiple=True,
    help="A queue to serve; repeat it for more. Without: those of the tasks it knows.",
)
@click.option(
    "--import",
    "modules",
    metavar="MODULE",
    multiple=True,
    help="A module with more tasks; repeat it for more.",
)
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="How many workers, each in a process of its own. One that dies is replaced.",
)
@click.option("--until-idle", is_flag=True, help="Do all that is due, then end.")
@click.option(
    "--grace",
    metavar="DURATION",
    help="How long running tasks may go on after the first signal, as in 30s.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(1, 65535),
    metavar="PORT",
    help="Serve /metrics, /livez and /readyz on this port; with --processes, on as many from it.",
)
@click.option(
    "--metrics-host", metavar="ADDRESS", help="The address to serve them on, as in 0.0.0.0."
)
@click.option(
    "--log-level",
    type=click.Choice(LEVELS, case_sensitive=False),
    default="info",
    show_default=True,
    help="What is worth a line on standard error.",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Lines for people, or one JSON object a line.",
)
@click.option("--die-with", type=int, hidden=True)
@database_options
def worker(
    *,
    database: DatabaseOptions,
    target: str,
    processes: int,
    log_level: str,
    log_format: LogFormat,
    die_with: int | None,
    **chosen: Unpack[Chosen],
) -> None:
    """Run the tasks of an App, until a signal says stop.

    The first SIGTERM or SIGINT stops claiming and lets running tasks finish for the grace
    period; the second gives them back at once. Either way the exit status is 0.
    """
    if chosen["grace"] is not None:
        parse_duration(chosen["grace"])
    configure_logging(log_level, log_format)
    if processes > 1:
        arguments = [
            target,
            *_as_arguments(database, chosen),
            *("--log-level", log_level, "--log-format", log_format, "--die-with", str(os.getpid())),
        ]
        supervisor = Supervisor(
            _Posts(arguments, chosen["metrics_port"] or database.settings().metrics.port).start,
            processes=processes,
            until_idle=chosen["until_idle"],
        )
        status = supervisor.run()
        if chosen["until_idle"] and status == 0:
            _tell_what_is_left(_loaded(database, target, chosen), chosen)
        sys.exit(status)
    if die_with is None:
        app = _worked(database, target, chosen)
        if chosen["until_idle"]:  # several are spoken for by their supervisor
            _tell_what_is_left(app, chosen)
    else:
        from penstock.engine.processes import end_with  # noqa: PLC0415 - and all of multiprocessing

        end_with(die_with)
        with _supervised():
            app = _worked(database, target, chosen)
    log.info("the worker has ended in good order")
    _leave(app)


def _worked(database: DatabaseOptions, target: str, chosen: Chosen) -> App:
    app = _loaded(database, target, chosen)
    if not app.tasks:
        raise NoTasks(target)
    _run(app, chosen)
    return app


@contextmanager
def _supervised() -> Iterator[None]:
    """Let the exit status say that this process never began to work.

    A worker that has begun raises nothing: it ends in good order, or its process dies.
    """
    click.get_current_context().meta[SUPERVISED] = True
    try:
        yield
    except (PenstockError, click.ClickException):
        raise
    except Exception:  # noqa: BLE001 - the user's module may raise anything
        traceback.print_exc()
        sys.exit(NEVER_BEGAN)


def _loaded(database: DatabaseOptions, target: str, chosen: Chosen) -> App:
    app = load_app(target, modules=chosen["modules"])
    database.configure(app)
    return app


def _tell_what_is_left(app: App, chosen: Chosen) -> None:
    warn_of_strangers(app, queues=_queues(app, chosen))


def _queues(app: App, chosen: Chosen) -> Sequence[str]:
    """Return those that were chosen; none stands for those of the tasks."""
    return chosen["queues"] or app.settings.worker.queues


def _run(app: App, chosen: Chosen) -> None:
    choices: WorkerChoices = {"owns_process": True}
    if chosen["slots"] is not None:
        choices["slots"] = chosen["slots"]
    if chosen["queues"]:
        choices["queues"] = chosen["queues"]
    if chosen["grace"] is not None:
        choices["grace"] = chosen["grace"]
    settings = app.settings
    queues = _queues(app, chosen)
    log.info(
        "a worker starts: %d slots for %s%s, in %s",
        choices.get("slots", settings.worker.slots),
        ", ".join(sorted(app.tasks)),
        f" from queue {' and '.join(queues)} alone" if queues else "",
        hide_password(settings.database.url),
    )
    warn_of_unknown_queues(app, queues=queues)
    with ExitStack() as beside:
        if port := chosen["metrics_port"] or settings.metrics.port:
            host = chosen["metrics_host"] or settings.metrics.host
            address = beside.enter_context(watched(app, host=host, port=port))
            choices["metrics"] = address
            log.info("metrics and health are at %s/metrics, /livez and /readyz", address)
        beside.enter_context(default_explained(settings))
        app.run_worker(until_idle=chosen["until_idle"], **choices)


def _leave(app: App) -> None:
    """End the process, even if a task's thread goes on: its work was given back already."""
    app.close()
    if threading.active_count() == 1:
        return
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


class _Posts:
    """Where worker processes stand: each has a port of its own, and who follows it has the same."""

    def __init__(self, arguments: Sequence[str], first_port: int) -> None:
        self._arguments = arguments
        self._first_port = first_port
        self._processes: list[Process] = []

    def start(self) -> Process:
        if not self._first_port:
            return start_worker_process(self._arguments)
        dead = (n for n, one in enumerate(self._processes) if one.poll() is not None)
        place = next(dead, len(self._processes))
        port = str(self._first_port + place)
        process = start_worker_process([*self._arguments, "--metrics-port", port])
        self._processes[place : place + 1] = [process]
        return process


def _as_arguments(database: DatabaseOptions, chosen: Chosen) -> Iterator[str]:
    """What a worker process must be told, so that it does what we were told."""
    single = {
        "--database": database.url,
        "--schema": database.schema,
        "--slots": chosen["slots"],
        "--grace": chosen["grace"],
        "--metrics-host": chosen["metrics_host"],
    }
    for option, value in single.items():
        if value is not None:
            yield from (option, str(value))
    for option, values in {"--queue": chosen["queues"], "--import": chosen["modules"]}.items():
        for value in values:
            yield from (option, value)
    if chosen["until_idle"]:
        yield "--until-idle"
