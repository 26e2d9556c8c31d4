"""Who is dead: decided by watching, never by comparing clocks."""

import time
from collections.abc import Callable, Iterable

from penstock.model.workers import Beat, Peer

MISSED_LOOKS = 2


class Observer:
    """Watches the heartbeats of others on its own monotonic clock.

    A worker is dead when an observer that beats successfully itself has seen the same beat
    for a whole lease. An outage of the database or a step of somebody's clock kills nobody:
    when our own beat fails, or has been held up, watching begins anew: whatever held us up
    may hold up the others a little longer.
    """

    def __init__(
        self, lease: float, every: float, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._lease = lease
        self._held_up_after = MISSED_LOOKS * every
        self._monotonic = monotonic
        self._seen: dict[str, tuple[int, float]] = {}
        self._looked_at = monotonic()

    def saw(self, peers: Iterable[Peer]) -> list[Beat]:
        """Take in what a successful heartbeat showed; return who is dead."""
        now = self._monotonic()
        if now - self._looked_at > self._held_up_after:
            self._seen.clear()
        self._looked_at = now
        beats = {peer.info.id: peer.beat for peer in peers}
        self._seen = {
            worker_id: self._first_seen(worker_id, beat, now) for worker_id, beat in beats.items()
        }
        return [
            Beat(worker_id, beat)
            for worker_id, (beat, since) in self._seen.items()
            if now - since >= self._lease
        ]

    def could_not_look(self) -> None:
        self._seen.clear()

    def _first_seen(self, worker_id: str, beat: int, now: float) -> tuple[int, float]:
        before = self._seen.get(worker_id)
        return before if before is not None and before[0] == beat else (beat, now)
