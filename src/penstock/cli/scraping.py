"""Whether somebody collects the metrics of the workers that are alive.

The database knows where each worker serves them. When they were last fetched only the worker
itself knows, so it is asked; from another machine that may not be possible, and is no fault.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from penstock.model.durations import format_duration
from penstock.model.health import Finding, ok, warning
from penstock.model.workers import Peer

CHECK = "metrics"
LATELY = timedelta(minutes=5)
MOST_ASKED = 5
PATIENCE = 1.0  # seconds for each worker that is asked

# What an address says that is served on all of a machine's own.
_EVERYWHERE = {"0.0.0.0", "::"}  # noqa: S104 - compared, not bound

Scraped = Literal["lately", "not lately", "unknown"]


class _Judged(msgspec.Struct):
    id: str


class _Probe(msgspec.Struct):
    workers: list[_Judged]
    seconds_since_scrape: float | None = None


def check_metrics(peers: Sequence[Peer]) -> Finding:
    told = [peer for peer in peers if peer.info.metrics is not None]
    serving = [peer for peer in told if peer.info.metrics]
    if not told:
        return ok(CHECK, "No worker is alive that says whether it serves metrics.")
    if not serving:
        return warning(
            CHECK,
            f"None of {len(told)} live workers serves metrics: nobody is told when work piles up.",
            remedy="Start workers with --metrics-port, or set metrics.port. A service that serves "
            "those of its embedded worker itself says where: app.worker(metrics=URL).",
        )
    asked = [(peer, scraped_lately(peer)) for peer in serving[:MOST_ASKED]]
    silent = [peer for peer, scraped in asked if scraped == "not lately"]
    if silent:
        return warning(
            CHECK,
            f"Nobody has fetched {silent[0].info.metrics}/metrics in the last "
            f"{format_duration(LATELY)}, as of {len(silent)} of the {len(asked)} workers that were "
            "asked.",
            remedy="Add the workers to what Prometheus scrapes; `/targets` there says whether it "
            "reaches them.",
        )
    lately = sum(scraped == "lately" for _, scraped in asked)
    if lately == 0:
        return ok(
            CHECK,
            f"{len(serving)} of {len(told)} live workers serve metrics; whether they are scraped "
            "cannot be asked from here.",
        )
    return ok(
        CHECK,
        f"{len(serving)} of {len(told)} live workers serve metrics, and the {lately} that could be "
        "asked are scraped.",
    )


def scraped_lately(peer: Peer) -> Scraped:
    """Ask a worker when its metrics were last fetched."""
    probe = _ask(peer)
    # At an address such as 127.0.0.1 another worker may answer than the one that told it.
    if probe is None or peer.info.id not in {one.id for one in probe.workers}:
        return "unknown"
    age = probe.seconds_since_scrape
    if age is not None and age <= LATELY.total_seconds():
        return "lately"
    is_new = datetime.now(UTC) - peer.started_at < LATELY
    return "unknown" if is_new and age is None else "not lately"


def _ask(peer: Peer) -> _Probe | None:
    # With it comes all that reads e-mail.
    from http.client import HTTPConnection, HTTPException  # noqa: PLC0415 - only when used

    try:
        address = urlsplit(peer.info.metrics or "")
        if address.scheme != "http" or address.hostname is None:
            return None
        host = peer.info.host if address.hostname in _EVERYWHERE else address.hostname
        connection = HTTPConnection(host, address.port, timeout=PATIENCE)
        try:
            # Not the metrics themselves: to look at them would count as a scrape.
            connection.request("GET", "/livez")
            return msgspec.json.decode(connection.getresponse().read(), type=_Probe)
        finally:
            connection.close()
    except (OSError, HTTPException, ValueError):  # a DecodeError is a ValueError
        return None
