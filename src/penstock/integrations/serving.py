"""A few pages over HTTP, for those who watch: metrics and health."""

import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

from penstock.errors import PenstockError

PATIENCE = 10  # seconds for a client to send its request, and to take the answer


class Page(NamedTuple):
    """An answer."""

    status: int
    kind: str
    body: bytes


Pages = Mapping[str, Callable[[], Page]]


class PortUnavailable(PenstockError):
    """Nobody can be served at the address that was asked for."""

    def __init__(self, host: str, port: int, *, because: BaseException) -> None:
        self.host = host
        self.port = port
        reason = getattr(because, "strerror", None) or because
        super().__init__(
            f"Nothing can be served on port {port} of {host}: {reason}. "
            "Choose another port, or end the program that has this one."
        )


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    pages: Pages

    def server_bind(self) -> None:
        # Without http.server's own look-up of our name, which can take long.
        socket.socket.setsockopt(self.socket, socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away in the middle is nobody's concern."""


class _OverIPv6(_Server):
    address_family = socket.AF_INET6


class _Handler(BaseHTTPRequestHandler):
    timeout = PATIENCE
    server: _Server

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        path = self.path.partition("?")[0]
        make = self.server.pages.get(path)
        if make is None:
            there = " ".join(self.server.pages)
            page = Page(404, "text/plain; charset=utf-8", f"There are: {there}\n".encode())
        else:
            page = make()
        self.send_response(page.status)
        self.send_header("Content-Type", page.kind)
        self.send_header("Content-Length", str(len(page.body)))
        self.end_headers()
        if with_body:
            self.wfile.write(page.body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        """Scrapes come every few seconds: none is worth a line."""

    def version_string(self) -> str:
        return "penstock"


@contextmanager
def serving(host: str, port: int, pages: Pages) -> Iterator[int]:
    """Serve these pages in the background of the block; the value is the port.

    Raises:
        PortUnavailable: the address cannot be had.
    """
    kind = _OverIPv6 if ":" in host else _Server
    try:
        server = kind((host, port), _Handler)
    except OSError as error:
        raise PortUnavailable(host, port, because=error) from error
    server.pages = pages
    thread = threading.Thread(
        target=server.serve_forever, args=(0.1,), name="penstock-pages", daemon=True
    )
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
