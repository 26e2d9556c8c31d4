"""From "orders:app" to the App, with the current directory on the path."""

import importlib
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType, TracebackType

from penstock import app as module_of_app
from penstock.app import App
from penstock.errors import PenstockError


class TargetError(PenstockError):
    """What was named on the command line leads to no App."""


class InvalidTarget(TargetError):
    """A target that is not written as "module:attribute"."""

    def __init__(self, target: str) -> None:
        self.target = target
        super().__init__(
            f"{target!r} does not say where the App is. Write the module, a colon and the name "
            "in it, as in `orders:app`."
        )


class ModuleNotFound(TargetError):
    """A module that Python cannot find."""

    def __init__(self, module: str, *, directory: str) -> None:
        self.module = module
        self.directory = directory
        next_step = (
            f"Leave out the ending: `{module.removesuffix('.py')}`."
            if module.endswith(".py")
            else "Change to the directory that holds it, or install the package that it belongs to."
        )
        super().__init__(
            f"There is no module {module!r} in {directory} or on Python's path. {next_step}"
        )


class AppNotFound(TargetError):
    """A module without an App of this name."""

    def __init__(self, module: str, attribute: str, *, found: str | None, apps: list[str]) -> None:
        self.module = module
        self.attribute = attribute
        self.apps = apps
        problem = (
            f"has no {attribute!r}"
            if found is None
            else f"has {attribute!r}, but that is of type {found} and no App"
        )
        next_step = (
            f"Its App is `{module}:{apps[0]}`."
            if apps
            else "It has no App either: make one with `app = App(…)`."
        )
        super().__init__(f"Module {module!r} {problem}. {next_step}")


class ModuleFailed(PenstockError):
    """A module that raises an error of its own while it is imported: its author sees where."""

    def __init__(self, target: str, *, because: Exception) -> None:
        self.target = target
        own = _without_ours(because.__traceback__)
        told = "".join(traceback.format_exception(type(because), because, own)).rstrip()
        super().__init__(
            f"What {target!r} names could not be imported, because of an error in it or in a "
            f"module that it imports:\n\n{told}"
        )


def load_app(target: str, *, modules: Sequence[str] = ()) -> App:
    """Import the App that `target` names, and the further modules with tasks of its.

    Registries of these modules are taken in, as `App(include=[…])` would do it.

    Raises:
        TargetError: there is no such module, or no App of that name in it.
        ModuleFailed: a module raised an error that is none of ours.
    """
    module_name, colon, attribute = target.partition(":")
    if not (module_name and colon and attribute):
        raise InvalidTarget(target)
    with _failures_told(target):
        app = _found_in(_imported(module_name), attribute)
        for name in modules:
            _imported(name)
            app.include(name)
        app.import_included()
    return app


@contextmanager
def _failures_told(target: str) -> Iterator[None]:
    try:
        yield
    except PenstockError:
        raise
    except Exception as error:
        raise ModuleFailed(target, because=error) from error


def _without_ours(trace: TracebackType | None) -> TracebackType | None:
    """Leave out how we got to the module: nobody has to look for the mistake there."""
    ours = {__file__, module_of_app.__file__, importlib.__file__}
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if file not in ours and not file.startswith("<frozen importlib"):
            break
        trace = trace.tb_next
    return trace


def _imported(name: str) -> ModuleType:
    directory = os.getcwd()  # noqa: PTH109 - sys.path holds strings
    if directory not in sys.path:
        sys.path.insert(0, directory)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # A module that it imports may be missing as well; that is a mistake of another kind.
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise ModuleNotFound(error.name, directory=directory) from None
    except (TypeError, ValueError):  # "..orders" is a relative name, "" is none
        if name.strip(".") == name and name:
            raise
        raise ModuleNotFound(name, directory=directory) from None


def _found_in(module: ModuleType, attribute: str) -> App:
    found: object = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if isinstance(found, App):
        return found
    kind = None if found is None else type(found).__name__
    apps = [name for name, value in vars(module).items() if isinstance(value, App)]
    raise AppNotFound(module.__name__, attribute, found=kind, apps=apps)
