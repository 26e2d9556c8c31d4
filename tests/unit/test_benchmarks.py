"""The benchmarks refuse to measure work that was lost or repeated, and say what falls short."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.chart import LETTER, as_svg
from benchmarks.figures import FIGURES, PROMISES, Promise, Results
from benchmarks.records import NOTE, Beginning, NotOnce, Record, steady_rate
from benchmarks.report import BEGIN, END, as_markdown, write_into
from benchmarks.rows import ROWS, Row
from benchmarks.sizes import FULL, QUICK
from benchmarks.surroundings import LOOPS, NAP, SLEEPS, SYNCS, Surroundings
from benchmarks.systems import SYSTEMS


def recorded(path: Path, *lines: tuple[int, int, int]) -> Record:
    record = Record(path)
    path.write_bytes(b"".join(NOTE.pack(*line) for line in lines))
    return record


def test_beginnings_are_counted_while_they_are_written_and_read_in_the_order_of_time(
    tmp_path: Path,
) -> None:
    record = recorded(tmp_path / "record", (1, 7, 2_000_000_000), (0, 8, 1_000_000_000))
    assert record.count() == 2
    assert record.check("x", range(2)) == [Beginning(0, 8, 1.0), Beginning(1, 7, 2.0)]


@pytest.mark.parametrize(
    ("ran", "lost", "repeated", "strange"),
    [([0, 1], 1, 0, 0), ([0, 1, 1, 2], 0, 1, 0), ([0, 1, 2, 3], 0, 0, 1)],
)
def test_work_that_was_not_done_exactly_once_measures_nothing(
    tmp_path: Path, ran: list[int], lost: int, repeated: int, strange: int
) -> None:
    record = recorded(tmp_path / "record", *((n, 7, n) for n in ran))
    with pytest.raises(NotOnce) as caught:
        record.check("x", range(3))
    error = caught.value
    assert (error.lost, error.repeated, error.strange) == (lost, repeated, strange)


def test_the_rate_of_two_processes_begins_when_both_are_at_work() -> None:
    alone = [Beginning(n, 1, n / 100) for n in range(100)]
    together = [Beginning(100 + n, n % 2, 1.0 + n / 200) for n in range(200)]
    assert steady_rate(alone + together, ended=2.0) == pytest.approx(200)


def test_a_promise_compares_medians_of_the_same_run() -> None:
    results = Results()
    for ours, theirs in ((30.0, 10.0), (20.0, 10.0), (90.0, 10.0)):
        results.add("penstock", {"drain 1": ours})
        results.add("pgqueuer", {"drain 1": theirs})
    line = Promise("", "drain 1", "penstock", "@pgqueuer", least=3.0)
    assert line.found(results) == pytest.approx(3.0)
    assert line.holds(results)
    assert Promise("", "drain 1", "penstock", "@pgqueuer", least=3.1).holds(results) is False
    assert Promise("", "drain 1", "penstock", "@huey", least=3.1).holds(results) is None


def test_a_promise_shows_how_far_apart_the_turns_were() -> None:
    results = Results()
    for ours, theirs in ((30.0, 10.0), (20.0, 10.0), (90.0, 10.0)):
        results.add("penstock", {"drain 1": ours})
        results.add("pgqueuer", {"drain 1": theirs})
    assert Promise("", "drain 1", "penstock", "@pgqueuer", least=1.5).turns(results) == [3, 2, 9]
    assert Promise("", "drain 1", "penstock", None, least=1.0).turns(results) == [30, 20, 90]
    page = "\n".join(as_markdown(results, {}, {}))
    assert "| drain, 1 process, × PgQueuer | 3 | 2 to 9 | ≥ 1.5 | holds |" in page


def test_turns_that_failed_are_not_compared_with_those_of_another_minute() -> None:
    results = Results()
    results.add("penstock", {"drain 1": 30.0})
    results.add("penstock", {"drain 1": 20.0})
    results.add("pgqueuer", {"drain 1": 10.0})
    assert Promise("", "drain 1", "penstock", "@pgqueuer", least=1.5).turns(results) == []


def test_a_line_that_nobody_could_be_measured_for_says_so() -> None:
    results = Results()
    results.add("penstock-def", {"drain 1": 30.0})
    page = "\n".join(as_markdown(results, {}, {"celery": "there is no redis-server"}))
    assert "| drain of def tasks, × Celery | – | – | ≥ 5 | not measured |" in page


def test_a_page_says_above_its_figures_whether_all_of_them_are_there() -> None:
    results = Results()
    results.add("huey", {"drain 1": 5_000.0})
    assert "What ran, ran once" in next(as_markdown(results, {}, {}))
    results.failures.append("drain of Huey: 3 lost")
    assert "**1 could not be measured**" in next(as_markdown(results, {}, {}))


@pytest.mark.parametrize("rounds", ["0", "-3"])
def test_no_rounds_are_refused_before_anything_is_measured(
    rounds: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["benchmarks", f"--rounds={rounds}"])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    assert f"{rounds} rounds measure nothing" in capsys.readouterr().err


def test_rounds_that_are_no_number_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["benchmarks", "--rounds=x"])
    with pytest.raises(SystemExit):
        main()
    assert "'x' is no whole number of rounds" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--systems", "--parts"])
def test_a_misspelt_name_is_refused_before_anything_is_measured(
    option: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["benchmarks", option, "idle,pgq"])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    assert re.search("there is no .*'pgq'; there are", capsys.readouterr().err)


def test_a_line_about_deep_tables_says_how_deep_they_were() -> None:
    results = Results(deep=50_000)
    results.add("penstock", {"among ready": 90.0, "shallow": 100.0})
    page = "\n".join(as_markdown(results, {}, {}))
    assert "| among 50,000 ready, × shallow | 0.9 | – | ≥ 0.8 | holds |" in page


def test_a_page_has_only_what_was_measured() -> None:
    results = Results()
    results.add("huey", {"drain 1": 5_000.0})
    page = "\n".join(as_markdown(results, {}, {}))
    assert "| drain, 1 process, /s | 5,000 |" in page
    assert "PgQueuer" not in page
    assert "PostgreSQL" not in page


def test_promises_are_about_figures_and_systems_that_exist() -> None:
    figures, systems = {one.key for one in FIGURES}, {one.name for one in SYSTEMS}
    for promise in PROMISES:
        key, _, system = (promise.than or "").rpartition("@")
        assert {promise.key, key or promise.key} <= figures
        assert {promise.ours, system or promise.ours} <= systems


def test_slow_systems_get_less_to_do_and_never_too_little() -> None:
    assert FULL.paced(FULL.drain, 1.0) == FULL.drain
    assert FULL.paced(FULL.drain, 0.05) == FULL.drain // 20
    assert QUICK.paced(QUICK.runs, 0.01) == 200


def test_systems_take_turns_and_those_far_away_take_one() -> None:
    ours, near, far = (
        next(one for one in SYSTEMS if one.name == name) for name in ("penstock", "huey", "celery")
    )
    drain = next(row for row in ROWS if row.needs == "drain")
    twice = Row("drain", drain.measure, times=2)
    assert list(twice.turns([far, ours, near])) == [far, ours, near, ours, near]
    assert list(Row("idle", drain.measure, times=2).turns([near, ours])) == [ours, ours]


def test_no_row_with_a_bound_on_a_rate_is_left_to_one_minute_of_a_round() -> None:
    short = {row.needs for row in ROWS if row.times > 1}
    assert short >= {"one", "bulk", "drain", "latency"}


def test_a_run_says_what_the_machine_itself_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    took = iter([0.001] * SYNCS + [NAP + 0.002] * (SLEEPS - 4) + [NAP + 0.05] * 4 + [0.03] * LOOPS)
    monkeypatch.setattr("benchmarks.surroundings._seconds", lambda _act: next(took))
    ticks = iter([(10, 1_000), (60, 2_000)])
    monkeypatch.setattr("benchmarks.surroundings._processor_ticks", lambda: next(ticks))
    surroundings = Surroundings(tmp_path)

    surroundings.look()

    assert surroundings.told() == {
        "a wait for the disk": "1.00 ms, p99 1.0",
        "woken too late by": "2.00 ms, p99 50.0",
        "a million turns of a loop": "30 to 30 ms",
        "taken by the host": "5.0% of the processor's time",
    }


def test_the_page_and_the_chart_hold_what_was_measured(tmp_path: Path) -> None:
    results = Results()
    results.add("penstock", {"drain 1": 12_345.0, "runs": 1_234.0})
    results.add("pgqueuer", {"drain 1": 2_345.0})
    missing = {"celery": "there is no redis-server"}
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\noutdated\n{END}\nafter\n", "utf-8")
    write_into(page, as_markdown(results, {"cores": "2"}, missing))
    text = page.read_text("utf-8")
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "outdated" not in text
    assert "| 12,345 |" in text
    assert "Not measured: Celery, Redis, because there is no redis-server." in text
    assert "| drain, 1 process, × PgQueuer | 5.26 | – | ≥ 1.5 | holds |" in text

    drawn = ET.fromstring(as_svg(results))  # noqa: S314 - we drew it ourselves
    texts = [one.text for one in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert {"12,345", "1,234", "2,345"} <= set(texts)


def test_the_name_of_every_system_has_room_beside_its_bar() -> None:
    results = Results()
    for system in SYSTEMS:
        results.add(system.name, {"drain 1": 1_000.0})
    drawn = ET.fromstring(as_svg(results))  # noqa: S314 - we drew it ourselves
    names = [
        (float(one.attrib["x"]), one.text or "")
        for one in drawn.iter("{http://www.w3.org/2000/svg}text")
        if one.get("text-anchor") == "end"
    ]
    assert {name for _, name in names} == {system.title for system in SYSTEMS}
    assert all(right >= LETTER * len(name) for right, name in names)
