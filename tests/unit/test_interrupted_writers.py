"""A signal may end whoever writes for several, at any moment: nobody is told what is not so.

Python looks for signals after calls, and where a loop or a function begins. A handler is let raise
at each of these places in turn, in the main thread, which writes what three others want as well.
"""

import dis
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from penstock.errors import StoreRefused, StoreUnavailable
from penstock.store.sqlite import connecting, sharing, together
from penstock.store.sqlite.sharing import SharedFile

OURS = {sharing.__file__, together.__file__, connecting.__file__}
LOOKS = ("CALL", "JUMP_BACKWARD", "POP_JUMP_BACKWARD", "RESUME")
LEADER = "leader"
PATIENCE = 10.0


class TimeIsUp(Exception):
    """What handlers of SIGALRM raise, as a rule."""


class Interruption:
    """Raises at one of the places where Python looks for signals: the how manieth is told."""

    def __init__(self, at: int, raised: type[BaseException]) -> None:
        self.came = False
        self._left = at
        self._raised = raised
        self._before: dict[FrameType, str] = {}
        self._names: dict[CodeType, dict[int, str]] = {}

    def __enter__(self) -> None:
        self._tracing = sys.gettrace()
        # Python 3.12 tells of opcodes only if somebody has asked for them when tracing begins.
        sys._getframe().f_trace_opcodes = True
        sys.settrace(self._enter)

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._tracing)

    def _enter(self, frame: FrameType, _event: str, _told: object) -> Any:  # noqa: ANN401 - its own
        if frame.f_code.co_filename not in OURS:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._within

    def _within(self, frame: FrameType, event: str, _told: object) -> Any:  # noqa: ANN401
        if event == "opcode":
            before = self._before.get(frame, "")
            self._before[frame] = self._name(frame)
            if before.startswith(LOOKS) and not self.came:
                self._left -= 1
                if self._left == 0:
                    self.came = True
                    raise self._raised
        elif event == "exception":
            # A call that raises does not look for signals; and who raised there, before Python has
            # noted the exception, would leave it behind in this thread for ever.
            self._before.pop(frame, None)
        return self._within

    def _name(self, frame: FrameType) -> str:
        code = frame.f_code
        if code not in self._names:
            self._names[code] = {one.offset: one.opname for one in dis.get_instructions(code)}
        return self._names[code].get(frame.f_lasti, "")


class Crowd:
    """Threads that write together, led by the main thread."""

    def __init__(self, file: SharedFile) -> None:
        self.answers: dict[str, object] = {}
        self._file = file
        self._lock = threading.RLock()  # so that this thread can keep it until all are there
        file._lock = self._lock  # type: ignore[assignment]
        self._threads: list[threading.Thread] = []

    def come(self, name: str, *, refused: bool = False) -> None:
        thread = threading.Thread(target=self._write, args=(name, say(name, refused=refused)))
        self._threads.append(thread)
        waiting = len(self._file._waiting)
        thread.daemon = True
        thread.start()
        deadline = time.monotonic() + PATIENCE
        while len(self._file._waiting) == waiting:
            assert time.monotonic() < deadline
            time.sleep(0.0001)

    def lead(self, interruption: Interruption, *, refused: bool, late: bool) -> None:
        with self._lock:
            self.come("first")
            self.come("second", refused=not refused and not late)
            work = say(LEADER, refused=refused)

            def and_one_comes(connection: Any) -> str:  # noqa: ANN401
                if late and "late" not in [one.name for one in self._threads]:
                    self.come("late", refused=True)
                    self._threads[-1].name = "late"
                return work(connection)

            with interruption:
                self._write(LEADER, and_one_comes)
        for thread in self._threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()

    def _write(self, name: str, work: Callable[[Any], str]) -> None:
        try:
            self.answers[name] = self._file.write(f"say {name}", work)
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.answers[name] = error


def say(name: str, *, refused: bool) -> Callable[[Any], str]:
    def work(connection: Any) -> str:  # noqa: ANN401
        connection.execute("INSERT INTO said VALUES (?)", (name,))
        if refused:
            connection.execute("INSERT INTO taken VALUES (1)")
        return name

    return work


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "shared.db"
    file = SharedFile(str(path), busy_timeout=5)
    file.write("make a table", lambda it: it.execute("CREATE TABLE said (word TEXT)"))
    file.write("make a table", lambda it: it.execute("CREATE TABLE taken (n INTEGER UNIQUE)"))
    file.write("take it", lambda it: it.execute("INSERT INTO taken VALUES (1)"))
    file.close()
    return path


@pytest.mark.parametrize("raised", [KeyboardInterrupt, TimeIsUp])
@pytest.mark.parametrize(
    ("refused", "late"),
    [(False, False), (True, False), (False, True)],
    ids=["another is refused", "the leader is refused", "one who comes late is refused"],
)
def test_nobody_is_told_what_is_not_so_wherever_a_signal_ends_the_leader(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    raised: type[BaseException],
    refused: bool,
    late: bool,
) -> None:
    monkeypatch.setattr(sharing, "NOTICED_WITHIN", 0.002)
    guilty = {LEADER if refused else "late" if late else "second"}
    file = SharedFile(str(path), busy_timeout=5)
    at, came = 0, True
    while came:
        at += 1
        interruption, crowd = Interruption(at, raised), Crowd(file)
        crowd.lead(interruption, refused=refused, late=late)
        came = interruption.came
        said = Counter(
            word for (word,) in file.read("read", lambda it: it.execute("SELECT * FROM said"))
        )
        file.write("forget", lambda it: it.execute("DELETE FROM said"))
        for name, answer in crowd.answers.items():
            if answer == name:
                assert name not in guilty
                assert said[name] == 1
            else:
                interrupted = raised if name == LEADER else StoreUnavailable
                assert isinstance(answer, (interrupted, *([StoreRefused] * (name in guilty))))
                assert said[name] <= (name not in guilty)
    file.close()

    assert at > 50
    assert sys.exception() is None


class Interrupted(deque[Any]):
    """What waits, for somebody whom a second signal hits while he takes himself out of it."""

    def remove(self, job: object) -> None:
        del job
        raise TimeIsUp


@pytest.mark.parametrize("waiting", [deque, Interrupted], ids=["once", "twice"])
def test_what_a_signal_ended_is_not_written_later_by_somebody_else(
    path: Path, waiting: type[deque[Any]]
) -> None:
    file = SharedFile(str(path), busy_timeout=5)
    file._waiting = waiting()
    at, came = 0, True
    while came:
        at += 1
        interruption, word = Interruption(at, TimeIsUp), f"ended at the {at}th"
        with suppress(TimeIsUp), interruption:
            file.write("say it", say(word, refused=False))
        came = interruption.came
        then = how_often(file, word)

        file.write("say it", say("an hour later", refused=False))

        assert how_often(file, word) == then <= 1
    file.close()

    assert at > 20


def how_often(file: SharedFile, word: str) -> int:
    rows = file.read("read", lambda it: it.execute("SELECT word FROM said").fetchall())
    return rows.count((word,))
