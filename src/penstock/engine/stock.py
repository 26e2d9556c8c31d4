"""Claimed tasks that wait for a slot.

Queues take turns here too: whatever one queue has in stock, a task of another one waits
behind a single task of each.
"""

from collections import deque
from collections.abc import Iterator, Sequence

from penstock.engine.attempts import Attempt


class Stock:
    """Attempts that have not begun; within a queue in the order in which they were claimed.

    Not safe by itself: whoever changes it or walks over it holds the runner's lock.
    """

    def __init__(self) -> None:
        # In the order of their turns, and never with an empty one.
        self._queues: dict[str, deque[Attempt]] = {}
        self.count = 0

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Attempt]:
        for attempts in self._queues.values():
            yield from attempts

    @property
    def queues(self) -> dict[str, int]:
        """How many of each queue are here, without those that have none."""
        return {queue: len(attempts) for queue, attempts in self._queues.items()}

    def add(self, attempts: Sequence[Attempt]) -> None:
        for attempt in attempts:
            queue = attempt.claimed.queue
            if queue not in self._queues:
                self._queues[queue] = deque()
            self._queues[queue].append(attempt)
        self.count += len(attempts)

    def pop(self) -> Attempt:
        """Take the first of the queue whose turn it is, and let the next queue have its turn."""
        queue = next(iter(self._queues))
        attempts = self._queues[queue]
        attempt = attempts.popleft()
        if not attempts:
            del self._queues[queue]
        elif len(self._queues) > 1:
            self._queues[queue] = self._queues.pop(queue)
        self.count -= 1
        return attempt

    def take_received_until(self, moment: float) -> list[Attempt]:
        """Take out all that were claimed by then, which come first in their queues."""
        taken: list[Attempt] = []
        for queue, attempts in tuple(self._queues.items()):
            while attempts and attempts[0].received_at <= moment:
                taken.append(attempts.popleft())
            if not attempts:
                del self._queues[queue]
        self.count -= len(taken)
        return taken

    def clear(self) -> None:
        self._queues.clear()
        self.count = 0
