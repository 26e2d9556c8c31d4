"""Moving an App to another database and back: for tests, and for nothing else."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.engine.client import Client
from penstock.errors import PenstockError
from penstock.model.clock import Clock
from penstock.registry import Registry
from penstock.store.contract import Store

if TYPE_CHECKING:
    from penstock.settings import Settings


class RunByATest(PenstockError):
    """A worker was asked for while a test decides what runs when."""

    def __init__(self) -> None:
        super().__init__(
            "This App is in the hands of a ManualApp, so nothing runs by itself. Call "
            "`manual.run_until_idle()` where the worker would have its turn."
        )


class Rebindable(ABC):
    """The part of an App that says where it keeps everything."""

    _client: Client
    _opening: threading.RLock
    _store: Store | None
    _arguments: dict[str, object]
    _settings: "Settings | None"
    _migrate: bool
    _included: list[Registry]
    _rebound = False

    @abstractmethod
    def _close(self) -> None: ...

    @abstractmethod
    def _bind(self, registry: Registry) -> None: ...

    @contextmanager
    def rebound(
        self, database: str, *, schema: str | None = None, clock: Clock | None = None
    ) -> Iterator[Client]:
        """Keep everything in another database, on another clock, until the block ends.

        Meanwhile no worker starts. What the App had open stays open, and is what it uses again
        afterwards.
        """
        client = self._client
        before = self._store, self._arguments, self._settings, self._migrate, self._rebound
        time_before = client.clock
        # A direct connection for wake-ups would lead to the other database's server.
        there: dict[str, object] = {"database.url": database, "database.listen_url": ""}
        there |= {} if schema is None else {"database.schema": schema}
        with self._opening:
            self._store, self._settings = None, None
            self._arguments, self._migrate, self._rebound = self._arguments | there, True, True
            client.clock = clock
        try:
            yield client
        finally:
            self._close()
            with self._opening:
                client.clock = time_before
                self._store, self._arguments, self._settings, self._migrate, self._rebound = before
                if self._store is not None:
                    for registry in self._included:
                        self._bind(registry)
