"""A plugin for pytest: one of the two steps of `make test`.

What is marked `alone` or `performance` wants a machine that does little else; the rest bears
company.
"""

import pytest

PART = "--part"
TOGETHER, ALONE = "together", "alone"
LONGEST_FIRST = ("docs", "faults", "e2e", "performance", "claiming", "ops", "typing", "contract")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(PART, choices=(TOGETHER, ALONE), required=True, help="Which of the two.")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    parts: dict[str, list[pytest.Item]] = {TOGETHER: [], ALONE: []}
    for item in items:
        parts[ALONE if _wants_to_be_alone(item) else TOGETHER].append(item)
    # A long file that begins last would keep one core busy and the others waiting.
    parts[TOGETHER].sort(key=_place)
    items[:] = parts.pop(config.getoption(PART))
    (others,) = parts.values()
    if others:
        config.hook.pytest_deselected(items=others)


def _wants_to_be_alone(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) for name in ("alone", "performance"))


def _place(item: pytest.Item) -> int:
    folder = item.nodeid.split("/")[1]
    return LONGEST_FIRST.index(folder) if folder in LONGEST_FIRST else len(LONGEST_FIRST)
