"""From "orders:app" to the App, with a directory on the path."""

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path, PurePath
from types import ModuleType

from penstock.app import App
from penstock.errors import PenstockError, is_missing


class TargetError(PenstockError):
    """What was named leads to no App; `why` says it without what to do about it."""

    def __init__(self, why: str, *, next_step: str) -> None:
        self.why = why
        super().__init__(f"{why}. {next_step}")


class InvalidTarget(TargetError):
    """A target that is not written as "module:attribute"."""

    def __init__(self, target: str) -> None:
        self.target = target
        super().__init__(
            f"{target!r} does not say where the App is",
            next_step="Write the module, a colon and the name in it, as in `orders:app`.",
        )


class ModuleNotFound(TargetError):
    """A module that Python cannot find."""

    def __init__(self, module: str, *, directory: Path) -> None:
        self.module = module
        self.directory = directory
        path = PurePath(module.removesuffix(".py"))
        if path.is_absolute() or ".." in path.parts:
            next_step = f"Change to {path.parent} and write `{path.name}`."
        elif os.sep in module:
            named = ".".join(path.parts)
            next_step = f"A module is written with dots instead, from here: `{named}`."
        elif module.endswith(".py"):
            next_step = f"Leave out the ending: `{path}`."
        else:
            next_step = (
                "Change to the directory that holds it, or install the package that it belongs to."
            )
        super().__init__(
            f"There is no module {module!r} in {directory} or on Python's path", next_step=next_step
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
        super().__init__(f"Module {module!r} {problem}", next_step=next_step)


def load_app(target: str, *, modules: Sequence[str] = (), directory: Path | None = None) -> App:
    """Import the App that `target` names, and the further modules with tasks of its.

    Registries of these modules are taken in, as `App(include=[…])` would do it. The `directory`,
    or the current one, is put on the path.

    Raises:
        TargetError: there is no such module, or no App of that name in it. What a module itself
            raises comes out as it is.
    """
    module_name, colon, attribute = target.partition(":")
    if not (module_name and colon and attribute):
        raise InvalidTarget(target)
    directory = directory or Path.cwd()
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))
    app = _found_in(_imported(module_name, directory), attribute)
    for name in modules:
        _imported(name, directory)
        app.include(name)
    app.import_included()
    return app


def _imported(name: str, directory: Path) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # A module that it imports may be missing as well; that is a mistake of another kind.
        if not is_missing(name, error):
            raise
        raise ModuleNotFound(error.name or name, directory=directory) from None
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
