"""A network that fails on request: a TCP proxy on the loopback interface."""

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit, urlunsplit

from penstock.testing.notifications import Notifications

CHUNK = 65536


class _Link:
    """One client's connection and the one behind it."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self._client = client
        self._server = server
        self._notifications = Notifications()
        self.flowing = threading.Event()
        self.flowing.set()
        self.is_cut = False

    def carry(self, proxy: "Proxy") -> None:
        ways = (
            (self._client, self._server, self._asked),
            (self._server, self._client, lambda data: self._answered(proxy, data)),
        )
        for source, target, passed in ways:
            threading.Thread(
                target=self._pump,
                args=(proxy, source, target, passed),
                name="proxy-pump",
                daemon=True,
            ).start()

    def _asked(self, data: bytes) -> bytes:
        self._notifications.asked(data)
        return data

    def _answered(self, proxy: "Proxy", data: bytes) -> bytes:
        kept = self._notifications.removed_from(data, drop=proxy.drops_notifications)
        return b"" if proxy.swallows_replies else kept

    def _pump(
        self,
        proxy: "Proxy",
        source: socket.socket,
        target: socket.socket,
        passed: Callable[[bytes], bytes],
    ) -> None:
        with suppress(OSError):
            while data := source.recv(CHUNK):
                proxy.flowing.wait()
                self.flowing.wait()
                if self.is_cut:
                    return
                if proxy.delay:
                    time.sleep(proxy.delay)
                if kept := passed(data):
                    target.sendall(kept)
        self.cut()

    def cut(self) -> None:
        self.is_cut = True
        self.flowing.set()
        for end in (self._client, self._server):
            # Without lingering: both sides get a reset, as from a machine that has forgotten them.
            with suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


class Proxy:
    """Stands between clients and one server; passes everything on until told otherwise."""

    def __init__(self, host: str, port: int) -> None:
        self._behind = (host, port)
        self._links: list[_Link] = []
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None
        self.port = 0
        self.delay = 0.0  # seconds, for every piece in either direction
        self.drops_notifications = False  # PostgreSQL's: what LISTEN would hear
        self.swallows_replies = False
        self.flowing = threading.Event()
        self.flowing.set()
        self.tries = 0  # connections that somebody asked for
        self.hangs_up = False
        self.accept()

    def url(self, url: str) -> str:
        """The same URL, by way of this proxy."""
        parts = urlsplit(url)
        credentials, _, _ = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{credentials}@127.0.0.1:{self.port}"))

    # --- faults -----------------------------------------------------------------------

    def cut(self) -> None:
        """Reset every connection that there is; new ones are welcome."""
        with self._lock:
            links, self._links = self._links, []
        for link in links:
            link.cut()

    def refuse(self) -> None:
        """Reset every connection and refuse new ones, until `accept`."""
        listener, self._listener = self._listener, None
        if listener is not None:
            # A blocked accept() keeps the port open until it is shut down as well.
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        self.cut()

    def accept(self) -> None:
        """Take connections, on the same port as before."""
        listener = socket.create_server(("127.0.0.1", self.port))
        self.port = listener.getsockname()[1]
        self._listener = listener
        threading.Thread(
            target=self._serve, args=(listener,), name="proxy-accept", daemon=True
        ).start()

    def hang_up(self) -> None:
        """Reset every connection, and every new one as soon as it is made, until `pick_up`."""
        self.hangs_up = True
        self.cut()

    def pick_up(self) -> None:
        """Take connections again as before `hang_up`."""
        self.hangs_up = False

    def stall(self) -> None:
        """Keep all connections open and hold back everything on them, until `resume`."""
        self.flowing.clear()

    def resume(self) -> None:
        """Pass on what was held back, in order."""
        self.flowing.set()

    def leave_half_open(self) -> int:
        """Let nothing more through on today's connections; neither side learns of it."""
        with self._lock:
            for link in self._links:
                link.flowing.clear()
            return len(self._links)

    # --- the traffic ------------------------------------------------------------------

    def _serve(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                self.tries += 1
                self._connect(client, listener)

    def _connect(self, client: socket.socket, listener: socket.socket) -> None:
        if self.hangs_up:
            client.close()
            return
        try:
            server = socket.create_connection(self._behind)
        except OSError:
            client.close()
            return
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link = _Link(client, server)
        with self._lock:
            # One that was on its way when all were cut must not be left over.
            welcome = self._listener is listener and not self.hangs_up
            if welcome:
                self._links = [one for one in self._links if not one.is_cut]
                self._links.append(link)
        if welcome:
            link.carry(self)
        else:
            link.cut()

    def close(self) -> None:
        """Reset what is left, and stop."""
        self.flowing.set()
        self.refuse()


@contextmanager
def proxy_to(url: str) -> Iterator[Proxy]:
    """A proxy to the server that `url` names."""
    parts = urlsplit(url)
    proxy = Proxy(parts.hostname or "127.0.0.1", parts.port or 5432)
    try:
        yield proxy
    finally:
        proxy.close()
