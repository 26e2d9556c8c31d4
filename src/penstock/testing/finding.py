"""From what an ini-file says to the App."""

import importlib
import sys
from pathlib import Path

from penstock.app import App
from penstock.errors import PenstockError


class NoAppNamed(PenstockError):
    """The ini-file does not lead to an App."""

    def __init__(self, given: str, *, because: str) -> None:
        self.given = given
        super().__init__(
            f"The fixture `penstock_app` found no App: {because}. Write "
            '`penstock_app = "package.module:app"` under [tool.pytest.ini_options] in '
            "pyproject.toml, or without the quotes under [pytest] in pytest.ini."
        )


def named_app(given: str, *, directory: Path) -> App:
    """Import the App that "module:name" stands for, with `directory` on the path.

    Raises:
        NoAppNamed: there is none. What the module itself raises comes out as it is.
    """
    module_name, colon, attribute = given.partition(":")
    if not given:
        raise NoAppNamed(given, because="the setting `penstock_app` is empty")
    if not (module_name and colon and attribute):
        raise NoAppNamed(given, because=f"{given!r} is not a module, a colon and a name")
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        because = f"there is no module {error.name!r} in {directory} or on Python's path"
        raise NoAppNamed(given, because=because) from None
    found = getattr(module, attribute, None)
    if not isinstance(found, App):
        raise NoAppNamed(given, because=f"{module_name!r} has no App named {attribute!r}")
    return found
