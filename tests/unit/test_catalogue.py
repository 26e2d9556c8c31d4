"""What a worker can run: always what is declared by now, and worked out once."""

import pytest

from penstock import App
from penstock.engine.catalogue import Catalogue, Limited


@pytest.fixture
def app() -> App:
    return App("sqlite:///:memory:")


def nothing() -> None: ...


def another() -> None: ...


def test_a_task_that_is_declared_later_is_known_at_the_next_look(app: App) -> None:
    app.task(nothing)
    catalogue = Catalogue(lambda: app.tasks)
    assert catalogue.look().unlimited == {"nothing"}

    app.task(queue="late")(another)

    known = catalogue.look()
    assert known.unlimited == {"nothing", "another"}
    assert known.queues == ("default", "late")


def test_a_task_that_is_declared_again_replaces_the_one_before(app: App) -> None:
    app.task(nothing)
    catalogue = Catalogue(lambda: app.tasks)
    before = catalogue.look().tasks["nothing"]

    again = app.task(max_running=2)(nothing)

    known = catalogue.look()
    assert known.tasks["nothing"] is again is not before
    assert known.unlimited == frozenset()
    assert known.limited == (Limited("nothing", frozenset({"nothing"}), 2),)


def test_nothing_is_worked_out_anew_while_nothing_is_declared(app: App) -> None:
    app.task(nothing)
    catalogue = Catalogue(lambda: app.tasks)
    assert catalogue.look() is catalogue.look()


def test_former_names_count_with_todays_task(app: App) -> None:
    task = app.task(aliases=["empty"], max_running=3)(nothing)
    known = Catalogue(lambda: app.tasks).look()
    assert known.tasks == {"nothing": task, "empty": task}
    assert known.limited == (Limited("nothing", frozenset({"nothing", "empty"}), 3),)


def test_the_queues_that_a_worker_was_given_are_its_queues(app: App) -> None:
    app.task(queue="mail")(nothing)
    assert Catalogue(lambda: app.tasks, ["images", "mail"]).look().queues == ("images", "mail")
