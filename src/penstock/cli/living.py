"""Which of the workers that count as alive have fallen silent."""

from collections.abc import Collection, Sequence
from datetime import timedelta

from penstock.model.workers import Peer
from penstock.store.contract import Store


def silent_among(store: Store, peers: Sequence[Peer], *, lease: timedelta) -> Collection[str]:
    """Return the ids of those without a heartbeat for two leases, by the database's clock."""
    if not peers:
        return ()
    # The database says how many, as only its clock can; those are the ones that beat first. Asked
    # after `peers` were read: one that was declared dead in between must not mark another.
    count = store.gauges(lease=lease).silent_workers
    by_beat = sorted(peers, key=lambda peer: peer.beat_at)
    return frozenset(peer.info.id for peer in by_beat[:count])
