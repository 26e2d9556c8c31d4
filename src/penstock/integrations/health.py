"""Whether a worker is to be restarted (`/livez`), and whether it takes work (`/readyz`).

Not "the process is up": what counts is when the database last answered its claims. A database
that does not answer makes a worker not ready, and leaves it alive. To restart it then would
bring nothing back, and would throw away outcomes that it keeps until the database is there.
Whether it answers is known from the heartbeats, which have a connection of their own.
"""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from penstock.engine.hooks import Hooks
from penstock.engine.vitals import Living, Vitals
from penstock.integrations.serving import Page, Pages

# Beyond the longest pause between two claims. A claim is given up long before that, and asked
# again; a worker that owns its process ends itself a while later.
LIVE_FOR = 90.0
READY_FOR = 15.0


class Verdict(NamedTuple):
    """An answer to a probe, and why."""

    well: bool
    reason: str


def alive(vitals: Vitals) -> Verdict:
    if vitals.given_up:
        return Verdict(well=False, reason="has ended, because a part of it died or hung")
    if vitals.stopping:
        return Verdict(well=True, reason="stops, and lets running tasks finish")
    late = vitals.since_poll > vitals.poll + LIVE_FOR
    # For as long, and not just now: after an outage the heart may be back before the claimer.
    if late and vitals.beating_for > LIVE_FOR:
        return Verdict(
            well=False, reason="has not claimed for too long, although its heartbeats arrive"
        )
    if late or vitals.out_of_reach:
        return Verdict(well=True, reason="waits for the database, which does not answer")
    return Verdict(well=True, reason="claims")


def ready(vitals: Vitals) -> Verdict:
    if vitals.stopping or vitals.given_up:
        return Verdict(well=False, reason="stops")
    if vitals.out_of_reach:
        return Verdict(well=False, reason="the database does not answer")
    if vitals.lease_lost:
        return Verdict(well=False, reason="no heartbeat has arrived for a lease")
    if vitals.since_poll > vitals.poll + READY_FOR:
        return Verdict(well=False, reason="has not claimed for a while")
    return Verdict(well=True, reason="claims")


class Health(Hooks):
    """The probes of this process: it is as well as the worst of its workers.

    `since_scrape` says how long ago somebody fetched its metrics, in seconds; None: never.
    """

    def __init__(self, since_scrape: Callable[[], float | None] = lambda: None) -> None:
        self._workers: tuple[Living, ...] = ()
        self._since_scrape = since_scrape

    def worker_started(self, worker: Living) -> None:
        self._workers = (*self._workers, worker)

    def worker_stopped(self, worker: Living) -> None:
        self._workers = tuple(one for one in self._workers if one is not worker)

    @property
    def pages(self) -> Pages:
        return {"/livez": self._livez, "/readyz": self._readyz}

    def _livez(self) -> Page:
        # Before the first worker and after the last one, the process is busy coming or going.
        return self._page([(one, alive(one)) for one in self._vitals()], without_any=True)

    def _readyz(self) -> Page:
        return self._page([(one, ready(one)) for one in self._vitals()], without_any=False)

    def _vitals(self) -> list[Vitals]:
        return [worker.vitals() for worker in self._workers]

    def _page(self, judged: list[tuple[Vitals, Verdict]], *, without_any: bool) -> Page:
        well = all(verdict.well for _, verdict in judged) if judged else without_any
        since_scrape = self._since_scrape()
        body = {
            "ok": well,
            "workers": [
                {
                    "id": vitals.worker_id,
                    "ok": verdict.well,
                    "reason": verdict.reason,
                    "seconds_since_claim": round(vitals.since_poll, 3),
                }
                for vitals, verdict in judged
            ],
            "seconds_since_scrape": None if since_scrape is None else round(since_scrape, 3),
        }
        return Page(200 if well else 503, "application/json", msgspec.json.encode(body) + b"\n")
