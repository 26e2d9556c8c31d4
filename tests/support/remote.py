"""Workers in processes of their own that reach PostgreSQL through a proxy; the test does not."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock import App
from penstock.model.states import State
from penstock.store.contract import Store
from penstock.testing.proxy import Proxy, proxy_to
from tests.support import handling, tasks
from tests.support.auditing import audit
from tests.support.workers import Place, Workers, wait_until, workers_at

HANDLING = f"{handling.__name__}:app"


@dataclass(frozen=True)
class Remote:
    app: App
    place: Place  # as the test reaches it
    proxy: Proxy
    workers: Workers

    @property
    def store(self) -> Store:
        return self.app.store

    def enqueue_steps(self, count: int) -> list[str]:
        requests = [tasks.step.request(number) for number in range(count)]
        return [one.id for one in self.app.enqueue_many(requests)]

    def wait_for(self, ids: Sequence[str], timeout: float = 60) -> None:
        wait_until(lambda: self.completed() >= len(ids), timeout, what=f"{len(ids)} completed")

    def completed(self) -> int:
        return self.store.counts()[State.COMPLETED]


@contextmanager
def remote_site(url: str, schema: str, directory: Path) -> Iterator[Remote]:
    """A schema on that server, and workers behind a proxy; audited at the end."""
    ours = Place(url, schema, directory)
    with proxy_to(url) as proxy:
        tasks.app.configure(database=url, schema=schema)
        tasks.app.migrate()
        theirs = Place(proxy.url(url), schema, directory)
        try:
            with workers_at(theirs, tasks.app.store) as workers:
                yield Remote(tasks.app, ours, proxy, workers)
            assert audit(tasks.app.store, ours) == []
        finally:
            tasks.app.close()
