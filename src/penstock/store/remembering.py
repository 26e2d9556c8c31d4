"""Tasks that remember their steps and wait without a worker: what is the same in every store."""

from abc import abstractmethod
from collections.abc import Sequence

import msgspec

from penstock.model.executions import Memory, SignalAnswer
from penstock.store.connections.callers import Callers
from penstock.store.reading import Reads
from penstock.store.scripts import Row, Script

_decode_text = msgspec.json.Decoder(str).decode


def asked_for(result: str) -> str:
    """The id of the run that a step started."""
    return _decode_text(result)


def answer_to_signal(data: str, before: Sequence[Row], *, live: bool) -> SignalAnswer:
    """Whether the task has heard this before, given what is stored under the name.

    The same is what a sender says again whose reply was lost: the task has been told.
    """
    if any(stored == data for (stored,) in before):
        return "told"
    return "already" if live else "finished"


def memory_of(rows: Sequence[Row]) -> Memory:
    memory = Memory({}, {})
    for kind, name, text in rows:
        (memory.steps if kind == "step" else memory.signals)[name] = text
    return memory


class Remembers(Reads):
    """The part of the contract that outlives an attempt."""

    _callers: Callers

    @abstractmethod
    def _signalling(
        self, execution_id: str, name: str, data: str, *, notify: bool
    ) -> Script[SignalAnswer]: ...

    def memory(self, execution_id: str) -> Memory:
        return memory_of(self._rows("read what a task remembers", "memory", id=execution_id))

    def signal_on(
        self, connection: object, execution_id: str, name: str, data: str, *, notify: bool = True
    ) -> SignalAnswer:
        script = self._signalling(execution_id, name, data, notify=notify)
        return self._callers.run(connection, script)

    async def asignal_on(
        self, connection: object, execution_id: str, name: str, data: str, *, notify: bool = True
    ) -> SignalAnswer:
        script = self._signalling(execution_id, name, data, notify=notify)
        return await self._callers.arun(connection, script)
