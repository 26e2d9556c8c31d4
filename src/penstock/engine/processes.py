"""Child processes for CPU-bound tasks. They die with their parent."""

import atexit
import contextlib
import ctypes
import importlib
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from types import FrameType
from typing import Any

import msgspec
from msgspec.structs import replace

from penstock.engine.attempts import AnyTask
from penstock.engine.current import current_execution
from penstock.engine.desk import ChildDesk
from penstock.engine.failures import message_of, stored_error
from penstock.engine.handle import TaskHandle
from penstock.engine.writes import encode_writes
from penstock.errors import PenstockError
from penstock.model.executions import Claimed

_PR_SET_PDEATHSIG = 1


class ChildDied(PenstockError):
    """The process of a task ended before the task did."""

    def __init__(self, task: str, exit_code: int | None) -> None:
        self.exit_code = exit_code
        how = (
            "ended" if exit_code is None or exit_code >= 0 else f"was killed by {_name(-exit_code)}"
        )
        super().__init__(f"The process that ran {task!r} {how} before the task had returned.")


class Answer(msgspec.Struct, frozen=True):
    """What a child says: a result as JSON text, or an error."""

    result: str = "null"
    writes: str | None = None  # into the context of its workflow
    error: BaseException | None = None
    stored: str | None = None  # the error as text: its traceback does not cross processes
    in_doubt: bool = False  # completed in the handler's own transaction


class Child:
    """One process that runs one task after the other."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(theirs, os.getpid()), daemon=True, name="penstock-process-task"
        )
        self._process.start()
        theirs.close()

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    def run(self, task: AnyTask, claimed: Claimed) -> Answer:
        function = task.function
        try:
            self._pipe.send((function.__module__, function.__qualname__, claimed))
            answer: Answer = self._pipe.recv()
        except (EOFError, OSError) as error:
            self._process.join(5)
            raise ChildDied(task.name, self._process.exitcode) from error
        return answer

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        self._pipe.close()  # the end of its work: it leaves by itself


class Processes:
    """Children that have nothing to do wait here for the next task."""

    def __init__(self, make: Callable[[], Child] = Child) -> None:
        self._make = make
        self._idle: list[Child] = []
        self._all: set[Child] = set()
        self._lock = threading.Lock()

    def take(self) -> Child:
        with self._lock:
            while self._idle:
                child = self._idle.pop()
                if child.alive:
                    return child
                self._all.discard(child)
        child = self._make()
        with self._lock:
            if not self._all:
                # Registered after the standard library's own, and so called before it: that
                # one would wait for our children to end of the signal that they ignore.
                atexit.register(self.close)
            self._all.add(child)
        return child

    def put_back(self, child: Child) -> None:
        with self._lock:
            if child.alive:
                self._idle.append(child)
                return
            self._all.discard(child)
        child.close()

    def close(self) -> None:
        """End them all; whatever they still do counts no more."""
        atexit.unregister(self.close)
        with self._lock:
            children, self._all = self._all, set()
            self._idle.clear()
        for child in children:
            child.kill()
            child.close()


# --- in the child ---------------------------------------------------------------------


def _serve(pipe: Connection, parent: int) -> None:
    end_with(parent)
    # A terminal's Ctrl-C goes to every process, and so may the signal that stops a service; the
    # parent decides what it means. A handler, unlike SIG_IGN, is not passed on to programs that
    # a task starts.
    signal.signal(signal.SIGINT, _leave_it_to_the_parent)
    signal.signal(signal.SIGTERM, _leave_it_to_the_parent)
    while True:
        try:
            module, qualname, claimed = pipe.recv()
        except (EOFError, OSError):
            return
        pipe.send(_picklable(_run(module, qualname, claimed)))


def _leave_it_to_the_parent(_number: int, _frame: FrameType | None) -> None:
    pass


def _run(module: str, qualname: str, claimed: Claimed) -> Answer:
    desk: ChildDesk | None = None
    current_execution.set(claimed.lease.execution_id)
    try:
        task: Any = sys.modules.get("__mp_main__") if module == "__main__" else None
        task = task or importlib.import_module(module)
        for part in qualname.split("."):
            task = getattr(task, part)
        signature = task.signature
        args, kwargs, context = signature.read_call(claimed.args)
        desk = ChildDesk(claimed, task)
        if signature.takes_handle:
            args = (TaskHandle(claimed, desk, context), *args)
        result = signature.encode_result(task.function(*args, **kwargs))
        writes = encode_writes(context, task=task.name)
        return Answer(result=result, writes=writes, in_doubt=desk.in_doubt)
    except BaseException as error:  # noqa: BLE001 - the parent decides what it means
        in_doubt = desk is not None and desk.in_doubt
        return Answer(error=error, stored=stored_error(error), in_doubt=in_doubt)


class _Bare(Exception):
    """Stands for an error that cannot be sent: it arrives as one of that class, without facts.

    The class is what a retry policy asks for.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(message_of(error))
        self._kind = type(error)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuilt, (self._kind, self.args)


def _rebuilt(kind: type[BaseException], args: tuple[object, ...]) -> BaseException:
    error = kind.__new__(kind)
    error.args = args
    return error


def _picklable(answer: Answer) -> Answer:
    if answer.error is None:
        return answer
    for error in (answer.error, _Bare(answer.error)):
        sendable = replace(answer, error=error)
        with contextlib.suppress(Exception):  # errors of users may hold anything
            pickle.loads(pickle.dumps(sendable))  # noqa: S301 - our own bytes
            return sendable
    name = type(answer.error).__qualname__
    return replace(answer, error=RuntimeError(f"{name}: {message_of(answer.error)}"))


def end_with(parent: int) -> None:
    """On Linux the kernel ends us with the parent's death; elsewhere the closed pipe does."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # it died before we had asked


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
