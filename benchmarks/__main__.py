"""`make bench`: our engine and its peers in one run on one machine, in interleaved rounds.

It takes 20 to 40 minutes; `make bench ARGS=--quick` five to eight, with the same rows, scaled down,
to see that all of it works. The other systems are installed into a cache directory, once.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import assert_never

from benchmarks import servers
from benchmarks.chart import as_svg
from benchmarks.costs import idle_memory, idle_statements, start_up
from benchmarks.depth import deep_benches, hold_a_transaction, take_first
from benchmarks.driving import Bench, PlayerFailed
from benchmarks.figures import Measured, Results
from benchmarks.installing import Installed, Missing, cache, install
from benchmarks.records import NotOnce
from benchmarks.report import (
    as_json,
    as_markdown,
    describe_machine,
    shown,
    write_into,
    write_json,
)
from benchmarks.rows import ROWS
from benchmarks.sizes import FULL, QUICK, Sizes
from benchmarks.surroundings import Surroundings
from benchmarks.systems import SYSTEMS, System
from penstock.cli.stopping import told_to_stop
from tests.support.postgres import installed_programs, temporary_cluster
from tests.support.servers import Server

ROOT = Path(__file__).parent.parent
EXPLANATION = ROOT / "docs" / "explanation"
UNPUBLISHED = ROOT / "build" / "benchmarks"
STARTS = 9  # of which the median counts


@dataclass
class Run:
    """Everything that the rows of one run share."""

    sizes: Sizes
    postgres: str
    redis: str | Missing
    place: Path
    surroundings: Surroundings
    check: Callable[[], None]  # raises if somebody has asked for the end
    results: Results = field(init=False)
    begun: float = field(default_factory=time.monotonic)
    missing: dict[str, str] = field(default_factory=dict)
    installed: dict[str, Installed] = field(default_factory=dict)
    made: int = 0

    def __post_init__(self) -> None:
        self.results = Results(deep=self.sizes.deep)

    def say(self, what: str) -> None:
        self.check()
        minutes, seconds = divmod(int(time.monotonic() - self.begun), 60)
        print(f"{minutes:3d}:{seconds:02d}  {what}", flush=True)

    def gather(self, systems: list[System]) -> list[System]:
        """Install what is not there yet; return who takes part, and note who does not."""
        for system in systems:
            if system.needs is None:
                continue
            if system.kind == "redis" and isinstance(self.redis, Missing):
                found: Installed | Missing = self.redis
            else:
                found = install(system.needs, self.say)
            if isinstance(found, Missing):
                self.missing[system.name] = found.because
                self.say(f"without {system.title}: {found.because}")
            else:
                self.installed[system.name] = found
        return [system for system in systems if system.name not in self.missing]

    def bench(self, system: System, *, server: str | None = None) -> Bench:
        """Return the system on a new database."""
        self.made += 1
        url = self._new_place(system, server or self.postgres)
        bench = Bench(system, url, self.place, self.installed.get(system.name))
        bench.setup()
        return bench

    def _new_place(self, system: System, server: str) -> str:
        match system.kind:
            case "postgres":
                return servers.new_database(server, self.made)
            case "sqlite":
                path = self.place / f"bench_{self.made}.db"
                return f"sqlite:///{path}" if system.ours else str(path)
            case "redis":
                assert not isinstance(self.redis, Missing)
                return self.redis
            case other:
                assert_never(other)

    def measure(self, what: str, system: System, act: Callable[[], Measured]) -> None:
        """Add what `act` finds; what goes wrong is reported, and the run goes on."""
        try:
            measured = act()
        except (PlayerFailed, NotOnce) as error:
            self.results.failures.append(f"{what}: {error}")
            self.say(f"{what}: {error}")
            return
        self.results.add(system.name, measured)
        told = ", ".join(f"{key} {shown(value)}" for key, value in measured.items())
        self.say(f"{system.title}: {told}")


def beside_each_other(run: Run, systems: list[System]) -> None:
    for number in range(run.sizes.rounds):
        run.surroundings.look()
        # Who goes first changes from round to round.
        turn = number % len(systems)
        order = systems[turn:] + systems[:turn]
        benches = {system.name: run.bench(system) for system in order}
        for row in ROWS:
            for system in row.turns(order):
                bench = benches[system.name]
                run.measure(
                    f"{row.measure.__name__} of {system.title}",
                    system,
                    lambda row=row, bench=bench: row.measure(bench, run.sizes),  # type: ignore[misc]
                )
        for bench in benches.values():
            if bench.system.kind == "postgres":
                servers.drop_database(run.postgres, bench.url.rpartition("/")[2])
        run.say(f"round {number + 1} of {run.sizes.rounds} done")


def idle(run: Run, systems: list[System]) -> None:
    """Memory and statements of workers that have nothing to do."""
    programs = installed_programs()
    with ExitStack() as stack:
        server = None
        if programs is not None:
            # Its log is read, and turning that on takes a restart: so not the common server.
            server = Server(stack.enter_context(temporary_cluster(programs)))
            server.log_statements()
        for system in systems:
            if "latency" not in system.does:
                continue
            if server is not None and "idle" in system.does and system.kind == "postgres":
                bench = run.bench(system, server=server.url)
                run.measure(
                    f"idle statements of {system.title}",
                    system,
                    lambda bench=bench: idle_statements(bench, server, run.sizes),  # type: ignore[misc]
                )
            bench = run.bench(system)
            run.measure(
                f"memory of {system.title}",
                system,
                lambda bench=bench: idle_memory(bench),  # type: ignore[misc]
            )


def starting(run: Run, systems: list[System]) -> None:
    """How long it takes to start; of us alone, because others start otherwise."""
    for system in systems:
        if system.ours and "idle" in system.does:
            for _ in range(STARTS):
                run.measure(f"start of {system.title}", system, start_up)


def _named_bench(run: Run, system: System, _name: str) -> Bench:
    return run.bench(system)


def at_depth(run: Run, systems: list[System]) -> None:
    for system in systems:
        if not (system.ours and "one" in system.does):
            continue
        make = partial(_named_bench, run, system)
        benches = deep_benches(make, run.sizes)
        run.say(f"{system.title}: {run.sizes.deep:,} ready, finished, scheduled are there")
        for _ in range(run.sizes.rounds):
            run.measure(
                f"depth of {system.title}",
                system,
                lambda benches=benches: take_first(benches, run.sizes),  # type: ignore[misc]
            )
        if system.kind == "postgres":
            for bench in benches.values():
                servers.drop_database(run.postgres, bench.url.rpartition("/")[2])
            for turn in range(run.sizes.rounds):
                run.measure(
                    f"held transaction of {system.title}",
                    system,
                    lambda make=make, turn=turn: hold_a_transaction(make, run.sizes, turn),  # type: ignore[misc]
                )


PARTS = {"beside": beside_each_other, "idle": idle, "starting": starting, "depth": at_depth}


@contextmanager
def prepared(sizes: Sizes, check: Callable[[], None]) -> Iterator[Run]:
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-")))
        postgres = stack.enter_context(servers.postgres())
        redis = stack.enter_context(servers.redis(place / "redis"))
        yield Run(sizes, postgres, redis, place, Surroundings(place), check)


def some_of(known: Collection[str]) -> Callable[[str], list[str]]:
    """Return what reads a list of names that stands in one argument."""

    def read(text: str) -> list[str]:
        names = text.split(",")
        unknown = [name for name in names if name not in known]
        if unknown:
            refusal = f"there is no {', '.join(map(repr, unknown))}; there are {', '.join(known)}"
            raise argparse.ArgumentTypeError(refusal)
        return names

    return read


def at_least_one(text: str) -> int:
    try:
        number = int(text)
    except ValueError as error:
        refusal = f"{text!r} is no whole number of rounds"
        raise argparse.ArgumentTypeError(refusal) from error
    if number < 1:
        refusal = f"{number} rounds measure nothing; there must be at least 1"
        raise argparse.ArgumentTypeError(refusal)
    return number


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, one round")
    parser.add_argument(
        "--rounds", type=at_least_one, metavar="N", help="take medians of so many rounds"
    )
    for option, known in (("--systems", [one.name for one in SYSTEMS]), ("--parts", list(PARTS))):
        parser.add_argument(
            option,
            type=some_of(known),
            default=known,
            metavar="NAME,…",
            help=f"only these: {', '.join(known)}",
        )
    parser.add_argument(
        "--publish", action="store_true", help="write the figures into docs/explanation too"
    )
    chosen = parser.parse_args()
    try:
        with told_to_stop() as check:
            run, machine = play(chosen, check)
    except servers.NoPostgres as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(
            "\nStopped. Nothing was written, and nothing is left behind but the other systems, for "
            f"the next run: {cache()}"
        )
    if not run.results.has_any:
        sys.exit("Nothing was measured: what was asked for has none of these rows.")
    tell(run, machine, publish=chosen.publish)
    if run.results.failures:
        sys.exit(1)


def play(chosen: argparse.Namespace, check: Callable[[], None]) -> tuple[Run, dict[str, str]]:
    sizes = QUICK if chosen.quick else FULL
    if chosen.rounds is not None:
        sizes = replace(sizes, rounds=chosen.rounds)
    with prepared(sizes, check) as run:
        machine = describe_machine(run.postgres)
        size = "quick" if chosen.quick else "full"
        machine["sizes"] = f"{size}, {sizes.rounds} round{'s' if sizes.rounds > 1 else ''}"
        systems = run.gather([one for one in SYSTEMS if one.name in chosen.systems])
        for part in chosen.parts:
            run.surroundings.look()
            PARTS[part](run, systems)
        machine.update(run.surroundings.told())
    return run, machine


def tell(run: Run, machine: dict[str, str], *, publish: bool) -> None:
    if run.sizes.rounds == 1:
        print("\nOne round, and its short rows, show that all of it works, not who is faster.")
    page = list(as_markdown(run.results, machine, run.missing))
    print("\n" + "\n".join(page))
    found = as_json(run.results, machine, run.missing)
    UNPUBLISHED.mkdir(parents=True, exist_ok=True)
    for directory in [UNPUBLISHED, EXPLANATION] if publish else [UNPUBLISHED]:
        write_json(directory / "performance.json", found)
        (directory / "performance.svg").write_text(as_svg(run.results), encoding="utf-8")
    if publish:
        write_into(EXPLANATION / "performance.md", page)
    run.say(f"performance.json and performance.svg are in {UNPUBLISHED.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
