"""What `penstock bench` says about its figures, and how it measures them."""

from contextlib import closing
from pathlib import Path

import pytest

from penstock import App
from penstock.cli import measuring
from penstock.cli.measuring import Figures, advice, measure
from penstock.settings import DatabaseSettings

ON_SERVER = "postgresql://localhost/app"


def told(settings: DatabaseSettings | None = None, **changed: object) -> str:
    well = {
        "one_per_second": 1_000.0,
        "bulk_per_second": 20_000.0,
        "drain_per_second": 10_000.0,
        "answer": 0.0005,
        "latencies": [0.001] * 100,
    }
    figures = Figures(**(well | changed))  # type: ignore[arg-type]
    return "\n".join(advice(figures, settings or DatabaseSettings(url=ON_SERVER)))


def test_a_database_that_commits_slowly_is_told_of_the_callers_transaction() -> None:
    assert "takes 50 ms" in told(one_per_second=20.0)
    assert "connection=" in told(one_per_second=20.0)
    assert "connection=" not in told(one_per_second=20.0, answer=0.03)  # the way there takes most
    assert "connection=" not in told()


def test_wake_ups_that_do_not_arrive_are_noticed() -> None:
    assert "listen_url" in told(latencies=[0.4] * 100)
    assert "listen_url" not in told()


def test_whoever_turned_notifications_off_is_not_told_of_poolers() -> None:
    off = told(DatabaseSettings(url=ON_SERVER, notify=False), latencies=[0.4] * 100)
    assert "`notify` is off" in off
    assert "listen_url" not in off


def test_whoever_listens_elsewhere_is_not_told_to_set_what_is_set() -> None:
    elsewhere = DatabaseSettings(url=ON_SERVER, listen_url="postgresql://localhost/another")
    assert "`listen_url` must name" in told(elsewhere, latencies=[0.4] * 100)
    assert "PgBouncer" not in told(elsewhere, latencies=[0.4] * 100)


def test_a_database_that_is_far_away_is_not_taken_for_one_without_wake_ups() -> None:
    far = told(answer=0.1, one_per_second=9.0, latencies=[0.15] * 100)
    assert "takes 100 ms to answer" in far
    assert "listen_url" not in far
    without_wake_ups = [0.1 + n * 0.5 / 100 for n in range(100)]  # looked for every 500 ms
    assert "listen_url" in told(answer=0.1, one_per_second=9.0, latencies=without_wake_ups)
    assert "to answer" not in told()


def test_a_slow_disk_is_not_taken_for_missing_wake_ups() -> None:
    assert "listen_url" not in told(one_per_second=14.0, latencies=[0.085] * 100)
    assert "listen_url" in told(one_per_second=14.0, latencies=[0.07 + 0.25] * 100)


def test_whoever_has_a_file_is_not_told_of_servers() -> None:
    on_sqlite = DatabaseSettings(url="sqlite:///app.db")
    assert "wake-ups" not in told(on_sqlite, latencies=[0.4] * 100)


def test_the_cost_of_a_task_and_the_gain_of_many_at_once_are_always_told() -> None:
    assert "needs 100 µs" in told()
    assert "20 times as fast" in told()


def test_percentiles_are_those_of_the_waits() -> None:
    figures = Figures(1.0, 1.0, 1.0, 1.0, [n / 1000 for n in range(1, 101)])
    assert 0.050 <= figures.latency(50) <= 0.051
    assert 0.095 <= figures.latency(95) <= 0.096


def test_what_is_far_away_is_measured_less_often(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(measuring, "AT_ONCE", 20)
    monkeypatch.setattr(measuring, "MOST_AT_ONCE", 20)
    monkeypatch.setattr(measuring, "TICKS_FOR", 0.0)
    url = f"sqlite:///{tmp_path / 'bench.db'}"
    with closing(App(url)) as app, closing(App(url)) as client:
        figures = measure(app, client, lambda _: None)
    assert len(figures.latencies) == measuring.FEWEST


def test_measuring_says_how_far_it_is_and_finds_every_task_done(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(measuring, "AT_ONCE", 200)
    monkeypatch.setattr(measuring, "MOST_AT_ONCE", 1_000)
    shares: list[float] = []
    url = f"sqlite:///{tmp_path / 'bench.db'}"
    with closing(App(url)) as app, closing(App(url)) as client:
        figures = measure(app, client, shares.append)
        counts = app.counts()
    assert shares == sorted(shares)
    assert 0 < shares[0] < 0.1
    assert 0.9 < shares[-1] <= 1
    assert counts == {**dict.fromkeys(counts, 0), "completed": counts["completed"]}
    assert min(figures.one_per_second, figures.bulk_per_second, figures.drain_per_second) > 0
