"""What `penstock bench` measures, and what it makes of the figures."""

import time
from collections.abc import Callable, Iterator, Sequence
from statistics import median, quantiles

import msgspec

from penstock.app import App
from penstock.errors import PenstockError
from penstock.settings import DatabaseSettings

ONE_BY_ONE = 500
ONE_BY_ONE_FOR = 5.0  # seconds, where commits are slow
AT_ONCE = 2_000
AT_ONCE_FOR = 5.0
MOST_AT_ONCE = 20_000
DRAIN_PATIENCE = 30.0
QUEUE = "penstock_bench"
POLL = "2s"  # where wake-ups do not arrive, half of that is told as well as half a minute
TICKS = 100
TICKS_FOR = 10.0
FEWEST = 5
APART = 0.03
SLOW_COMMIT = 0.010
SLOW_WAKE_UP = 0.05
QUESTIONS = 20
QUESTIONS_FOR = 1.0
FAR_AWAY = 0.005  # seconds for an answer
LOOK_EVERY = 0.02

Tell = Callable[[float], None]  # how much of all is done, from 0 to 1


class NotFinished(PenstockError):
    """The worker of the benchmark did not get through what it had been given."""

    def __init__(self, ran: int, of: int) -> None:
        self.ran, self.of = ran, of
        super().__init__(
            f"{ran} of {of} tasks that do nothing ran within {DRAIN_PATIENCE:.0f} s, so there is "
            "nothing to compare with. `penstock doctor` looks for what may hold them up."
        )


class Figures(msgspec.Struct, frozen=True):
    """What was found; durations are in seconds."""

    one_per_second: float
    bulk_per_second: float
    drain_per_second: float
    answer: float  # to one short question
    latencies: Sequence[float]

    def latency(self, percentile: int) -> float:
        return quantiles(self.latencies, n=100, method="inclusive")[percentile - 1]


def measure(app: App, client: App, tell: Tell) -> Figures:
    """Measure on empty tables, with a worker of `app` in the background of this process.

    `client` enqueues on connections of its own, so that the worker hears of it as it would of
    another process.

    Raises:
        NotFinished: tasks that do nothing were not done in time.
    """
    begun: list[float] = []

    @app.task(name="penstock_bench", queue=QUEUE)
    async def run(number: int) -> None:
        del number
        begun.append(time.monotonic())

    nothing = client.task(name="penstock_bench", queue=QUEUE)(run.function)
    answer = _time_to_answer(client)
    one_by_one = 0
    started = time.monotonic()
    while one_by_one < ONE_BY_ONE and time.monotonic() < started + ONE_BY_ONE_FOR:
        nothing.enqueue(one_by_one)
        one_by_one += 1
        tell(0.2 * one_by_one / ONE_BY_ONE)
    one_per_second = one_by_one / (time.monotonic() - started)

    at_once = 0
    started = time.monotonic()
    while at_once < MOST_AT_ONCE and time.monotonic() < started + AT_ONCE_FOR:
        client.enqueue_many(nothing.request(number) for number in range(AT_ONCE))
        at_once += AT_ONCE
        tell(0.2 + 0.2 * at_once / MOST_AT_ONCE)
    bulk_per_second = at_once / (time.monotonic() - started)

    there = one_by_one + at_once
    with app.worker(queues=[QUEUE], poll=POLL):
        _wait(begun, there, lambda done: tell(0.4 + 0.4 * done))
        drain_per_second = (there - 1) / max(begun[-1] - begun[0], 1e-6)
        _wait_until_settled(app, there)
        committed: list[float] = []
        until = time.monotonic() + TICKS_FOR
        while len(committed) < TICKS and (len(committed) < FEWEST or time.monotonic() < until):
            nothing.enqueue(len(committed))
            committed.append(time.monotonic())
            time.sleep(APART)
            tell(0.8 + 0.2 * len(committed) / TICKS)
        _wait(begun, there + len(committed), lambda _: None)
    # The answer to a commit may be read after the task has begun.
    latencies = [max(0.0, start - at) for at, start in zip(committed, begun[there:], strict=True)]
    return Figures(one_per_second, bulk_per_second, drain_per_second, answer, latencies)


def advice(figures: Figures, database: DatabaseSettings) -> Iterator[str]:
    """Say what follows from the figures, the most telling thing first."""
    commit = 1 / figures.one_per_second
    disk = max(0.0, commit - figures.answer)
    if disk > max(SLOW_COMMIT, figures.answer):
        yield (
            f"A transaction of its own takes {commit * 1000:.0f} ms to enqueue in, most of it "
            "until the disk has confirmed it. Enqueue in the transaction that you have open anyway "
            "(`connection=`), where it costs hardly more than an INSERT."
        )
    if figures.answer > FAR_AWAY:
        yield (
            f"The database takes {figures.answer * 1000:.0f} ms to answer a short question: it is "
            "far from here, or busy. Measure from where the workers will be; they ask it twice for "
            "each batch of tasks."
        )
    # A claim goes there and back and waits for the disk. The wake-up comes while the answer to the
    # commit does. On SQLite nothing has to arrive: workers look at the file.
    expected = 1.5 * (figures.answer + disk)
    on_server = not database.url.startswith("sqlite:")
    if on_server and figures.latency(50) > SLOW_WAKE_UP + expected:
        yield (
            f"A task waits {figures.latency(50) * 1000:.0f} ms for an idle worker, so wake-ups do "
            f"not arrive: workers find it when they look by themselves. {_to_be_woken(database)}"
        )
    gain = figures.bulk_per_second / figures.one_per_second
    yield (
        f"enqueue_many writes tasks {gain:,.0f} times as fast as one transaction each: use it, or "
        "one transaction, for more than a handful."
    )
    per_task = 1_000_000 / figures.drain_per_second
    yield (
        f"One worker process needs {per_task:,.0f} µs for a task from claim to settlement, history "
        "included. Tasks that take much longer than that are limited by their own work: give "
        "waiting ones more --slots, computing ones more --processes."
    )


def _to_be_woken(database: DatabaseSettings) -> str:
    if not database.notify:
        return "The setting `notify` is off: leave it on where LISTEN reaches the server."
    if database.listen_url:
        return (
            "The setting `listen_url` must name a direct connection to the very database that "
            "`url` names. Until then they look every `worker.poll`, half a minute unless you have "
            f"set it, and not every {POLL} as here."
        )
    return "Behind PgBouncer, set `listen_url` to a direct connection, or use its session mode."


def _time_to_answer(app: App) -> float:
    store = app.store
    store.find(limit=1)  # connected
    took: list[float] = []
    while len(took) < QUESTIONS and sum(took) < QUESTIONS_FOR:
        asked = time.monotonic()
        store.find(limit=1)  # one statement, and no transaction around it
        took.append(time.monotonic() - asked)
    return median(took)


def _wait(begun: Sequence[float], count: int, tell: Tell) -> None:
    deadline = time.monotonic() + DRAIN_PATIENCE
    while (ran := len(begun)) < count:
        if time.monotonic() > deadline:
            raise NotFinished(ran, count)
        tell(ran / count)
        time.sleep(LOOK_EVERY)


def _wait_until_settled(app: App, count: int) -> None:
    deadline = time.monotonic() + DRAIN_PATIENCE
    while (settled := app.counts()["completed"]) < count:
        if time.monotonic() > deadline:
            raise NotFinished(settled, count)
        time.sleep(LOOK_EVERY)
