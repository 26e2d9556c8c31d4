"""Errors cross processes: what they say and what they know must arrive with them."""

import importlib
import inspect
import pickle
import pkgutil
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.errors import PenstockError

# One value for each annotation that a constructor has, as the source writes it.
EXAMPLES: dict[str, Any] = {
    "str": "text",
    "int": -9,
    "float": 2.5,
    "bool": True,
    "object": {"any": "thing"},
    "datetime": datetime(2026, 11, 15),  # noqa: DTZ001
    "timedelta": timedelta(minutes=1),
    "list[str]": ["one", "two"],
    "Collection[str]": ("one", "two"),
    "Mapping[str, str]": {"fetch": "OSError: gone"},
    "Sequence[int]": (1, 2),
    "Sequence[str]": ("one", "two"),
    "Mapping[str, object]": {"type": "ValueError", "message": "boom"},
    "tuple[str, ...]": ("one", "two"),
    "BaseException": OSError("broken pipe"),
    "Exception": KeyError("settings"),
    "Path": Path("orders"),
    "ImportError": ImportError("No module named 'psycopg'"),
    "int | float | str | timedelta": "1m30s",
}


def import_everything() -> None:
    for found in pkgutil.walk_packages(penstock.__path__, "penstock."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)


def all_errors(base: type[PenstockError] = PenstockError) -> Iterator[type[PenstockError]]:
    for kind in base.__subclasses__():
        if kind.__module__.startswith("penstock."):
            yield kind
        yield from all_errors(kind)


def example_of(kind: type[PenstockError]) -> PenstockError:
    if kind.__init__ is Exception.__init__:  # one that only groups others
        return kind("a sentence")
    arguments: list[Any] = []
    keywords: dict[str, Any] = {}
    for parameter in inspect.signature(kind).parameters.values():
        if parameter.kind is not parameter.KEYWORD_ONLY:
            arguments.append(_example_for(parameter.annotation))
        elif parameter.default is parameter.empty:  # others may exclude each other
            keywords[parameter.name] = _example_for(parameter.annotation)
    return kind(*arguments, **keywords)


def _example_for(annotation: Any) -> Any:  # noqa: ANN401
    if inspect.isclass(annotation) and issubclass(annotation, PenstockError):
        return example_of(annotation)
    written = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    for module in ("collections.abc.", "datetime.", "pathlib.", "_local."):  # Python 3.13 has both
        written = written.replace(module, "")
    return EXAMPLES[written.removesuffix(" | None")]


import_everything()
ERRORS = sorted(set(all_errors()), key=lambda kind: (kind.__module__, kind.__qualname__))


def test_all_errors_were_found() -> None:
    names = {kind.__name__ for kind in ERRORS}
    assert {"UnknownTask", "InvalidOption", "EngineGiven", "UnknownSetting", "GiveUp"} <= names
    assert {getattr(penstock, name) for name in penstock.__all__ if name in names} <= set(ERRORS)


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_an_error_keeps_its_sentence_and_its_facts_on_the_way_to_another_process(
    kind: type[PenstockError],
) -> None:
    error = example_of(kind)
    arrived = pickle.loads(pickle.dumps(error))  # noqa: S301 - it was pickled here
    assert type(arrived) is kind
    assert str(arrived) == str(error)
    assert vars(arrived) == vars(error)
    assert arrived.args == error.args


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_an_error_says_in_its_docstring_when_it_is_raised(kind: type[PenstockError]) -> None:
    assert kind.__doc__
    assert kind.__doc__.strip().splitlines()[0].endswith((".", ":"))
