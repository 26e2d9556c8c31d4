"""What every store lets people do to runs: the scripts are the same, who runs them is not."""

from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from penstock.model.executions import CancelAnswer, DismissAnswer, RerunAnswer, Snapshot
from penstock.model.ids import MOST_ELEMENTS, index_of, place_of
from penstock.model.runs import RunAnswer
from penstock.model.states import FINAL, State
from penstock.store import steering
from penstock.store.dismissing import dismiss
from penstock.store.fanning import ELEMENTS
from penstock.store.reading import Reads
from penstock.store.runs import RunWriter
from penstock.store.scripts import Script

T = TypeVar("T")

_RERUN: dict[RunAnswer, RerunAnswer] = {"done": "rerun", "unknown": "unknown"}


class Steered(Reads):
    """The part of the contract that is about runs as a whole, and about reruns."""

    @abstractmethod
    def _steer(self, doing: str, script: Callable[[RunWriter], Script[T]]) -> T: ...

    @abstractmethod
    def _cancel(self, ids: Sequence[str], *, reason: str | None) -> list[CancelAnswer]: ...

    @abstractmethod
    def _rerun_plain(self, ids: Sequence[str]) -> dict[str, RerunAnswer]: ...

    def pause_run(self, run_id: str) -> RunAnswer:
        return self._steer("pause a run", lambda writer: steering.pause(writer, run_id))

    def resume_run(self, run_id: str) -> RunAnswer:
        return self._steer("resume a run", lambda writer: steering.resume(writer, run_id))

    def rerun_run(self, run_id: str, *, tasks: Sequence[str] | None = None) -> RunAnswer:
        return self._steer("rerun a run", lambda writer: steering.rerun(writer, run_id, tasks))

    def cancel(self, ids: Sequence[str], *, reason: str | None = None) -> list[CancelAnswer]:
        waiting = [found for found in self.get(sorted(set(ids))) if found.state is State.WAITING]
        elements = {found.id: self._live_elements_of(found) for found in waiting}
        # A task that waits for its elements ends with them: they are what is cancelled.
        lists = {found.id for found in waiting if (found.awaits or "").startswith(ELEMENTS)}
        plain = [id_ for id_ in ids if id_ not in lists]
        wanted = [*plain, *(id_ for some in elements.values() for id_ in some)]
        answers = dict(zip(wanted, self._cancel(wanted, reason=reason), strict=True))
        return [
            _together({answers[one] for one in elements[id_]}) if id_ in lists else answers[id_]
            for id_ in ids
        ]

    def _live_elements_of(self, found: Snapshot) -> list[str]:
        if found.root_id == found.id or index_of(found.id) is not None:
            return []
        stored = self.elements_of(found.root_id, place_of(found.id), limit=MOST_ELEMENTS)
        return [one.id for one in stored if one.state not in FINAL]

    def rerun(self, ids: Sequence[str]) -> list[RerunAnswer]:
        of_runs: dict[str, list[str]] = {}
        for found in self.get(sorted(set(ids))):
            if found.root_id != found.id:
                of_runs.setdefault(found.root_id, []).append(found.id)
        in_runs = {id_ for tasks in of_runs.values() for id_ in tasks}
        answers = self._rerun_plain([id_ for id_ in ids if id_ not in in_runs])
        for run_id, tasks in of_runs.items():
            answer = _RERUN.get(self.rerun_run(run_id, tasks=tasks), "live")
            answers |= dict.fromkeys(tasks, answer)
        return [answers[id_] for id_ in ids]

    def dismiss(self, ids: Sequence[str]) -> list[DismissAnswer]:
        gone = self._steer("dismiss executions", lambda writer: dismiss(writer.statements, ids))
        rest = sorted(set(ids) - gone)
        answers: dict[str, DismissAnswer] = dict.fromkeys(gone, "dismissed")
        answers |= {run.id: "kept" for run in self.runs(rest)}
        answers |= {one.id: "kept" if one.root_id == one.id else "part" for one in self.get(rest)}
        return [answers.get(id_, "unknown") for id_ in ids]


def _together(answers: Collection[CancelAnswer]) -> CancelAnswer:
    """What to say of a task that ends with its elements."""
    if "requested" in answers:
        return "requested"
    return "cancelled" if "cancelled" in answers else "finished"
