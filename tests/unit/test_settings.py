from collections.abc import Mapping
from dataclasses import FrozenInstanceError, replace
from datetime import timedelta
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.settings import (
    SETTINGS,
    InvalidSetting,
    Settings,
    UnknownSetting,
    WorkerSettings,
    load_settings,
)
from penstock.settings.reference import as_toml, with_reference
from penstock.settings.toml_file import key_lines

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"

# The promise to users, word for word; the declaration must not drift away from it.
PROMISED = """\
[database]
url = "postgresql://localhost/app"
schema = "penstock"
notify = true                      # one NOTIFY per committed transaction and queue
listen_url = ""                    # a direct connection when `url` goes through PgBouncer
[worker]
slots = 10
queues = []                        # all of the tasks it knows
heartbeat = "3s"
lease = "15s"
grace = "30s"
poll = "30s"
[metrics]
port = 0                           # none
host = "127.0.0.1"
[privacy]
hidden = ["password", "secret", "token"]
[execution_events]
retention_days = 90
[cleanup]
completed_after_days = 30
"""

LEVELS = ("default", "penstock.toml", "environment", "argument", "command line")


@pytest.fixture(autouse=True)
def _empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def load(toml: str | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    if toml is not None:
        Path("penstock.toml").write_bytes(toml.encode())
    return load_settings(environ=environ or {})


def test_nothing_written_means_the_promised_defaults() -> None:
    nothing = load()

    assert nothing == Settings()
    assert {nothing.source_of(name) for name in SETTINGS} == {"default"}
    assert load(PROMISED) == Settings()
    assert load(as_toml()) == Settings()


def test_every_promised_key_exists_and_every_key_is_promised() -> None:
    named = {".".join(path) for path in key_lines(PROMISED) if len(path) == 2}

    assert named == set(SETTINGS)


def test_a_default_is_a_value_that_its_own_kind_accepts() -> None:
    for setting in SETTINGS.values():
        assert setting.kind.read(setting.default) == setting.default, setting.name
        assert setting.kind.read_text(setting.kind.to_text(setting.example)) == setting.example


@pytest.mark.parametrize(("lower", "higher"), list(combinations(LEVELS, 2)))
def test_the_higher_of_two_levels_decides(lower: str, higher: str) -> None:
    slots = {level: 20 + n for n, level in enumerate(LEVELS)} | {"default": 10}
    chosen = {lower, higher}
    if "penstock.toml" in chosen:
        Path("penstock.toml").write_text(f"[worker]\nslots = {slots['penstock.toml']}\n")

    settings = load_settings(
        environ=(
            {"PENSTOCK_WORKER_SLOTS": str(slots["environment"])} if "environment" in chosen else {}
        ),
        arguments={"worker.slots": slots["argument"] if "argument" in chosen else None},
        command_line={"worker.slots": slots["command line"] if "command line" in chosen else None},
    )

    source = {"penstock.toml": "penstock.toml:2", "environment": "PENSTOCK_WORKER_SLOTS"}
    assert settings.worker.slots == slots[higher]
    assert settings.source_of("worker.slots") == source.get(higher, higher)


def test_levels_mix_key_by_key() -> None:
    Path("penstock.toml").write_text('[worker]\nslots = 4\ngrace = "1m"\n')

    settings = load_settings(
        environ={"PENSTOCK_WORKER_SLOTS": "5"}, arguments={"database.schema": "tenant_a"}
    )

    assert settings.worker == WorkerSettings(slots=5, grace=timedelta(minutes=1))
    assert settings.source_of("worker.grace") == "penstock.toml:3"
    assert settings.source_of("database.schema") == "argument"


def test_every_setting_has_a_variable() -> None:
    environ = {s.variable: s.kind.to_text(s.example) for s in SETTINGS.values()}

    settings = load_settings(environ=environ)

    assert "PENSTOCK_DATABASE_URL" in environ
    for setting in SETTINGS.values():
        assert getattr(getattr(settings, setting.section), setting.key) == setting.example
        assert settings.source_of(setting.name) == setting.variable


@pytest.mark.parametrize(
    ("variable", "text", "value"),
    [
        ("PENSTOCK_DATABASE_NOTIFY", "Off", False),
        ("PENSTOCK_DATABASE_NOTIFY", "1", True),
        ("PENSTOCK_DATABASE_URL", "postgres://h/db", "postgresql://h/db"),
        ("PENSTOCK_DATABASE_URL", "SQLite:///my orders.db", "sqlite:///my orders.db"),
        ("PENSTOCK_DATABASE_LISTEN_URL", "", ""),
        ("PENSTOCK_WORKER_QUEUES", "mail, default", ("mail", "default")),
        ("PENSTOCK_WORKER_QUEUES", "", ()),
        ("PENSTOCK_WORKER_GRACE", "0", timedelta(0)),
        ("PENSTOCK_WORKER_POLL", "1.5", timedelta(seconds=1.5)),
        ("PENSTOCK_WORKER_POLL", "1m30s", timedelta(seconds=90)),
    ],
)
def test_the_environment_holds_typed_values(variable: str, text: str, value: object) -> None:
    settings = load_settings(environ={variable: text})

    (setting,) = (s for s in SETTINGS.values() if s.variable == variable)
    assert getattr(getattr(settings, setting.section), setting.key) == value


def test_arguments_have_python_types_and_the_command_line_may_hold_text() -> None:
    assert load_settings(
        environ={}, command_line={"worker.slots": "7", "worker.queues": ("mail",)}
    ).worker == WorkerSettings(slots=7, queues=("mail",))
    with pytest.raises(InvalidSetting, match=r"^argument: worker\.slots must be a whole number"):
        load_settings(environ={}, arguments={"worker.slots": "7"})


def test_the_process_environment_is_read_unless_another_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PENSTOCK_WORKER_SLOTS", "6")

    assert load_settings().worker.slots == 6
    assert load_settings(environ={}).worker.slots == 10


def test_a_named_file_replaces_the_one_in_the_directory(tmp_path: Path) -> None:
    Path("penstock.toml").write_text("[worker]\nslots = 1\n")
    Path("a.toml").write_text("[worker]\nslots = 2\n")
    Path("b.toml").write_text("[worker]\nslots = 3\n")
    environ = {"PENSTOCK_CONFIG": "a.toml"}

    assert load_settings(environ=environ).source_of("worker.slots") == "a.toml:2"
    assert load_settings(environ=environ, path=Path("b.toml")).worker.slots == 3
    assert load_settings(environ={}).worker.slots == 1


def test_a_byte_order_mark_is_not_part_of_the_first_key() -> None:
    assert load("\ufeff[worker]\nslots = 3").worker.slots == 3


def test_variables_for_tests_are_nobodys_business() -> None:
    assert load(environ={"PENSTOCK_TEST_POSTGRES_URL": "x", "OTHER": "y"}) == Settings()


def test_settings_do_not_change_once_loaded() -> None:
    settings = load()

    with pytest.raises(FrozenInstanceError):
        settings.worker.slots = 3  # type: ignore[misc]
    assert replace(settings.worker, slots=3) != settings.worker


def test_the_source_of_an_unknown_setting_is_refused() -> None:
    with pytest.raises(UnknownSetting, match=r"^there is no setting 'worker\.slot'\. Did you mean"):
        Settings().source_of("worker.slot")


TRICKY = '''\
# [worker]
text = """
[worker]
slots = 1 ""\\""""" # quotes that end late
lit = \'\'\'
slots = 2\'\'\'
nested = [ """x"""", "]", \'\'\'y\'\'\'\', ']', [ "#" ], # ]
  { slots = 3 } ]
inline = { a = 1, b.c = [ 1,
  2 ], "d\\u0065" = {} }

[ "worker" . 'odd key' ]
slots = 4
worker . deep . er = 07:30:00
[[tables]]
x = 1
[[tables]]
x = 2
'''


def test_keys_are_found_on_their_lines_whatever_stands_around_them() -> None:
    assert key_lines(TRICKY) == {
        ("text",): 2,
        ("lit",): 5,
        ("nested",): 7,
        ("inline",): 9,
        ("inline", "a"): 9,
        ("inline", "b"): 9,
        ("inline", "b", "c"): 9,
        ("inline", "de"): 10,
        ("worker",): 12,
        ("worker", "odd key"): 12,
        ("worker", "odd key", "slots"): 13,
        ("worker", "odd key", "worker"): 14,
        ("worker", "odd key", "worker", "deep"): 14,
        ("worker", "odd key", "worker", "deep", "er"): 14,
        ("tables",): 15,
        ("tables", "x"): 16,
    }


names = st.text(st.characters(categories=("L", "N", "P", "S")), min_size=1, max_size=15).filter(
    lambda name: not name.startswith("pg_")
)
durations = st.timedeltas(timedelta(milliseconds=10), timedelta(days=9))
servers = st.builds(
    "postgresql://h/{}".format, names.filter(lambda name: not set(name) & set("%?@"))
)
urls = servers | st.builds("sqlite:///{}".format, names)
VALUES: dict[str, st.SearchStrategy[object]] = {
    "database.url": urls,
    "database.schema": names,
    "database.notify": st.booleans(),
    "database.listen_url": st.just("") | servers,
    "worker.slots": st.integers(1, 10_000),
    "worker.queues": st.lists(names, unique=True).map(tuple),
    "worker.heartbeat": st.timedeltas(timedelta(milliseconds=10), timedelta(hours=1)),
    "worker.lease": st.timedeltas(timedelta(hours=2), timedelta(days=9)),
    "worker.grace": durations,
    "worker.poll": durations,
    "execution_events.retention_days": st.integers(1, 36_500),
    "cleanup.completed_after_days": st.integers(1, 36_500),
}


@given(data=st.data())
def test_whatever_valid_file_is_written_its_values_and_lines_come_back(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    chosen = data.draw(st.lists(st.sampled_from(sorted(VALUES)), unique=True))
    if "worker.heartbeat" in chosen and "worker.lease" not in chosen:
        chosen.append("worker.lease")
    values = {name: data.draw(VALUES[name]) for name in chosen}
    lines, places = [], {}
    for name, value in values.items():
        section, key = name.split(".")
        written = SETTINGS[name].kind.to_toml(value)
        filler = st.sampled_from(["", "# [worker] slots = 1", '# """'])
        lines += data.draw(st.lists(filler, max_size=2))
        style = data.draw(st.sampled_from(["{}.{} = {}", "\"{}\" . '{}'={}", "{}.{} = {} # = 1"]))
        lines.append(style.format(section, key, written))
        places[name] = len(lines)
    file = tmp_path_factory.getbasetemp() / "round_trip.toml"
    ending = data.draw(st.sampled_from(["\n", "\r\n"]))
    file.write_bytes(ending.join(lines).encode())

    settings = load_settings(path=file, environ={})

    for name, setting in SETTINGS.items():
        value = getattr(getattr(settings, setting.section), setting.key)
        assert value == values.get(name, setting.default)
        source = f"{file}:{places[name]}" if name in places else "default"
        assert settings.source_of(name) == source


def test_the_reference_says_what_the_declaration_says() -> None:
    page = PAGE.read_text(encoding="utf-8")

    assert page == with_reference(page), (
        "run python -m penstock.settings.reference docs/reference/settings.md"
    )
    assert all(setting.variable in page for setting in SETTINGS.values())
