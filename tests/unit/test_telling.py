"""Errors, spans and names as people read them."""

from datetime import UTC, datetime, timedelta

import pytest

from penstock.engine.endings import errors_of
from penstock.model.events import Event, EventType
from penstock.model.telling import error_line, listed, span

NOW = datetime(2030, 1, 31, 8, tzinfo=UTC)
BOOM = {"type": "ValueError", "message": "boom"}


def event(kind: EventType, *, worker_id: str | None = None, **data: object) -> Event:
    return Event(seq=1, type=kind, at=NOW, worker_id=worker_id, data=data)


def test_every_attempts_error_is_told_since_the_last_rerun() -> None:
    history = [
        event(EventType.CLAIMED, worker_id="w1", attempt=1),
        event(EventType.FAILED, error={"type": "KeyError", "message": "before the rerun"}),
        event(EventType.RERUN),
        event(EventType.CLAIMED, worker_id="w2", attempt=2),
        event(EventType.RETRY_SCHEDULED, error=BOOM),
        event(EventType.CLAIMED, worker_id="w3", attempt=3),
        event(EventType.RECOVERED, lost_worker="w3", started=False, crashes=0),
        event(EventType.CLAIMED, worker_id="w4", attempt=3),
        event(EventType.RECOVERED, lost_worker="w4", started=True, crashes=1),
    ]
    assert [(one.attempt, one.worker_id, one.line) for one in errors_of(history)] == [
        (2, "w2", "ValueError: boom"),
        (3, "w4", "worker w4 died (crash 1)"),
    ]
    assert errors_of([]) == []


@pytest.mark.parametrize(
    ("length", "told"),
    [
        (timedelta(), "1ms"),
        (timedelta(milliseconds=340), "340ms"),
        (timedelta(seconds=2.449), "2.4s"),
        (timedelta(seconds=72.4), "1m12s"),
        (timedelta(hours=2, minutes=3, seconds=4), "2h3m"),
        (timedelta(days=3, hours=4, minutes=5), "3d4h"),
        (timedelta(seconds=-5), "5.0s"),
    ],
)
def test_a_span_is_told_as_exactly_as_its_length_deserves(length: timedelta, told: str) -> None:
    assert span(length) == told


def test_names_and_errors_stay_on_one_line() -> None:
    assert listed(["b", "a"]) == "'a' and 'b'"
    assert listed(["a"]) == "'a'"
    assert error_line({"type": "E", "message": "one\n  two"}) == "E: one two"
    assert error_line({"type": "E", "message": "x" * 999}).endswith("…")
    assert error_line(None) == "an error that was not stored"
