"""One SQLite file, shared by the threads of this process: one writer, a few readers.

Writers combine: whoever gets the lock runs the work of all who wait for it, and of those who
come meanwhile, in one transaction, so ten threads share one wait for the disk. There is no
thread of its own.
"""

import os
import sqlite3
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import NoReturn, TypeVar

from penstock.errors import StoreBusy
from penstock.store.sql import Statement
from penstock.store.sqlite.connecting import (
    Writer,
    is_busy,
    keep_long_log,
    meaning,
    open_reader,
    open_writer,
    patiently,
)
from penstock.store.sqlite.together import (
    NOBODYS,
    Fate,
    Interrupted,
    Job,
    Together,
    may_be_a_signals,
    raised_the_like,
)

T = TypeVar("T")

IN_MEMORY = ":memory:"
MOST_READERS = 8
MOST_IN_A_GROUP = 64
FORK_WAITS = 1.0
HARDLY_WAITS = 0.05
NOTICED_WITHIN = 0.05  # what another thread has done for us

_alive: "weakref.WeakSet[SharedFile]" = weakref.WeakSet()
_graveyard: list[sqlite3.Connection] = []  # a parent's connections: never to be used or closed


class SharedFile:
    """The database as this process sees it. Opens when it is first needed."""

    def __init__(
        self, path: str, *, busy_timeout: float, prepare: Sequence[Statement] = ()
    ) -> None:
        self.path = path
        self._prepare = prepare  # a connection that is to write
        self.in_memory = path == IN_MEMORY
        # Who waits for work in this process. Not events: a signal that ends whoever sets one can
        # leave its lock behind, and then nobody would ever enqueue or claim again.
        self.listeners: set[SimpleQueue[None]] = set()
        self.life = 0  # rises when a database in memory is lost and begins anew
        self._busy_timeout = busy_timeout
        self._has_batches = False
        self._openings = 0
        self._writer: Writer | None = None
        self._readers: deque[sqlite3.Connection] = deque()
        self._start_afresh()
        _alive.add(self)

    def _start_afresh(self) -> None:
        self._lock = threading.Lock()
        self._reading = threading.Semaphore(MOST_READERS)
        self._waiting: deque[Job] = deque()
        self._rests = False
        self._readers_at_rest = 0

    # --- writing ----------------------------------------------------------------------

    def write(self, doing: str, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do `work` in a transaction, all or nothing, perhaps together with other threads' work.

        `work` may not call the store again: it runs under the lock, on any thread. If other work
        of the same transaction fails, it runs a second time, and what it did before is undone; so
        it may have no effect but on the database.
        """
        results: list[T] = []

        def keep_result(connection: sqlite3.Connection) -> None:
            results[:] = [work(connection)]

        job = Job(doing, keep_result)
        try:
            self._waiting.append(job)
            self._see_to(job)
        except BaseException:
            # Interrupted while it waited: nobody wants the result any more. First what no second
            # signal can halve.
            job.together = NOBODYS
            with suppress(ValueError):
                self._waiting.remove(job)
            raise
        if isinstance(job.fate, BaseException):
            raise self._meaning(job.fate, doing)
        return results[0]

    def _see_to(self, job: Job) -> None:
        """Run groups until the job is done, or somebody else has done it."""
        if threading.current_thread() is threading.main_thread():
            # A signal may interrupt it anywhere, and only `with` leaves no lock behind then.
            with self._lock:
                self._lead_until_done(job)
            return
        # Whoever gets the lock next may wait long for the file: do not let a job that is done, or
        # has failed, wait for that, too.
        while not job.is_done:
            if self._lock.acquire(timeout=NOTICED_WITHIN):
                try:
                    self._lead_until_done(job)
                finally:
                    self._lock.release()

    def _lead_until_done(self, job: Job) -> None:
        while not job.is_done:
            if not job.is_free and job.together is not None:
                # Nobody else can be at it, so whoever had taken it has been interrupted.
                job.together.fate = Interrupted()
                return
            together = Together()
            self._let_join(together)
            if job.is_free:  # a signal can have taken it out of the queue, and no further
                together.take(job)
            self._run(together, job)

    def write_one(self, doing: str, statement: Callable[[sqlite3.Cursor], T]) -> T:
        """The same for a single statement, which by itself needs no BEGIN and no COMMIT."""
        if self._waiting or self._lock.locked():
            return self.write(doing, lambda connection: statement(connection.cursor()))
        with self._lock:
            try:
                cursor = self._opened_writer().hand
                try:
                    return statement(cursor)
                except sqlite3.OperationalError as error:
                    if not is_busy(error):
                        raise
                attempt = partial(statement, cursor)
                return patiently(attempt, doing=doing, timeout=self._busy_timeout)
            except Exception as error:  # noqa: BLE001 - it is raised as what it means
                if self._writer is not None:
                    self._undo(self._writer, error)
                self._tell(error, doing)

    def expect_batches(self) -> None:
        """Prepare for what a worker writes: hundreds of rows at a time."""
        with self._lock:
            self._has_batches = True
            if self._writer is not None:
                keep_long_log(self._writer)

    def write_if_free(self, doing: str, work: Callable[[sqlite3.Connection], T]) -> T | None:
        """Do `work` in a transaction if no other connection has one; None if one has."""
        # Whoever has our lock may be waiting for that other connection.
        if not self._lock.acquire(timeout=HARDLY_WAITS):
            return None
        try:
            connection = self._opened_writer()
            try:
                self._begin(connection, doing, patience=0)
                result = work(connection)
                self._commit(connection, doing)
            except BaseException as error:
                self._undo(connection, error)
                raise
        except StoreBusy:
            return None
        except Exception as error:  # noqa: BLE001 - it is raised as what it means
            self._tell(error, doing)
        else:
            return result
        finally:
            self._lock.release()

    def _let_join(self, together: Together) -> None:
        while len(together.jobs) < MOST_IN_A_GROUP:
            try:
                job = self._waiting.popleft()
            except IndexError:
                return
            if job.is_free:
                together.take(job)

    def _run(self, together: Together, leader: Job, *, alone: bool = False) -> None:
        """Write what they want, and decide their fate.

        What it raises is meant for this thread and not for them: a signal's handler has raised it.
        """
        is_a_works = False  # the error
        if_ended: Fate | BaseException = Fate.UNDONE
        try:
            connection = self._opened_writer()
            try:
                # No savepoint between them: SQLite would keep every page that they change twice.
                self._begin(connection, together.jobs[0].doing)
                is_a_works = True
                for job in together.jobs:  # which grows meanwhile
                    job.work(connection)
                    if not alone:
                        # A claim takes milliseconds: what is to be settled by then goes with it.
                        self._let_join(together)
                is_a_works = False
                if_ended = Interrupted()  # from now on it may be written
                self._commit(connection, together.jobs[0].doing)
                together.fate = Fate.COMMITTED
            except BaseException as error:
                self._undo(connection, error)
                raise
        except Exception as error:
            if is_a_works and len(together.jobs) > 1:
                together.fate = Fate.UNDONE
                self._run_each(together.jobs, leader)
                if may_be_a_signals(error) and not any(map(raised_the_like, together.jobs)):
                    raise
            elif is_a_works and together.jobs[0] is not leader and may_be_a_signals(error):
                # Its own, or a signal's? The thread that asked for it hears none, and will see.
                together.fate = Fate.UNDONE
            elif is_a_works or not may_be_a_signals(error):
                together.fate = error
            else:
                together.fate = if_ended
                raise
        except BaseException:
            together.fate = if_ended
            raise
        finally:
            together.jobs.clear()  # they know it, and no cycle is to keep what they wrote

    def _run_each(self, jobs: Sequence[Job], leader: Job) -> None:
        """One has undone the work of all: now each for itself, so that it fails alone."""
        for place, job in enumerate(jobs):
            by_itself = Together(job)
            self._run(by_itself, leader, alone=True)
            fate = by_itself.fate
            if isinstance(fate, StoreBusy) or (isinstance(fate, Exception) and is_busy(fate)):
                for other in jobs[place + 1 :]:
                    other.together = by_itself  # all have waited as long as it has
                return

    def _begin(
        self, connection: sqlite3.Connection, doing: str, *, patience: float | None = None
    ) -> None:
        self._patiently(connection, "BEGIN IMMEDIATE", doing, patience)

    def _commit(self, connection: sqlite3.Connection, doing: str) -> None:
        self._patiently(connection, "COMMIT", doing)

    def _undo(self, connection: sqlite3.Connection, error: BaseException) -> None:
        with suppress(sqlite3.OperationalError):
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        # A full disk, for one, has rolled everything back already. What the connection
        # is still good for is unclear; a new one will know.
        if isinstance(error, sqlite3.OperationalError) and not self.in_memory:
            self._writer = None
            connection.close()

    def _opened_writer(self) -> Writer:
        if self._writer is None:
            self._writer = open_writer(
                self.path, busy_timeout=self._busy_timeout, prepare=self._prepare
            )
            self._openings += 1
            if self._has_batches:
                keep_long_log(self._writer)
        elif self._writer.in_transaction:  # interrupted before it could be undone
            self._writer.execute("ROLLBACK")
        return self._writer

    def _patiently(
        self,
        connection: sqlite3.Connection,
        sql: str,
        doing: str,
        patience: float | None = None,
    ) -> None:
        timeout = self._busy_timeout if patience is None else patience
        patiently(partial(connection.execute, sql), doing=doing, timeout=timeout)

    @property
    def version(self) -> tuple[int, int] | None:
        """Another value whenever another connection has written; None if it is not known now.

        What our own writer writes does not count, so that a worker does not wake itself.
        """
        if not self._lock.acquire(blocking=False):
            return None
        try:
            if self._writer is None:
                return None
            ((version,),) = self._writer.execute("PRAGMA data_version")
            return self._openings, version
        finally:
            self._lock.release()

    def tell_of_work(self) -> None:
        """Wake whoever waits for work in this process; the others see the file change."""
        for listener in tuple(self.listeners):
            if listener.empty():
                listener.put(None)

    # --- reading ----------------------------------------------------------------------

    def read(self, doing: str, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do `work` on one unchanging view of the database."""
        if self.in_memory:
            return self.read_one(doing, work)

        def on_one_view(connection: sqlite3.Connection) -> T:
            connection.execute("BEGIN")
            result = work(connection)
            connection.execute("COMMIT")
            return result

        return self.read_one(doing, on_one_view)

    def read_one(self, doing: str, statement: Callable[[sqlite3.Connection], T]) -> T:
        """The same for a single statement, which by itself needs no BEGIN and no COMMIT.

        Each of them would be one more turn with the interpreter's lock, which a worker that is
        busy may have to wait for.
        """
        try:
            if self.in_memory:
                with self._lock:
                    return statement(self._opened_writer())
            with self._reading:
                return self._on_a_reader(statement)
        except Exception as error:  # noqa: BLE001 - it is raised as what it means
            self._tell(error, doing)

    def _on_a_reader(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            connection = self._readers.pop()
        except IndexError:
            connection = open_reader(self.path, busy_timeout=self._busy_timeout)
        try:
            result = work(connection)
        except BaseException:
            connection.close()
            raise
        self._readers.append(connection)
        return result

    # --- the end, and forks -----------------------------------------------------------

    def close(self) -> None:
        """Close what is open. The next call opens it again; a database in memory is gone."""
        with self._lock:
            self._close_idle()

    def _close_idle(self) -> None:
        while self._readers:
            self._readers.pop().close()
        if self._writer is not None:
            self._writer.close()
            self._writer = None
            self.life += self.in_memory

    def rest(self) -> None:
        """Have nothing open, so that a child inherits nothing.

        SQLite counts its locks per process and does not notice a fork: with a connection
        inherited, a child would believe that it holds locks which only its parent holds,
        and another process could remove the log from under it.
        """
        # Whoever has the lock may be waiting for this very thread.
        self._rests = self._lock.acquire(timeout=FORK_WAITS)
        if not self._rests:
            return
        while self._readers_at_rest < MOST_READERS and self._reading.acquire(timeout=FORK_WAITS):
            self._readers_at_rest += 1
        if not self.in_memory:
            self._close_idle()

    def resume(self) -> None:
        """Go on after a fork, in the parent."""
        if self._rests:
            while self._readers_at_rest:
                self._readers_at_rest -= 1
                self._reading.release()
            self._rests = False
            self._lock.release()

    def forget(self) -> None:
        """Begin anew after a fork, in the child: what could not be closed stays untouched."""
        _graveyard.extend(self._readers)
        self._readers.clear()
        if self._writer is not None:
            _graveyard.append(self._writer)
            self._writer = None
            self.life += self.in_memory
        self._start_afresh()

    def _tell(self, error: Exception, doing: str) -> NoReturn:
        if (meant := self._meaning(error, doing)) is error:
            raise error
        raise meant from error

    def _meaning(self, error: BaseException, doing: str) -> BaseException:
        return meaning(error, doing=doing, path=self.path, waited=self._busy_timeout)


def _rest_all() -> None:
    for shared in list(_alive):
        shared.rest()


def _resume_all() -> None:
    for shared in list(_alive):
        shared.resume()


def _forget_all() -> None:
    for shared in list(_alive):
        shared.forget()


os.register_at_fork(before=_rest_all, after_in_parent=_resume_all, after_in_child=_forget_all)
