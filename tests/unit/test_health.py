"""What the probes say of a worker in each condition."""

import json
import urllib.error
import urllib.request

import pytest

from penstock.engine.vitals import Vitals
from penstock.integrations.health import LIVE_FOR, READY_FOR, Health
from penstock.integrations.serving import PortUnavailable, serving

WELL = Vitals(
    worker_id="w",
    slots=10,
    slots_free=10,
    running=0,
    in_stock=0,
    unsettled=0,
    runaways=0,
    since_poll=0.1,
    poll=30.0,
    out_of_reach=False,
    lease_lost=False,
    beating_for=3600.0,
    stopping=False,
    given_up=False,
)


class Patient:
    id = "w"

    def __init__(self, vitals: Vitals) -> None:
        self._vitals = vitals

    def vitals(self) -> Vitals:
        return self._vitals


def asked(vitals: Vitals) -> tuple[int, int]:
    health = Health()
    health.worker_started(Patient(vitals))
    return health.pages["/livez"]().status, health.pages["/readyz"]().status


@pytest.mark.parametrize(
    ("vitals", "live", "ready"),
    [
        (WELL, 200, 200),
        (WELL._replace(slots_free=0, since_poll=29.0), 200, 200),
        (WELL._replace(since_poll=30.0 + READY_FOR + 1), 200, 503),
        (WELL._replace(since_poll=30.0 + LIVE_FOR + 1), 503, 503),
        (WELL._replace(out_of_reach=True), 200, 503),
        (WELL._replace(out_of_reach=True, since_poll=3600.0, beating_for=0.0), 200, 503),
        (WELL._replace(since_poll=3600.0, beating_for=0.0), 200, 503),
        (WELL._replace(since_poll=3600.0, beating_for=LIVE_FOR - 1), 200, 503),
        (WELL._replace(out_of_reach=True, since_poll=30.0 + LIVE_FOR + 1), 503, 503),
        (WELL._replace(lease_lost=True), 200, 503),
        (WELL._replace(stopping=True, since_poll=3600.0), 200, 503),
        (WELL._replace(given_up=True, since_poll=1.0, beating_for=0.0), 503, 503),
    ],
    ids=[
        "well",
        "no room",
        "late",
        "stuck",
        "a claim failed",
        "database away",
        "database hangs",
        "database is back",
        "only claims fail",
        "lease lost",
        "stopping",
        "given up",
    ],
)
def test_a_probe_answers_by_the_last_claim_that_was_answered(
    vitals: Vitals, live: int, ready: int
) -> None:
    assert asked(vitals) == (live, ready)


def test_a_process_without_a_worker_yet_is_alive_and_not_ready() -> None:
    pages = Health().pages
    assert (pages["/livez"]().status, pages["/readyz"]().status) == (200, 503)


def test_a_worker_that_has_left_is_not_asked_any_more() -> None:
    health = Health()
    worker = Patient(WELL._replace(since_poll=1e6))
    health.worker_started(worker)
    health.worker_stopped(worker)
    assert health.pages["/livez"]().status == 200


def test_pages_are_served_and_say_why() -> None:
    health = Health()
    health.worker_started(Patient(WELL._replace(out_of_reach=True)))
    with serving("127.0.0.1", 0, health.pages) as port:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/livez?x=1", timeout=5) as answer:
            assert json.load(answer)["ok"] is True
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5)
        with refused.value as answer:
            (worker,) = json.load(answer)["workers"]
        assert worker["reason"] == "the database does not answer"
        with pytest.raises(urllib.error.HTTPError, match="404") as missing:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/else", timeout=5)
        missing.value.close()


def test_a_port_that_is_taken_is_named() -> None:
    with (
        serving("127.0.0.1", 0, {}) as port,
        pytest.raises(PortUnavailable, match=str(port)),
        serving("127.0.0.1", port, {}),
    ):
        pass
