"""From what an ini-file says to the App."""

from pathlib import Path

from penstock.app import App
from penstock.errors import PenstockError
from penstock.targets import TargetError, load_app


class NoAppNamed(PenstockError):
    """The ini-file does not lead to an App."""

    def __init__(self, given: str, *, because: str) -> None:
        self.given = given
        super().__init__(
            f"The fixture `penstock_app` found no App. {because}. Write "
            '`penstock_app = "package.module:app"` under [tool.pytest.ini_options] in '
            "pyproject.toml, or without the quotes under [pytest] in pytest.ini."
        )


def named_app(given: str, *, directory: Path) -> App:
    """Import the App that "module:name" stands for, with `directory` on the path.

    Raises:
        NoAppNamed: there is none. What the module itself raises comes out as it is.
    """
    if not given:
        raise NoAppNamed(given, because="The setting `penstock_app` is empty")
    try:
        return load_app(given, directory=directory)
    except TargetError as error:
        raise NoAppNamed(given, because=error.why) from None
