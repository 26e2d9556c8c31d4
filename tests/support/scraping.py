"""Looking at the pages that a worker or `penstock metrics` serves."""

import json
import socket
import urllib.error
import urllib.request
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

Labels = tuple[tuple[str, str], ...]
Samples = dict[tuple[str, Labels], float]


def free_ports(count: int = 1) -> int:
    """The first of so many neighbouring ports that nobody has at the moment."""
    for _ in range(100):
        with socket.socket() as first:
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
        if port + count < 65_536 and all(_is_free(port + n) for n in range(count)):
            return port
    raise AssertionError("no ports")


def _is_free(port: int) -> bool:
    with socket.socket() as candidate:
        try:
            candidate.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def page(port: int, path: str) -> tuple[int, str]:
    """The status and the text of a page; 0 while nobody answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError:
        return 0, ""


def page_json(port: int, path: str) -> Any:  # noqa: ANN401 - whatever is served
    return json.loads(page(port, path)[1])


def parse(text: str) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def scrape(port: int) -> Samples:
    return parse(page(port, "/metrics")[1])
