"""An App: made without I/O, set up before its first use, open again after it was closed."""

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType

import psycopg
import pytest

import penstock
from penstock import App, Registry
from penstock.app import AlreadyOpen
from penstock.engine.requests import InvalidOption
from penstock.errors import FileMisplaced, NotSqlite, SchemaMissing
from penstock.registry import NameTaken, RegistryTaken
from penstock.settings import SettingsError


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory that nobody has put anything into."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PENSTOCK_DATABASE_URL", raising=False)
    return tmp_path


@pytest.fixture
def tasks() -> Registry:
    registry = Registry(prefix="shop.")

    @registry.task
    def send(order_id: int) -> int:
        return order_id

    return registry


@pytest.fixture
def module() -> Iterator[ModuleType]:
    made = ModuleType("mail_tasks_for_this_test")
    sys.modules[made.__name__] = made
    yield made
    del sys.modules[made.__name__]


def test_everything_that_is_public_is_in_all_and_can_be_imported() -> None:
    public = {name for name, value in vars(penstock).items() if not name.startswith("_")}
    modules = {name for name in public if isinstance(getattr(penstock, name), ModuleType)}
    assert public - modules == set(penstock.__all__)
    assert sorted(penstock.__all__) == penstock.__all__


# --- lazy opening ---------------------------------------------------------------------------


def test_making_an_app_and_declaring_its_tasks_touches_nothing(directory: Path) -> None:
    (directory / "penstock.toml").write_text("this is no TOML")
    app = App("sqlite:///orders.db", include=["a_module_that_does_not_exist"])

    @app.task(queue="mail")
    def send(order_id: int) -> int:
        return order_id

    assert send(42) == 42
    assert send.request(42).new.queue == "mail"
    assert repr(app) == "<App with 1 tasks>"
    assert [path.name for path in directory.iterdir()] == ["penstock.toml"]


def test_the_first_use_opens_the_database_and_reads_the_settings(directory: Path) -> None:
    (directory / "penstock.toml").write_text("this is no TOML")
    app = App("sqlite:///orders.db")
    with pytest.raises(SettingsError, match=r"penstock\.toml:1"):
        app.counts()
    (directory / "penstock.toml").unlink()
    assert set(app.counts().values()) == {0}
    assert (directory / "orders.db").exists()
    app.close()


def test_a_closed_app_opens_again_when_it_is_used_again() -> None:
    app = App("sqlite:///orders.db")
    app.enqueue("send")
    app.close()
    assert app.counts()["ready"] == 1
    app.close()
    app.close()


def test_a_file_in_a_directory_that_is_not_there_is_told_at_first_use(directory: Path) -> None:
    for migrate in (False, True):
        app = App("sqlite:///nowhere/orders.db", migrate=migrate)
        with pytest.raises(FileMisplaced, match=r"directory .*nowhere does not exist") as refusal:
            app.enqueue("send")
        assert "Make the directory, or correct the URL" in str(refusal.value)
        assert refusal.value.path == "nowhere/orders.db"
        app.close()
    (directory / "nowhere").mkdir()
    app = App("sqlite:///nowhere/orders.db")
    assert app.counts()["ready"] == 0  # the same, once it is there
    app.close()


def test_a_directory_is_no_place_to_keep_tasks_in(directory: Path) -> None:
    app = App(f"sqlite:///{directory}")
    with pytest.raises(FileMisplaced, match=r"that is a directory\. Name a file in it"):
        app.counts()


def test_a_file_that_is_something_else_is_told_so(directory: Path) -> None:
    (directory / "orders.db").write_text("a list of orders\n" * 99, "utf-8")
    app = App("sqlite:///orders.db")
    with pytest.raises(NotSqlite, match=r"'orders\.db' is not a SQLite database\. Check the URL"):
        app.enqueue("send")


def test_a_database_in_memory_needs_no_file(directory: Path) -> None:
    app = App("sqlite:///:memory:")
    app.enqueue("send")
    assert app.counts()["ready"] == 1
    app.close()
    assert list(directory.iterdir()) == []


# --- configure ------------------------------------------------------------------------------


def test_configure_counts_until_the_first_use(directory: Path) -> None:
    app = App("sqlite:///first.db")
    app.configure(database="sqlite:///second.db")
    app.counts()
    app.close()
    assert [path.name for path in directory.glob("*.db")] == ["second.db"]


def test_configure_counts_even_after_the_settings_were_looked_at(directory: Path) -> None:
    app = App("sqlite:///first.db")
    assert app.settings.database.url == "sqlite:///first.db"
    app.configure(database="sqlite:///second.db", schema="tenant_a")
    assert app.settings.database.url == "sqlite:///second.db"
    assert app.settings.database.schema == "tenant_a"


def test_configure_keeps_what_it_does_not_name() -> None:
    app = App("sqlite:///orders.db", schema="tenant_a")
    app.configure(migrate=True)
    assert app.settings.database.url == "sqlite:///orders.db"
    assert app.settings.database.schema == "tenant_a"


def test_configure_is_refused_while_the_app_is_open_and_possible_after_closing() -> None:
    app = App("sqlite:///first.db")
    app.counts()
    with pytest.raises(AlreadyOpen, match=r"before its first use, or `app\.close\(\)`"):
        app.configure(database="sqlite:///second.db")
    assert app.settings.database.url == "sqlite:///first.db"
    app.close()
    app.configure(database="sqlite:///second.db")
    assert app.settings.database.url == "sqlite:///second.db"


def test_an_argument_counts_more_than_the_environment_and_that_more_than_the_file(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (directory / "penstock.toml").write_text(
        '[database]\nurl = "sqlite:///file.db"\nschema = "of_file"\n[worker]\nslots = 3\n'
    )
    assert App().settings.database.url == "sqlite:///file.db"
    monkeypatch.setenv("PENSTOCK_DATABASE_URL", "sqlite:///environment.db")
    assert App().settings.database.url == "sqlite:///environment.db"
    app = App("sqlite:///argument.db")
    assert app.settings.database.url == "sqlite:///argument.db"
    assert (app.settings.database.schema, app.settings.worker.slots) == ("of_file", 3)


# --- the tables -----------------------------------------------------------------------------


def test_migrate_says_what_it_did_and_leaves_the_app_configurable() -> None:
    app = App("sqlite:///orders.db")
    assert app.migrate() == [1, 2]
    assert app.migrate() == []
    app.configure(database="sqlite:///another.db")
    assert app.migrate() == [1, 2]


def test_an_open_app_can_migrate_too() -> None:
    app = App("sqlite:///orders.db", migrate=True)
    app.counts()
    assert app.migrate() == []
    app.close()


@pytest.mark.timeout(10)  # it would wait half a minute for the lock that its own caller holds
@pytest.mark.parametrize("tables", ["missing", "there"])
def test_an_app_that_migrates_may_be_used_first_inside_the_callers_transaction(tables: str) -> None:
    if tables == "there":
        App("sqlite:///orders.db").migrate()
    app = App("sqlite:///orders.db", migrate=True)
    with closing(sqlite3.connect("orders.db")) as connection:
        with connection:
            connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
            connection.execute("INSERT INTO orders DEFAULT VALUES")
            with app.using(connection=connection):
                app.enqueue("send")
        assert connection.execute("SELECT count(*) FROM orders").fetchone() == (1,)
    assert app.counts()["ready"] == 1
    app.close()


def test_an_app_that_migrates_waits_for_nobody_where_the_tables_are_there(
    postgres_url: str, postgres_schema: str
) -> None:
    app = App(postgres_url, schema=postgres_schema, migrate=True)
    app.counts()
    app.close()
    with psycopg.connect(postgres_url) as connection:
        # What another program holds that migrates.
        lock = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"
        connection.execute(lock, [postgres_schema])
        again = App(postgres_url, schema=postgres_schema, migrate=True)
        assert again.counts()["ready"] == 0
        again.close()


def test_postgres_has_tables_only_when_somebody_says_so(
    postgres_url: str, postgres_schema: str
) -> None:
    app = App(postgres_url, schema=postgres_schema)
    with pytest.raises(SchemaMissing, match="penstock admin migrate"):
        app.enqueue("send")
    app.configure(migrate=True)  # it has not opened
    app.enqueue("send")
    assert app.counts()["ready"] == 1
    app.close()


def test_the_tables_are_those_of_the_file_that_the_url_names(directory: Path) -> None:
    app = App(f"sqlite:///{directory / 'absolute.db'}")
    app.enqueue("send")
    app.close()
    with closing(sqlite3.connect(directory / "absolute.db")) as connection:
        assert connection.execute("SELECT task FROM task_executions").fetchall() == [("send",)]


# --- include --------------------------------------------------------------------------------


def test_the_tasks_of_a_registry_are_enqueued_in_the_app_that_includes_it(
    tasks: Registry,
) -> None:
    app = App("sqlite:///orders.db", include=[tasks])
    (send,) = tasks
    execution = send.enqueue(42)
    assert app.get(execution.id).task == "shop.send"
    assert app.tasks == {"shop.send": send}
    app.close()


def test_a_task_declared_after_its_registry_was_included_belongs_to_the_app(
    tasks: Registry,
) -> None:
    app = App("sqlite:///orders.db", include=[tasks])

    @tasks.task
    def late() -> None: ...

    late.enqueue()
    assert sorted(app.tasks) == ["shop.late", "shop.send"]
    app.close()


def test_a_module_is_imported_when_a_worker_needs_it_and_brings_its_registries(
    module: ModuleType, tasks: Registry
) -> None:
    module.tasks = tasks  # type: ignore[attr-defined]
    app = App("sqlite:///orders.db", include=[module.__name__])
    assert app.find_task("shop.send") is None
    app.import_included()
    assert app.find_task("shop.send") is next(iter(tasks))
    app.import_included()
    assert list(app.tasks) == ["shop.send"]


def test_a_module_that_could_not_be_imported_is_tried_again() -> None:
    app = App(include=["a_module_that_does_not_exist"])
    for _ in range(2):
        with pytest.raises(InvalidOption, match="a_module_that_does_not_exist"):
            app.import_included()


def test_one_module_need_not_be_in_a_list(module: ModuleType, tasks: Registry) -> None:
    module.tasks = tasks  # type: ignore[attr-defined]
    app = App(include=module.__name__)
    app.import_included()
    assert list(app.tasks) == ["shop.send"]


def test_including_a_registry_twice_is_including_it_once(tasks: Registry) -> None:
    assert list(App(include=[tasks, tasks]).tasks) == ["shop.send"]


def test_what_is_no_registry_is_refused_by_name() -> None:
    with pytest.raises(InvalidOption, match=r"include=42 .* Write include=\[registry"):
        App(include=[42])  # type: ignore[list-item]


def test_a_registry_belongs_to_one_app_until_that_one_is_closed(tasks: Registry) -> None:
    first = App("sqlite:///first.db", include=[tasks])
    with pytest.raises(RegistryTaken, match=r"shop\.send belongs to another App.*Close that App"):
        App("sqlite:///second.db", include=[tasks])
    first.close()
    second = App("sqlite:///second.db", include=[tasks])
    next(iter(tasks)).enqueue(42)
    assert second.counts()["ready"] == 1
    second.close()


def one() -> None: ...
def two() -> None: ...


@pytest.mark.parametrize("where", ["two registries", "the app first", "the registry first"])
def test_two_functions_of_one_name_are_refused_wherever_they_are_declared(where: str) -> None:
    first, second = Registry(), Registry()
    with pytest.raises(NameTaken) as refused:  # noqa: PT012 - each order fails at its own line
        match where:
            case "two registries":
                first.task(name="send")(one)
                second.task(name="send")(two)
                App(include=[first, second])
            case "the app first":
                app = App(include=[first])
                app.task(name="send")(one)
                first.task(name="send")(two)
            case _:
                first.task(name="send")(one)
                App(include=[first]).task(name="send")(two)
    assert refused.value.name == "send"
    assert f"{__name__}.one ({__file__}:" in str(refused.value)
    assert f"{__name__}.two ({__file__}:" in str(refused.value)


def test_a_former_name_in_one_registry_is_taken_for_all() -> None:
    first, second = Registry(), Registry()
    first.task(name="send", aliases=["mail"])(one)
    second.task(name="mail")(two)
    with pytest.raises(NameTaken, match="'mail'"):
        App(include=[first, second])
