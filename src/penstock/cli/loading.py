"""The App that a command is about."""

import importlib
import os
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import penstock
from penstock import targets
from penstock.app import App
from penstock.errors import PenstockError

_OUR_FILES = (
    str(Path(penstock.__file__).parent) + os.sep,
    str(Path(importlib.__file__).parent) + os.sep,
    "<frozen",
)


class ModuleFailed(PenstockError):
    """A module that raises an error of its own while it is imported: its author sees where."""

    def __init__(self, target: str, *, because: BaseException) -> None:
        self.target = target
        own = _from_the_module_on(because.__traceback__)
        told = "".join(traceback.format_exception(type(because), because, own)).rstrip()
        super().__init__(
            f"What {target!r} names could not be imported, because of an error in it or in a "
            f"module that it imports:\n\n{told}"
        )


def load_app(target: str, *, modules: Sequence[str] = ()) -> App:
    """Import the App that `target` names, and the further modules with tasks of its.

    Raises:
        TargetError: there is no such module, or no App of that name in it.
        ModuleFailed: a module raised an error that is none of ours, or ended the program.
    """
    try:
        return targets.load_app(target, modules=modules)
    except PenstockError:
        raise
    except (Exception, SystemExit) as error:  # a script may end itself
        raise ModuleFailed(target, because=error) from error


def _from_the_module_on(trace: TracebackType | None) -> TracebackType | None:
    """Leave out how we got to the module: nobody has to look for the mistake there."""
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OUR_FILES):
        trace = trace.tb_next
    return trace
