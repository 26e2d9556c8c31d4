"""What a user can set, where each value came from, and what is wrong with it.

`declared` says once what settings exist: their types, defaults, limits and meaning. All else
follows from it: `loading` reads them from five levels (command line over argument over
environment over penstock.toml over default), `toml_file` knows the line of every key,
`reference` writes the page in the documentation. `kinds` and `urls` say what a value may
look like, `errors` says what is wrong with one.

Every value that is written anywhere is checked, even where a higher level overrides it: a
mistake in penstock.toml must not wait for the day when a variable is unset.
"""

from penstock.settings.declared import (
    SETTINGS,
    CleanupSettings,
    DatabaseSettings,
    EventSettings,
    MetricsSettings,
    PrivacySettings,
    Setting,
    Settings,
    WorkerSettings,
)
from penstock.settings.errors import (
    ConflictingSettings,
    InvalidSetting,
    SettingsError,
    UnknownSetting,
    UnreadableSettings,
)
from penstock.settings.loading import load_settings
from penstock.settings.urls import hide_password

__all__ = [
    "SETTINGS",
    "CleanupSettings",
    "ConflictingSettings",
    "DatabaseSettings",
    "EventSettings",
    "InvalidSetting",
    "MetricsSettings",
    "PrivacySettings",
    "Setting",
    "Settings",
    "SettingsError",
    "UnknownSetting",
    "UnreadableSettings",
    "WorkerSettings",
    "hide_password",
    "load_settings",
]
