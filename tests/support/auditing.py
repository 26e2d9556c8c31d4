"""What must be true after any fault, in the tables and in what the tasks themselves wrote down."""

from collections import Counter
from collections.abc import Iterable, Sequence

from penstock.engine.verifying import verify
from penstock.store.contract import Store
from tests.support.handling import effects
from tests.support.workers import Place, complaints


def audit(store: Store, place: Place, enqueued: Iterable[str] = ()) -> list[str]:
    """Return each broken promise as a sentence: those that `verify` finds, and those of the runs.

    No acknowledged enqueue is lost, states follow from histories without a gap, and no handler
    began more often than its execution was claimed.
    """
    found = complaints(store, place, enqueued)
    for stretch in verify(store):
        found += [f"{one.execution_id} {one.code}: {one.wrong}" for one in stretch.findings]
    return found


def effects_once(place: Place, ids: Sequence[str]) -> list[str]:
    """Return a sentence for each of these executions whose effect did not take place just once."""
    taken = Counter(effects(place))
    return [f"{one} took effect {taken[one]} times" for one in ids if taken[one] != 1]
