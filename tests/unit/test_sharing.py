"""Threads that write to one SQLite file at the same time share a transaction, not their fate."""

import gc
import random
import signal
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest

from penstock.errors import StoreBusy, StoreRefused
from penstock.store.sqlite import sharing
from penstock.store.sqlite.sharing import SharedFile
from penstock.store.sqlite.together import Fate, Job, Together


@pytest.fixture
def file(tmp_path: Path) -> Iterator[SharedFile]:
    shared = SharedFile(str(tmp_path / "shared.db"), busy_timeout=5)
    shared.write("make a table", lambda it: it.execute("CREATE TABLE said (word TEXT UNIQUE)"))
    yield shared
    shared.close()


def say(word: str) -> Callable[[sqlite3.Connection | sqlite3.Cursor], str]:
    def work(connection: sqlite3.Connection | sqlite3.Cursor) -> str:
        connection.execute("INSERT INTO said VALUES (?)", (word,))
        return word

    return work


def write_together(
    file: SharedFile,
    jobs: list[Callable[[sqlite3.Connection], str]],
    how: Callable[..., str] = SharedFile.write,
) -> list[str | BaseException]:
    """Let all of them gather behind somebody who has the lock, so that they come in one group."""
    answers: list[str | BaseException] = [""] * len(jobs)

    def write(place: int) -> None:
        try:
            answers[place] = how(file, "say a word", jobs[place])
        except Exception as error:  # noqa: BLE001 - the test looks at it
            answers[place] = error

    threads = [threading.Thread(target=write, args=(place,)) for place in range(len(jobs))]
    with file._lock:
        for thread in threads:
            thread.start()
        wait_for_waiting(file, len(jobs))
    for thread in threads:
        thread.join(10)
    return answers


def wait_for_waiting(file: SharedFile, count: int) -> None:
    deadline = time.monotonic() + 10
    while len(file._waiting) < count:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def joined_by(
    late: threading.Thread, file: SharedFile, work: Callable[[sqlite3.Connection], str]
) -> Callable[[sqlite3.Connection], str]:
    """Return the work, during which the first time another one comes."""

    def joined(connection: sqlite3.Connection) -> str:
        if late.ident is None:
            late.start()
            wait_for_waiting(file, 1)
        return work(connection)

    return joined


@pytest.fixture
def ends(file: SharedFile, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How transactions began and ended."""
    heard: list[str] = []
    whole = file._patiently

    def listening(connection: sqlite3.Connection, sql: str, *rest: Any) -> None:  # noqa: ANN401
        heard.append(sql)
        whole(connection, sql, *rest)

    monkeypatch.setattr(file, "_patiently", listening)
    return heard


def words(file: SharedFile) -> list[str]:
    return [row[0] for row in file.read("read", lambda it: it.execute("SELECT * FROM said"))]


def test_those_who_wait_together_share_one_transaction(file: SharedFile, ends: list[str]) -> None:
    assert write_together(file, [say("a"), say("b"), say("c")]) == ["a", "b", "c"]

    assert ends == ["BEGIN IMMEDIATE", "COMMIT"]
    assert sorted(words(file)) == ["a", "b", "c"]


def test_who_comes_while_others_write_goes_with_them(file: SharedFile, ends: list[str]) -> None:
    late = threading.Thread(target=file.write, args=("say a word", say("late")))

    assert file.write("say a word", joined_by(late, file, say("first"))) == "first"

    late.join(10)
    assert ends == ["BEGIN IMMEDIATE", "COMMIT"]
    assert words(file) == ["first", "late"]


def test_who_comes_while_others_write_and_fails_fails_alone(file: SharedFile) -> None:
    refused: list[BaseException] = []

    def repeat() -> None:
        try:
            file.write("say a word", say("first"))
        except StoreRefused as error:
            refused.append(error)

    late = threading.Thread(target=repeat)

    assert file.write("say a word", joined_by(late, file, say("first"))) == "first"

    late.join(10)
    assert len(refused) == 1
    assert words(file) == ["first"]


def test_who_writes_alone_after_a_fault_is_not_joined(file: SharedFile) -> None:
    """Else the fault of one who comes later could be taken for its own."""
    late = threading.Thread(target=file.write, args=("say a word", say("late")))
    work = joined_by(late, file, say("a"))

    with file._lock:
        job = Job("say a word", lambda it: work(it) and None)  # type: ignore[arg-type]
        file._run(Together(job), job, alone=True)
        assert words(file) == ["a"]
        assert len(file._waiting) == 1

    late.join(10)
    assert words(file) == ["a", "late"]


def test_who_fails_in_a_group_fails_alone(file: SharedFile) -> None:
    answers = write_together(file, [say("a"), say("b"), say("a"), say("c")])

    assert sorted(one for one in answers if isinstance(one, str)) == ["a", "b", "c"]
    assert sum(isinstance(answer, BaseException) for answer in answers) == 1
    assert sorted(words(file)) == ["a", "b", "c"]


def test_half_of_what_a_failing_one_wrote_is_gone(file: SharedFile) -> None:
    def half(connection: sqlite3.Connection) -> str:
        say("half")(connection)
        message = "changed its mind"
        raise RuntimeError(message)

    answers = write_together(file, [say("a"), half, say("b")])

    assert isinstance(answers[1], RuntimeError)
    assert sorted(words(file)) == ["a", "b"]


def test_the_main_thread_is_not_told_what_another_has_raised(file: SharedFile) -> None:
    """There, what is raised may come from a signal's handler; but this was somebody's own."""
    told: list[BaseException] = []

    def fail(_: sqlite3.Connection) -> NoReturn:
        message = "changed its mind"
        raise RuntimeError(message)

    def failing() -> None:
        try:
            file.write("fail", fail)
        except RuntimeError as error:
            told.append(error)

    late = threading.Thread(target=failing)

    assert file.write("say a word", joined_by(late, file, say("a"))) == "a"

    late.join(10)
    assert len(told) == 1
    assert words(file) == ["a"]


def test_what_is_told_is_not_taken_back(file: SharedFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits looks without a lock, and goes away with the first answer that there is."""
    told: list[tuple[Together, object]] = []

    class Heard(Together):
        def __setattr__(self, name: str, value: object) -> None:
            if name == "fate":
                told.append((self, value))
            super().__setattr__(name, value)

    def change_its_mind(_: sqlite3.Connection) -> NoReturn:
        message = "changed its mind"
        raise RuntimeError(message)

    monkeypatch.setattr(sharing, "Together", Heard)

    def fail() -> None:
        with suppress(RuntimeError):
            file.write("fail", change_its_mind)

    late = threading.Thread(target=fail)
    assert file.write("say a word", joined_by(late, file, say("a"))) == "a"
    late.join(10)

    answered: set[Together] = set()
    for together, fate in told:
        assert together not in answered
        if fate not in {None, Fate.UNDONE}:
            answered.add(together)
    assert len(answered) == 2


def test_who_waits_does_not_mistake_two_answers_for_one() -> None:
    """Between two looks, a transaction that was undone can become another that is not decided."""
    fates: list[Fate | None] = [Fate.UNDONE, None]

    class Deciding(Together):
        @property
        def fate(self) -> Fate | None:
            return fates.pop(0)

        @fate.setter
        def fate(self, _: object) -> None:
            pass

    job = Job("say a word", lambda _: None)
    job.together = Deciding()

    assert not job.is_done


def test_what_a_signal_ended_before_the_commit_is_done_by_who_asked_for_it(
    file: SharedFile,
) -> None:
    answers: list[str] = []

    def stopped_in_the_main_thread(connection: sqlite3.Connection) -> str:
        if threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt
        return say("late")(connection)

    def ask() -> None:
        answers.append(file.write("say a word", stopped_in_the_main_thread))

    late = threading.Thread(target=ask)

    with pytest.raises(KeyboardInterrupt):
        file.write("say a word", joined_by(late, file, say("first")))

    late.join(10)
    assert answers == ["late"]
    assert words(file) == ["late"]


def test_nothing_of_what_was_written_stays_until_circles_are_looked_for(file: SharedFile) -> None:
    class Batch:
        """What can be watched going away."""

    def say_of(_: Batch, connection: sqlite3.Connection) -> str:
        return say("a")(connection)

    batch = Batch()
    watched = weakref.ref(batch)
    gc.disable()
    try:
        file.write("say a word", partial(say_of, batch))
        del batch
        assert watched() is None
    finally:
        gc.enable()


def test_who_was_to_come_after_an_interruption_is_not_blamed_for_anothers_fault(
    file: SharedFile,
) -> None:
    """Else an outcome would be taken for one that no database can store, and failed for it."""
    turns: list[str] = []

    def refused(connection: sqlite3.Connection) -> str:
        say("a")(connection)
        return say("a")(connection)

    def interrupted(connection: sqlite3.Connection) -> str:
        turns.append("interrupted")
        if turns.count("innocent"):
            raise KeyboardInterrupt
        return say("b")(connection)

    def innocent(connection: sqlite3.Connection) -> str:
        turns.append("innocent")
        return say("c")(connection)

    def late(connection: sqlite3.Connection) -> str:
        return say("d")(connection)

    # The first fails last, so that all the others have been run once when it does.
    answers = run_group(file, [interrupted, innocent, late, refused])

    assert not any(isinstance(answer, StoreRefused) for answer in answers[:3])


def test_those_who_are_run_again_wait_for_a_lock_once_and_not_one_after_the_other(
    tmp_path: Path,
) -> None:
    file = SharedFile(str(tmp_path / "busy.db"), busy_timeout=0.2)
    file.write("make a table", lambda it: it.execute("CREATE TABLE said (word TEXT UNIQUE)"))
    other = sqlite3.connect(tmp_path / "busy.db", isolation_level=None, check_same_thread=False)
    undo = file._undo

    def lose_the_lock(connection: sqlite3.Connection, error: BaseException) -> None:
        undo(connection, error)
        if not other.in_transaction:
            other.execute("BEGIN IMMEDIATE")

    file._undo = lose_the_lock  # type: ignore[method-assign]
    begun = time.monotonic()

    answers = run_group(file, [say("a"), say("a"), *(say(str(n)) for n in range(20))])

    assert time.monotonic() - begun < 5 * 0.2
    assert all(isinstance(answer, StoreBusy) for answer in answers)
    other.close()
    file.close()


def test_a_single_statement_is_a_transaction_by_itself(file: SharedFile) -> None:
    heard: list[str] = []
    file.write("listen", lambda it: it.set_trace_callback(heard.append))
    heard.clear()

    assert file.write_one("say a word", say("a")) == "a"

    assert heard == ["INSERT INTO said VALUES ('a')"]
    assert words(file) == ["a"]


def test_a_single_statement_goes_with_those_who_wait(file: SharedFile, ends: list[str]) -> None:
    assert write_together(file, [say("a"), say("b")], SharedFile.write_one) == ["a", "b"]

    assert ends == ["BEGIN IMMEDIATE", "COMMIT"]
    assert sorted(words(file)) == ["a", "b"]


def test_a_single_statement_that_is_refused_leaves_nothing(file: SharedFile) -> None:
    file.write_one("say a word", say("a"))

    with pytest.raises(StoreRefused, match="UNIQUE"):
        file.write_one("say a word", say("a"))

    assert file.write_one("say a word", say("b")) == "b"
    assert words(file) == ["a", "b"]


def test_a_single_statement_waits_for_another_connection(tmp_path: Path) -> None:
    file = SharedFile(str(tmp_path / "busy.db"), busy_timeout=0.2)
    file.write("make a table", lambda it: it.execute("CREATE TABLE said (word TEXT UNIQUE)"))
    with closing(sqlite3.connect(tmp_path / "busy.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")

        with pytest.raises(StoreBusy, match="say a word"):
            file.write_one("say a word", say("a"))

        other.execute("COMMIT")
    assert file.write_one("say a word", say("a")) == "a"
    file.close()


def test_after_a_mistake_in_a_statement_the_next_has_a_new_connection(file: SharedFile) -> None:
    before = file._writer

    with pytest.raises(sqlite3.OperationalError, match="nowhere"):
        file.write_one("ask", lambda it: it.execute("SELECT * FROM nowhere"))

    assert file.write_one("say a word", say("a")) == "a"
    assert file._writer is not before


def test_the_log_is_long_for_a_workers_batches_only(tmp_path: Path) -> None:
    file = SharedFile(str(tmp_path / "log.db"), busy_timeout=0.2)

    assert file.write("ask", pages_of_log) == 500
    file.expect_batches()
    assert file.write("ask", pages_of_log) == 4000
    file.close()
    assert file.write("ask of a new connection", pages_of_log) == 4000
    file.close()


def pages_of_log(connection: sqlite3.Connection) -> int:
    (pages,) = connection.execute("PRAGMA wal_autocheckpoint").fetchone()
    assert isinstance(pages, int)
    return pages


def run_group(
    file: SharedFile, works: list[Callable[[sqlite3.Connection], str]]
) -> list[BaseException | None]:
    """Run them as the one who has the lock runs those who wait; return their errors."""
    jobs = [Job("say a word", lambda it, work=work: work(it) and None) for work in works]  # type: ignore[misc]
    with suppress(KeyboardInterrupt):
        file._run(Together(*jobs), jobs[0])
    fates = [job.fate for job in jobs]
    return [
        file._meaning(fate, "say a word") if isinstance(fate, BaseException) else None
        for fate in fates
    ]


def test_what_an_interruption_leaves_open_is_not_written_into(
    file: SharedFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal may arrive as BEGIN returns, or while we undo."""
    begin = SharedFile._begin

    def begin_and_stop(*told: Any, **how: Any) -> None:  # noqa: ANN401
        begin(*told, **how)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(SharedFile, "_begin", begin_and_stop)
        with pytest.raises(KeyboardInterrupt):
            file.write("say a word", say("lost"))
        assert file._writer is not None
        assert not file._writer.in_transaction
        patch.setattr(SharedFile, "_undo", lambda *_: None)
        with pytest.raises(KeyboardInterrupt):
            file.write("say a word", say("lost"))

    assert file.write_one("say a word", say("a")) == "a"
    assert words(file) == ["a"]


def test_what_an_interrupted_leader_had_taken_is_run_all_the_same(file: SharedFile) -> None:
    with file._lock:
        thread = threading.Thread(target=file.write, args=("say a word", say("a")))
        thread.start()
        wait_for_waiting(file, 1)
        file._waiting.popleft()  # and then the signal
    thread.join(10)

    assert words(file) == ["a"]


def test_a_signal_leaves_no_lock_behind(file: SharedFile) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, stop)
    try:
        for _ in range(3_000):
            with suppress(KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, 2e-4))
                while True:
                    file.write_one("ask", lambda cursor: cursor.execute("SELECT 1").fetchone())
            assert not file._lock.locked()
    finally:
        signal.signal(signal.SIGALRM, before)

    assert file.write_one("say a word", say("a")) == "a"
