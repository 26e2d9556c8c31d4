"""Where the tasks of runs lie: right behind the runs, in the order of the ids."""

from collections.abc import Callable, Iterable

from penstock.model.ids import last_id_of
from penstock.store.batches import encode_rows


def encode_ranges(run_ids: Iterable[str], last: Callable[[str], str] = last_id_of) -> str:
    """Return JSON for a statement that looks behind each of these runs, elements included."""
    return encode_rows([{"first": run_id, "last": last(run_id)} for run_id in run_ids])


def behind(execution_id: str, root_id: str) -> str:
    """Return where to go on after an execution, and the whole run if it is a task of one."""
    return execution_id if execution_id == root_id else last_id_of(root_id)
