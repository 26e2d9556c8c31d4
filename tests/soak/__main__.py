"""Random tasks on several processes with random faults, for as long as you like, and an audit.

    make soak MINUTES=20 SEED=7 DATABASE=postgres

The seed decides which tasks there are and which faults happen when, so a run can be repeated; what
the operating system makes of it differs from run to run. Exits with 1 if anything is wrong, and
keeps the logs of the workers then.
"""

import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import NamedTuple

import click
from msgspec.json import decode

from penstock.errors import StoreError
from penstock.model.runs import FINAL_RUN
from penstock.model.states import FINAL, State
from penstock.testing.proxy import Proxy, proxy_to
from tests.soak import flows, mixture, tasks
from tests.soak.auditing import Audit, audit
from tests.soak.crew import Crew
from tests.soak.injecting import Injector
from tests.soak.planning import Planned, plan
from tests.support.handling import make_effects
from tests.support.servers import Server, private_server
from tests.support.workers import Place

AT_ONCE = 200
RUNS_AT_ONCE = 8
FEED_EVERY = 1.0  # slower than the workers could go: faults are what this is about, not speed
DEEPEST = 600  # ready executions: enough for everybody, and few enough to be done in time
LOOK_EVERY = 0.05
TELL_EVERY = 30.0
LAST_PATIENCE = 300.0
SCHEMA = "soak"


class Site(NamedTuple):
    """A database for one run: how the workers reach it, and how the audit does."""

    workers: Place
    ours: Place
    server: Server | None = None
    proxy: Proxy | None = None


@contextmanager
def site(database: str, directory: Path) -> Iterator[Site]:
    if database == "sqlite":
        place = Place(f"sqlite:///{directory / 'penstock.db'}", SCHEMA, directory)
        yield Site(place, place)
        return
    with private_server() as server, proxy_to(server.url) as proxy:
        ours = Place(server.url, SCHEMA, directory)
        yield Site(Place(proxy.url(server.url), SCHEMA, directory), ours, server, proxy)


class Soak:
    """Feeds the workers, and lets the faults of the plan happen."""

    def __init__(self, crew: Crew, injector: Injector, random: Random) -> None:
        self._crew = crew
        self._injector = injector
        self._random = random
        self._number = 0
        self._feed_at = 0.0
        self._unanswered: list[tuple[str, int]] = []
        self.acknowledged: list[str] = []
        self.flows: list[str] = []
        self.faults: Counter[str] = Counter()

    def run(self, planned: Sequence[Planned], seconds: float) -> None:
        begun = told = time.monotonic()
        left = list(planned)
        while (now := time.monotonic() - begun) < seconds:
            if left and left[0].at <= now:
                fault = left.pop(0)
                click.echo(f"{now:8.1f} s  {self._injector.inject(fault)}")
                self.faults[fault.kind] += 1
            self._crew.keep_up()
            self._feed()
            if time.monotonic() - told > TELL_EVERY:
                told = time.monotonic()
                click.echo(f"{now:8.1f} s  {len(self.acknowledged)} enqueued so far")
            time.sleep(LOOK_EVERY)

    def _feed(self) -> None:
        if time.monotonic() < self._feed_at:
            return
        self._feed_at = time.monotonic() + FEED_EVERY
        try:
            if sum(depth.ready for depth in tasks.app.store.depths()) > DEEPEST:
                return
            self._number += AT_ONCE
            self._answer(self._unanswered)
            requests = mixture.requests(self._random, self._number, AT_ONCE)
            enqueued = tasks.app.enqueue_many(requests)
            self.acknowledged += [one.id for one in enqueued]
            asking = [
                (one.id, number)
                for number, one in enumerate(enqueued, self._number)
                if one.task in flows.ASKING and flows.waits_for_answer(number)
            ]
            # Some are answered while they are about to wait, and some when they have waited.
            self._unanswered = asking[::2]
            self._answer(asking[1::2])
            started = flows.start_some(self._random, self._number, RUNS_AT_ONCE)
            self.flows += [one.id for one in started]
        except StoreError:
            return  # nobody said that they were enqueued, so nobody may rely on it

    def _answer(self, asking: Sequence[tuple[str, int]]) -> None:
        for execution_id, number in asking:
            tasks.app.signal(execution_id, flows.ANSWER, number)

    def _answer_the_rest(self) -> None:
        """Also to those whose enqueuing was never acknowledged, and whose answer was lost."""
        waiting = tasks.app.store.find(state=State.WAITING, limit=5_000)
        self._answer(
            [(one.id, decode(one.args)["number"]) for one in waiting if one.task in flows.ASKING]
        )

    def finish(self) -> None:
        """Let nothing go wrong any more, and wait until all is done."""
        self._injector.end_everything()
        deadline = time.monotonic() + LAST_PATIENCE
        while time.monotonic() < deadline:
            self._crew.keep_up()
            if self._is_all_done():
                break
            self._answer_the_rest()
            time.sleep(0.5)
        self._crew.dismiss()

    def _is_all_done(self) -> bool:
        states, runs = tasks.app.store.counts(), tasks.app.store.run_counts()
        live = [count for state, count in states.items() if state not in FINAL]
        live += [count for state, count in runs.items() if state not in FINAL_RUN]
        return not any(live)


def soak(database: str, minutes: float, seed: int, directory: Path) -> tuple[Audit, Soak]:
    planned = plan(seed, 60 * minutes, postgres=database == "postgres")
    click.echo(f"{database}, seed {seed}, {minutes:g} minutes, {len(planned)} faults planned")
    with site(database, directory) as where:
        tasks.app.configure(database=where.ours.url, schema=SCHEMA)
        tasks.app.migrate()
        make_effects(where.ours)
        crew = Crew(where.workers, tasks.app.store)
        injector = Injector(where.workers, crew, where.server, where.proxy)
        running = Soak(crew, injector, Random(seed))
        try:
            running.run(planned, 60 * minutes)
            running.finish()
            return audit(tasks.app.store, where.ours, running.acknowledged, running.flows), running
        finally:
            crew.end()
            tasks.app.close()


@click.command()
@click.option("--minutes", type=float, default=2.0, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--database", type=click.Choice(["sqlite", "postgres", "both"]), default="both")
def main(*, minutes: float, seed: int, database: str) -> None:
    """Soak one database or both, one after the other."""
    wrong = 0
    for one in ("sqlite", "postgres") if database == "both" else (database,):
        directory = Path(tempfile.mkdtemp(prefix="penstock-soak-"))
        found, running = soak(one, minutes, seed, directory)
        wrong += len(found.complaints)
        click.echo(
            f"\n{one}, seed {seed}: {found.executions} executions, "
            f"{found.flows} runs of workflows, {found.events} events; "
            f"handlers began {found.runs} times, of which {found.extra_runs} were repetitions; "
            f"{found.recovered} recovered, {found.abandoned} abandoned, {found.effects} effects; "
            f"{running.faults.total()} faults in {minutes:g} minutes"
        )
        click.echo(f"states: {dict(found.states)}")
        click.echo(f"faults: {dict(running.faults.most_common())}")
        for complaint in found.complaints:
            click.echo(f"VIOLATION {complaint}")
        if found.complaints:
            click.echo(f"The logs of the workers are in {directory}.")
        else:
            click.echo("No violations.\n")
            shutil.rmtree(directory)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
