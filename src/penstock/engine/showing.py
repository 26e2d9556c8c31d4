"""How annotations, parameters and stored texts are shown in a message."""

import inspect
from inspect import Parameter
from reprlib import repr as short_repr
from typing import Annotated, get_args, get_origin

_LONGEST_TEXT_SHOWN = 60


def shown(annotation: object) -> str:
    if annotation is Parameter.empty:
        return "plain JSON"
    if isinstance(annotation, str):
        return annotation
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return inspect.formatannotation(annotation)


def shown_parameter(parameter: Parameter) -> str:
    stars = "**" if parameter.kind is Parameter.VAR_KEYWORD else ""
    annotated = parameter.annotation is not Parameter.empty
    kind = f": {shown(parameter.annotation)}" if annotated else ""
    optional = parameter.default is not Parameter.empty
    default = f" = {short_repr(parameter.default)}" if optional else ""
    return f"{stars}{parameter.name}{kind}{default}"


def shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT_SHOWN else f"{text[:_LONGEST_TEXT_SHOWN]}…"
