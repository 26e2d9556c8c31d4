"""Which kinds of JSON the values of an annotation become: enough to see what can never fit."""

from typing import Any

import msgspec
from msgspec import inspect as types

_KINDS: dict[type[types.Type], frozenset[str]] = {
    types.NoneType: frozenset({"null"}),
    types.BoolType: frozenset({"bool"}),
    types.IntType: frozenset({"int"}),
    types.FloatType: frozenset({"int", "float"}),
    types.StrType: frozenset({"text"}),
    types.ListType: frozenset({"array"}),
    types.SetType: frozenset({"array"}),
    types.FrozenSetType: frozenset({"array"}),
    types.TupleType: frozenset({"array"}),
    types.VarTupleType: frozenset({"array"}),
    types.CollectionType: frozenset({"array"}),
    types.DictType: frozenset({"object"}),
    types.TypedDictType: frozenset({"object"}),
    types.DataclassType: frozenset({"object"}),
}


def kinds_of(annotation: object) -> frozenset[str] | None:
    """Return them, or None where it may be anything, or nobody can tell cheaply."""
    hint: Any = annotation
    try:
        return _kinds(msgspec.inspect.type_info(hint))
    except Exception:  # noqa: BLE001 - what is wrong with it is said where it is used
        return None


def _kinds(info: types.Type) -> frozenset[str] | None:
    if not isinstance(info, types.UnionType):
        return _KINDS.get(type(info))
    found: frozenset[str] = frozenset()
    for one in info.types:
        kinds = _kinds(one)
        if kinds is None:
            return None
        found |= kinds
    return found
