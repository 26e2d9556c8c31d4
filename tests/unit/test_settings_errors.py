from pathlib import Path

import pytest

from penstock.errors import PenstockError
from penstock.settings import (
    ConflictingSettings,
    DatabaseSettings,
    InvalidSetting,
    Settings,
    SettingsError,
    UnknownSetting,
    UnreadableSettings,
    hide_password,
    load_settings,
)

SLOTS = "worker.slots must be a whole number from 1 to 10000"
DAYS = "must be a whole number from 1 to 36500"
LENGTH = 'must be a duration of at least 10ms, in seconds or like "1m30s"'
SCHEMA = "database.schema must be a schema name of 1 to 63 bytes that does not begin with pg_"
URL = "database.url must be a URL that begins with postgresql:// or sqlite:///"
LISTEN_URL = "database.listen_url must be a URL that begins with postgresql://"
QUEUES = "worker.queues must be a list of queue names, each named once"

WORKER_KEYS = "slots, queues, heartbeat, lease, grace, poll"

SLOTS_EXAMPLE = "For example: slots = 10"
URL_EXAMPLE = 'For example: url = "postgresql://localhost/app"'
QUEUES_EXAMPLE = 'For example: queues = ["mail", "default"]'
SCHEMA_EXAMPLE = 'For example: schema = "penstock"'
SECTION_EXAMPLE = "For example: [worker] on a line of its own, and its keys below it"

THIRTY_TWO_UMLAUTS = "ä" * 32  # 64 bytes
HUGE = f"0x{'f' * 5000}"  # TOML may hold it, and Python refuses to print it in decimal

UNKNOWN_IN_FILE = [
    ("[worker]\nslot = 3", 2, "setting 'worker.slot'. Did you mean 'worker.slots'?"),
    (
        "[worker]\n\nHeart-Beat = 3",
        3,
        "setting 'worker.Heart-Beat'. Did you mean 'worker.heartbeat'?",
    ),
    ("\nslots = 3", 2, "setting 'slots'. Did you mean 'worker.slots'?"),
    ("[database]\nslots = 3", 2, "setting 'database.slots'. Did you mean 'worker.slots'?"),
    ("worker = { slot = 3 }", 1, "setting 'worker.slot'. Did you mean 'worker.slots'?"),
    (
        "[worker.extra]",
        1,
        f"setting 'worker.extra'. The keys of [worker] are {WORKER_KEYS}.",
    ),
    ("[worke]\nslots = 3", 1, "section 'worke'. Did you mean 'worker'?"),
    ("# ours\n[events]", 2, "section 'events'. Did you mean 'execution_events'?"),
    (
        "[x]",
        1,
        (
            "section 'x'. The sections are database, worker, metrics, privacy, execution_events, "
            "cleanup."
        ),
    ),
]

WRONG_IN_FILE = [
    ("worker = 5", 1, f"worker is a section, not 5. {SECTION_EXAMPLE}"),
    ("[[worker]]", 1, f"worker is a section, not a list. {SECTION_EXAMPLE}"),
    ("[worker]\nslots = 0", 2, f"{SLOTS}, not 0. {SLOTS_EXAMPLE}"),
    ("[worker]\nslots = 10001", 2, f"{SLOTS}, not 10001. {SLOTS_EXAMPLE}"),
    ("[worker]\nslots = '10'", 2, f"{SLOTS}, not the text '10'. {SLOTS_EXAMPLE}"),
    ("[worker]\nslots = true", 2, f"{SLOTS}, not true. {SLOTS_EXAMPLE}"),
    ("[worker]\nslots = 1.0", 2, f"{SLOTS}, not 1.0. {SLOTS_EXAMPLE}"),
    ("[worker.slots]", 1, f"{SLOTS}, not a table. {SLOTS_EXAMPLE}"),
    (f"[worker]\nslots = {HUGE}", 2, f"{SLOTS}, not a number that large. {SLOTS_EXAMPLE}"),
    (
        "[execution_events]\nretention_days = 0",
        2,
        f"execution_events.retention_days {DAYS}, not 0. For example: retention_days = 90",
    ),
    (
        "[cleanup]\ncompleted_after_days = -1",
        2,
        f"cleanup.completed_after_days {DAYS}, not -1. For example: completed_after_days = 30",
    ),
    (
        "[database]\nnotify = 'false'",
        2,
        "database.notify must be true or false, not the text 'false'. For example: notify = true",
    ),
    ("[database]\nschema = ''", 2, f"{SCHEMA}, not an empty text. {SCHEMA_EXAMPLE}"),
    ("[database]\nschema = 'pg_x'", 2, f"{SCHEMA}, not the text 'pg_x'. {SCHEMA_EXAMPLE}"),
    (
        f"[database]\nschema = '{THIRTY_TWO_UMLAUTS}'",
        2,
        f"{SCHEMA}, not the text '{THIRTY_TWO_UMLAUTS}'. {SCHEMA_EXAMPLE}",
    ),
    ("[database]\nurl = 5", 2, f"{URL}, written as text. {URL_EXAMPLE}"),
    ("[database]\nurl = ''", 2, f"{URL}, and it is empty. {URL_EXAMPLE}"),
    (
        "[database]\nurl = 'orders.db'",
        2,
        f"{URL}; a file is named by sqlite:/// and then its path. {URL_EXAMPLE}",
    ),
    (
        "[database]\nurl = 'postgresql+psycopg://h/d'",
        2,
        f"{URL}, not postgresql+psycopg://; leave the name of the driver out. {URL_EXAMPLE}",
    ),
    ("[database]\nurl = 'mysql://h/d'", 2, f"{URL}, not mysql://. {URL_EXAMPLE}"),
    (
        "[database]\nurl = 'sqlite://orders.db'",
        2,
        (
            "database.url must have three slashes and then the file (sqlite:///orders.db), four "
            f"before an absolute path, or be sqlite:///:memory:. {URL_EXAMPLE}"
        ),
    ),
    (
        "[database]\nlisten_url = 'sqlite:///orders.db'",
        2,
        f'{LISTEN_URL}, not sqlite://. For example: listen_url = "postgresql://localhost:5432/app"',
    ),
    ("[worker]\nqueues = 'mail'", 2, f"{QUEUES}, not the text 'mail'. {QUEUES_EXAMPLE}"),
    ("[worker]\nqueues = [1]", 2, f"{QUEUES}, and 1 is not a queue name. {QUEUES_EXAMPLE}"),
    (
        "[worker]\nqueues = [\n'mail',\n'mail']",
        2,
        f"{QUEUES}, and the text 'mail' is there twice. {QUEUES_EXAMPLE}",
    ),
    (
        "[worker]\nheartbeat = '3x'",
        2,
        (
            f"worker.heartbeat {LENGTH}, not the text '3x': there is no unit 'x'. "
            'For example: heartbeat = "3s"'
        ),
    ),
    ("[worker]\npoll = 0", 2, f'worker.poll {LENGTH}, not 0. For example: poll = "30s"'),
    (
        f"[worker]\nlease = {HUGE}",
        2,
        (
            f"worker.lease {LENGTH}, not a number that large: it is longer than 100 years. "
            'For example: lease = "15s"'
        ),
    ),
    (
        "[worker]\ngrace = 07:30:00",
        2,
        (
            'worker.grace must be a duration, in seconds or like "1m30s", not a date or time. '
            'For example: grace = "30s"'
        ),
    ),
]

UNREADABLE = [
    (b"[worker]\n\nslots = ten\n", ":3: this is not valid TOML: Invalid value in column 9. "),
    (b"[worker]\nslots", ":2: this is not valid TOML: Expected '=' after a key"),
    (b"[worker]\nslots = 1\nslots = 2\n#", ":3: this is not valid TOML: Cannot overwrite a value"),
    (b"[worker]\nslots = 1 # \xff", ":2: the file is not UTF-8 text. Save it as UTF-8."),
    (b"x = " + b"[" * 5000, ": its values are nested too deeply. "),
    (b"x = " + b"9" * 5000, ": it holds a number of thousands of digits. "),
]

WRONG_VARIABLES = [
    (
        "PENSTOCK_SLOTS",
        "3",
        "there is no setting of this name. Did you mean 'PENSTOCK_WORKER_SLOTS'?",
    ),
    (
        "PENSTOCK_RUNNER_SLOTS",
        "3",
        "there is no setting of this name. Did you mean 'PENSTOCK_WORKER_SLOTS'?",
    ),
    (
        "PENSTOCK_CONFIGS",
        "x",
        "there is no setting of this name. Did you mean 'PENSTOCK_CONFIG'?",
    ),
    ("PENSTOCK_WORKER_SLOTS", "ten", f"{SLOTS}, not the text 'ten'. "),
    ("PENSTOCK_WORKER_SLOTS", "٣", f"{SLOTS}, not the text '٣'. "),
    ("PENSTOCK_WORKER_SLOTS", "", f"{SLOTS}, not an empty text. "),
    ("PENSTOCK_DATABASE_NOTIFY", "maybe", "database.notify must be true or false, not the text "),
    ("PENSTOCK_DATABASE_URL", "", f"{URL}, and it is empty. "),
    ("PENSTOCK_WORKER_QUEUES", "a,,b", f"{QUEUES}, and an empty text is not a queue name. "),
    ("PENSTOCK_CONFIG", "", "the variable is empty. Let it name a settings file, or unset it."),
]


@pytest.fixture(autouse=True)
def _empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def refusal_of(toml: str | bytes) -> SettingsError:
    Path("penstock.toml").write_bytes(toml if isinstance(toml, bytes) else toml.encode())
    with pytest.raises(SettingsError) as caught:
        load_settings(environ={})
    return caught.value


@pytest.mark.parametrize(("toml", "line", "message"), UNKNOWN_IN_FILE)
def test_an_unknown_name_in_the_file_is_shown_with_its_line_and_the_nearest(
    toml: str, line: int, message: str
) -> None:
    error = refusal_of(toml)

    assert isinstance(error, UnknownSetting)
    assert str(error) == f"penstock.toml:{line}: there is no {message}"
    assert error.source == f"penstock.toml:{line}"
    assert error.nearest is None or repr(error.nearest) in message


@pytest.mark.parametrize(("toml", "line", "message"), WRONG_IN_FILE)
def test_a_wrong_value_in_the_file_is_shown_with_its_line_and_an_example(
    toml: str, line: int, message: str
) -> None:
    error = refusal_of(toml)

    assert isinstance(error, InvalidSetting)
    assert str(error) == f"penstock.toml:{line}: {message}"
    assert error.key == message.partition(" ")[0]


@pytest.mark.parametrize(("content", "message"), UNREADABLE)
def test_a_file_that_is_not_toml_is_refused_with_the_parsers_reason(
    content: bytes, message: str
) -> None:
    error = refusal_of(content)

    assert isinstance(error, UnreadableSettings)
    assert str(error).startswith(f"penstock.toml{message}")


def test_a_long_value_is_not_repeated_whole() -> None:
    assert len(str(refusal_of(f"[worker]\nslots = '{'x' * 100_000}'"))) < 300


@pytest.mark.parametrize(("variable", "text", "message"), WRONG_VARIABLES)
def test_a_mistake_in_the_environment_is_named_by_its_variable(
    variable: str, text: str, message: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(environ={variable: text})

    assert str(caught.value).startswith(f"{variable}: {message}")
    assert caught.value.source == variable


@pytest.mark.parametrize("name", ["", " mail", "mail\n", "ma\0il", "\ud800"])
def test_names_that_no_one_could_tell_apart_or_store_are_refused(name: str) -> None:
    with pytest.raises(InvalidSetting, match=r"^argument: worker\.queues must be a list"):
        load_settings(environ={}, arguments={"worker.queues": [name]})
    with pytest.raises(InvalidSetting, match=r"^argument: database\.schema must be a schema"):
        load_settings(environ={}, arguments={"database.schema": name})


@pytest.mark.parametrize(
    "url", ["sqlite://", "sqlite:///", "sqlite:///a\0b", "postgresql://h/d ", "postgresql://h/d\n"]
)
def test_urls_that_only_look_right_are_refused(url: str) -> None:
    with pytest.raises(
        InvalidSetting, match=r"^PENSTOCK_DATABASE_URL: database\.url (has|must have)"
    ):
        load_settings(environ={"PENSTOCK_DATABASE_URL": url})


def test_a_variable_like_no_other_is_answered_with_all_of_them() -> None:
    with pytest.raises(UnknownSetting) as caught:
        load_settings(environ={"PENSTOCK_X": "3"})

    assert caught.value.nearest is None
    assert "Unset it, or use one of PENSTOCK_CONFIG, PENSTOCK_DATABASE_URL, " in str(caught.value)


def test_errors_carry_their_facts() -> None:
    with pytest.raises(UnknownSetting) as unknown:
        load_settings(environ={}, command_line={"worker.slot": 1})
    with pytest.raises(InvalidSetting) as invalid:
        load_settings(environ={"PENSTOCK_WORKER_SLOTS": "0"})

    assert (unknown.value.key, unknown.value.source) == ("worker.slot", "command line")
    assert unknown.value.nearest == "worker.slots"
    assert (invalid.value.key, invalid.value.source) == ("worker.slots", "PENSTOCK_WORKER_SLOTS")
    assert invalid.value.nearest is None
    assert isinstance(unknown.value, PenstockError)


@pytest.mark.parametrize(
    "variable", ["PENSTOCK_SERVICE_HOST", "PENSTOCK_PORT", "PENSTOCK_PORT_9000_TCP_ADDR"]
)
def test_a_variable_of_a_kubernetes_service_is_told_as_one(variable: str) -> None:
    environ = {variable: "tcp://10.0.0.1:9000", "PENSTOCK_SERVICE_HOST": "10.0.0.1"}
    with pytest.raises(UnknownSetting) as refused:
        load_settings(environ=environ)
    assert str(refused.value) == (
        f"{variable}: there is no setting of this name. Kubernetes sets it for a Service whose "
        "name begins with penstock: write `enableServiceLinks: false` in the pod's spec, or give "
        "the Service another name."
    )


def test_the_port_of_a_service_that_is_named_as_a_setting_is_told_as_one() -> None:
    environ = {
        "PENSTOCK_METRICS_PORT": "tcp://10.0.0.1:9108",
        "PENSTOCK_METRICS_SERVICE_HOST": "10.0.0.1",
    }
    with pytest.raises(UnknownSetting, match="METRICS_PORT: there is no port in it"):
        load_settings(environ=environ)


def test_a_misspelt_variable_beside_a_service_is_told_as_misspelt() -> None:
    environ = {"PENSTOCK_A_SLOTS": "1", "PENSTOCK_SERVICE_HOST": "10.0.0.1"}
    with pytest.raises(UnknownSetting, match="Did you mean 'PENSTOCK_WORKER_SLOTS'"):
        load_settings(environ=environ)


def test_a_value_is_checked_even_where_a_higher_level_overrides_it() -> None:
    Path("penstock.toml").write_text("[worker]\nslots = 0")

    with pytest.raises(InvalidSetting, match=r"^penstock\.toml:2: worker\.slots"):
        load_settings(environ={"PENSTOCK_WORKER_SLOTS": "3"})


def test_a_file_that_was_named_must_be_readable(tmp_path: Path) -> None:
    with pytest.raises(UnreadableSettings, match=r"^no\.toml: there is no such file\. Create"):
        load_settings(path=Path("no.toml"), environ={})
    with pytest.raises(UnreadableSettings, match="and PENSTOCK_CONFIG names it"):
        load_settings(environ={"PENSTOCK_CONFIG": "no.toml"})
    with pytest.raises(UnreadableSettings, match="the file cannot be read: "):
        load_settings(path=tmp_path, environ={})


def test_a_lease_lasts_at_least_two_heartbeats() -> None:
    load_settings(environ={"PENSTOCK_WORKER_LEASE": "6"})
    short_lease = refusal_of("[worker]\nlease = '5999ms'")
    long_heartbeat = refusal_of("[worker]\n\nheartbeat = 10")

    assert str(short_lease) == (
        "penstock.toml:2: worker.lease is 5s999ms and worker.heartbeat is 3s (default), but a "
        "lease must last at least 2 heartbeats, or one late heartbeat costs a live worker its "
        "tasks. Set worker.lease to 6s or more, or lower worker.heartbeat."
    )
    assert isinstance(long_heartbeat, ConflictingSettings)
    assert long_heartbeat.source == "penstock.toml:3"
    assert (long_heartbeat.key, long_heartbeat.other) == ("worker.heartbeat", "worker.lease")


@pytest.mark.parametrize(
    "url",
    [
        "mysql://u:hush@h/d",
        "postgresql//u:hush@h/d",
        "postgresql://u:hush@h/d\n",
        "u:hush@h",
        "host=h password=hush",
        "sqlite://u:hush@h",
        "postgresql://u:hush%zz@h/d",
        "postgresql://u:hush%00@h/d",
        "postgresql://u:hush%@h/d",
        "postgresql://u:my hush@h/d",
        "postgresql://u:p@hush@h/d",
        "postgresql://u:p/hush@h/d",
        "postgresql://u:1/hush@h/d",
        "postgresql://u:hush/d",
        "postgresql://u:hush",
        "postgresql://h:5432,u:hush/d",
        "postgresql://h/d?password=my hush",
        "postgresql://h/d?password=my&hush",
        "postgresql://h/d?password=my&hush=1",
        "postgresql://h/d?password=my=hush",
    ],
)
def test_a_refused_url_does_not_betray_its_password(url: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        load_settings(environ={"PENSTOCK_DATABASE_URL": url})

    assert "hush" not in str(caught.value)
    assert caught.value.__suppress_context__  # a traceback would show what the message hides


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("postgresql://u:hush%zz@h/d", "it has a % without two hexadecimal digits behind it"),
        ("postgresql://u:my hush@h/d", "it has a blank in it"),
        ("postgresql://u:p@hush@h/d", "it has an @ where the host or the database is named"),
        ("postgresql://u:hush/d", "there is no number behind the colon of its host"),
        ("postgresql://h/d?password=my&hush=1", "PostgreSQL does not know one of its parameters"),
    ],
)
def test_a_url_that_cannot_be_read_says_why_and_how_to_write_it(url: str, fault: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        load_settings(environ={"PENSTOCK_DATABASE_URL": url})

    told = str(caught.value)
    assert told.startswith(f"PENSTOCK_DATABASE_URL: database.url cannot be read: {fault}")
    assert "Percent-encode" in told


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://",
        "postgresql:///d?host=/run/postgresql",
        "postgresql://%2Frun%2Fpostgresql/d",
        "postgresql://h",
        "postgresql://h:/d",
        "postgresql://u@h:5432,[::1]:5433,h3/d?target_session_attrs=read-write",
        "postgresql://u%40corp:h%20u%2Fs%25h@h/d",
        "postgresql://u:h?u#s:h[&=@h?sslmode=disable",
        "postgresql://h/d?user=u@corp&options=-c%20statement_timeout%3D5s",
    ],
)
def test_a_url_that_postgresql_can_read_is_taken_as_it_is(url: str) -> None:
    assert load_settings(environ={"PENSTOCK_DATABASE_URL": url}).database.url == url


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:hush@h:5432/d", "postgresql://u:***@h:5432/d"),
        ("postgresql://me@corp:hu:sh/@x@h/d", "postgresql://me@corp:***@h/d"),
        ("postgresql://:hush@h", "postgresql://:***@h"),
        ("postgresql:u:hush@h", "postgresql:***@h"),
        ("postgresql://h/d?password=hush&a=b", "postgresql://h/d?password=***&a=b"),
        ("postgresql://h/d?a=b&sslpassword=hush", "postgresql://h/d?a=b&sslpassword=***"),
        ("postgresql://h:1/d?password=my@hush&a=b", "postgresql://h:***&a=b"),
        ("postgresql://u:hush?password=hush@h/d", "postgresql://u:***"),
        ("postgresql://h/d?password='my'hush&a=b", "postgresql://h/d?password=***&a=b"),
        ("host=h password='hu sh' user=u", "host=h password=*** user=u"),
        ("postgresql://u@h:5432/d", "postgresql://u@h:5432/d"),
        ("sqlite:////srv/my orders.db", "sqlite:////srv/my orders.db"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    settings = Settings(database=DatabaseSettings(url=url, listen_url=url))

    assert hide_password(url) == shown
    assert repr(settings).count(repr(shown)) == 2
    assert "hush" not in repr(settings)
