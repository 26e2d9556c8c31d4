"""A short text that changes when a workflow does: its graph, its rules, or the code of its tasks.

Code is taken as Python compiled it, so no source files are needed, and comments, line numbers
and the place of the file do not count. Another minor version of Python compiles otherwise, and
so gives another fingerprint.
"""

from collections.abc import Callable, Iterable, Iterator
from types import CodeType

_DIGEST_BYTES = 16


def fingerprint(graph: str, functions: Iterable[Callable[..., object]]) -> str:
    """Return the fingerprint of a workflow from its graph as stored and the code of its tasks."""
    # Here, not above: it loads a library of cryptography, and only workflows need it.
    import hashlib  # noqa: PLC0415

    digest = hashlib.blake2b(graph.encode(), digest_size=_DIGEST_BYTES)
    for function in functions:
        digest.update(b"\0\0")
        for part in _parts_of_function(function):
            digest.update(part.encode("utf-8", "backslashreplace") + b"\0")
    return digest.hexdigest()


def _parts_of_function(function: Callable[..., object]) -> Iterator[str]:
    """Also of what a decorator has put around it."""
    layer: object = function
    while layer is not None:
        code = getattr(layer, "__code__", None)
        if isinstance(code, CodeType):
            yield from _parts(code, docstring=getattr(layer, "__doc__", None))
        else:
            yield type(layer).__qualname__
        layer = getattr(layer, "__wrapped__", None)


def _parts(code: CodeType, *, docstring: str | None = None) -> Iterator[str]:
    yield code.co_name
    yield f"{code.co_argcount} {code.co_posonlyargcount} {code.co_kwonlyargcount} {code.co_flags}"
    yield code.co_code.hex()
    yield code.co_exceptiontable.hex()
    yield repr((code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars))
    for place, constant in enumerate(code.co_consts):
        # What a task says about itself is no code; interpreters started with -OO drop it, too.
        if place == 0 and docstring is not None and constant == docstring:
            yield "None"
        else:
            yield from _constant(constant)


def _constant(constant: object) -> Iterator[str]:
    match constant:
        case CodeType():
            yield from _parts(constant)
        case frozenset():  # whose order is another one in every process
            yield repr(sorted(map(repr, constant)))
        case tuple():
            for item in constant:
                yield from _constant(item)
            yield f"({len(constant)})"
        case _:
            yield repr(constant)
