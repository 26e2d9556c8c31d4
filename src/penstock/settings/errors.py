"""What can be wrong with settings.

SettingsError
├── UnknownSetting        a key, section or variable that does not exist
├── InvalidSetting        a value that its setting cannot have
├── ConflictingSettings   two values that cannot go together
└── UnreadableSettings    a file that is missing, cannot be read or is not TOML

Each message begins with the source, in the form that editors and terminals turn into a link.
"""

from penstock.errors import PenstockError


class SettingsError(PenstockError):
    """The settings cannot be used as they are written.

    `key` is the dotted name of the setting or the name of the section, `source` the place
    ("penstock.toml:12", "PENSTOCK_WORKER_SLOTS", "argument", "command line"), `nearest` the
    valid name that the user probably meant. Each is None where there is none.
    """

    def __init__(
        self, sentence: str, *, key: str | None, source: str | None, nearest: str | None = None
    ) -> None:
        self.key = key
        self.source = source
        self.nearest = nearest
        super().__init__(f"{source}: {sentence}" if source else sentence)


class UnknownSetting(SettingsError):
    """A key, a section or an environment variable that does not exist."""

    def __init__(
        self, what: str, *, key: str, source: str | None, nearest: str | None, choices: str
    ) -> None:
        next_step = f"Did you mean {nearest!r}?" if nearest else choices
        super().__init__(
            f"there is no {what}. {next_step}", key=key, source=source, nearest=nearest
        )


class InvalidSetting(SettingsError):
    """A value that its setting cannot have."""

    def __init__(self, key: str, *, source: str, why: str, example: str) -> None:
        self.why = why
        super().__init__(f"{key} {why}. For example: {example}", key=key, source=source)


class ConflictingSettings(SettingsError):
    """Two values that are fine alone and wrong together."""

    def __init__(self, key: str, other: str, *, source: str, why: str, next_step: str) -> None:
        self.other = other
        super().__init__(f"{key} {why}. {next_step}", key=key, source=source)


class UnreadableSettings(SettingsError):
    """A settings file that is missing, cannot be read or is not TOML."""

    def __init__(self, *, source: str, why: str, next_step: str) -> None:
        self.why = why
        super().__init__(f"{why}. {next_step}", key=None, source=source)
