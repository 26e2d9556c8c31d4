"""Reading the settings: five levels, one precedence.

Command line over argument over environment over penstock.toml over default.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from penstock.model.durations import format_duration
from penstock.settings.declared import PREFIX, SECTIONS, SETTINGS, Setting, Settings
from penstock.settings.errors import ConflictingSettings, InvalidSetting, UnreadableSettings
from penstock.settings.kinds import Unfit, describe
from penstock.settings.nearest import (
    linked_variable,
    unknown_key,
    unknown_section,
    unknown_variable,
)
from penstock.settings.toml_file import TomlFile, read_toml

DEFAULT_FILE = Path("penstock.toml")

# The one variable that is no setting: it says where the file is.
FILE_VARIABLE = f"{PREFIX}CONFIG"

# Ours too, but for the tests of Penstock and of programs that use it.
TEST_PREFIX = f"{PREFIX}TEST_"

# One late heartbeat must not cost a live worker its tasks.
HEARTBEATS_PER_LEASE = 2


def load_settings(
    *,
    path: Path | None = None,
    environ: Mapping[str, str] | None = None,
    arguments: Mapping[str, object] | None = None,
    command_line: Mapping[str, object] | None = None,
) -> Settings:
    """Read all settings from where users write them.

    `path` names the file and must exist; without it, PENSTOCK_CONFIG names it and must exist;
    without that, ./penstock.toml is read if it is there. `environ` is the process's environment
    unless given. The keys of `arguments` and `command_line` are dotted ("worker.slots"), and
    None as a value means "not given". Texts from the command line are read like those of the
    environment; arguments have Python's types.

    Every value written at any level is checked, even one that a higher level overrides.

    Raises:
        SettingsError: a key, a variable or a value cannot be used; it says where and why.
    """
    environ = os.environ if environ is None else environ
    values: dict[str, dict[str, object]] = {section: {} for section in SECTIONS}
    sources: dict[str, str] = {}
    for given in chain(
        _from_file(_find_file(path, environ)),
        _from_environment(environ),
        _from_mapping(arguments or {}, source="argument", as_text=False),
        _from_mapping(command_line or {}, source="command line", as_text=True),
    ):
        values[given.setting.section][given.setting.key] = given.read()
        sources[given.setting.name] = given.source
    settings = Settings(
        **{section: SECTIONS[section](**values[section]) for section in SECTIONS},
        sources=sources,
    )
    _check_lease(settings)
    return settings


@dataclass(frozen=True, slots=True)
class _Given:
    """A value that somebody wrote for a setting, not yet checked."""

    setting: Setting
    value: object
    source: str
    example: str
    as_text: bool

    def read(self) -> object:
        kind = self.setting.kind
        try:
            if self.as_text and isinstance(self.value, str):
                return kind.read_text(self.value)
            return kind.read(self.value)
        except Unfit as unfit:
            raise InvalidSetting(
                self.setting.name, source=self.source, why=unfit.why, example=self.example
            ) from None


def _find_file(path: Path | None, environ: Mapping[str, str]) -> TomlFile | None:
    named_by = None
    if path is None and FILE_VARIABLE in environ:
        path, named_by = Path(environ[FILE_VARIABLE]), FILE_VARIABLE
        if not environ[FILE_VARIABLE]:
            raise UnreadableSettings(
                source=FILE_VARIABLE,
                why="the variable is empty",
                next_step="Let it name a settings file, or unset it.",
            )
    if path is None:
        return read_toml(DEFAULT_FILE)
    file = read_toml(path)
    if file is None:
        raise UnreadableSettings(
            source=str(path),
            why="there is no such file" + (f", and {named_by} names it" if named_by else ""),
            next_step="Create it, or name another one; every setting in it has a default.",
        )
    return file


def _from_file(file: TomlFile | None) -> Iterator[_Given]:
    if file is None:
        return
    for section, content in file.content.items():
        place = file.place_of(section)
        if section not in SECTIONS:
            if isinstance(content, dict):
                raise unknown_section(section, source=place, valid=SECTIONS)
            raise unknown_key(section, source=place, valid=SETTINGS)
        if not isinstance(content, dict):
            raise InvalidSetting(
                section,
                source=place,
                why=f"is a section, not {describe(content)}",
                example=f"[{section}] on a line of its own, and its keys below it",
            )
        for key, value in content.items():
            name, place = f"{section}.{key}", file.place_of(section, key)
            setting = SETTINGS.get(name)
            if setting is None:
                raise unknown_key(name, source=place, valid=SETTINGS)
            example = f"{key} = {setting.kind.to_toml(setting.example)}"
            yield _Given(setting, value, place, example, as_text=False)


def _from_environment(environ: Mapping[str, str]) -> Iterator[_Given]:
    by_variable = {setting.variable: setting for setting in SETTINGS.values()}
    for variable in sorted(environ):
        if not variable.startswith(PREFIX) or variable.startswith(TEST_PREFIX):
            continue
        if variable == FILE_VARIABLE:
            continue
        setting = by_variable.get(variable)
        # What comes with a Service named penstock-metrics has the name of a setting.
        is_ours = setting is not None and not environ[variable].startswith("tcp://")
        if not is_ours and _is_service_link(variable, environ):
            raise linked_variable(variable, is_setting=setting is not None)
        if setting is None:
            valid = {"config": FILE_VARIABLE} | {s.name: s.variable for s in SETTINGS.values()}
            raise unknown_variable(variable, prefix=PREFIX, valid=valid)
        example = f"{variable}={setting.kind.to_text(setting.example)}"
        yield _Given(setting, environ[variable], variable, example, as_text=True)


def _is_service_link(variable: str, environ: Mapping[str, str]) -> bool:
    """Whether it is one of those that come with the address of a Service."""
    services = [name.removesuffix("HOST") for name in environ if name.endswith("_SERVICE_HOST")]
    ports = [service.removesuffix("SERVICE_") + "PORT" for service in services]
    return variable.startswith((*services, *ports))


def _from_mapping(given: Mapping[str, object], *, source: str, as_text: bool) -> Iterator[_Given]:
    for name, value in given.items():
        setting = SETTINGS.get(name)
        if setting is None:
            raise unknown_key(name, source=source, valid=SETTINGS)
        if value is not None:
            example = setting.kind.to_toml(setting.example)
            yield _Given(setting, value, source, example, as_text=as_text)


def _check_lease(settings: Settings) -> None:
    heartbeat, lease = settings.worker.heartbeat, settings.worker.lease
    needed = HEARTBEATS_PER_LEASE * heartbeat
    if lease >= needed:
        return
    sources = {name: settings.source_of(name) for name in ("worker.lease", "worker.heartbeat")}
    # Point at what the user wrote: a default is nobody's mistake.
    key, other = "worker.lease", "worker.heartbeat"
    if sources[key] == "default":
        key, other = other, key
    shown = {"worker.lease": format_duration(lease), "worker.heartbeat": format_duration(heartbeat)}
    raise ConflictingSettings(
        key,
        other,
        source=sources[key],
        why=(
            f"is {shown[key]} and {other} is {shown[other]} ({sources[other]}), but a lease must "
            f"last at least {HEARTBEATS_PER_LEASE} heartbeats, or one late heartbeat costs a live "
            "worker its tasks"
        ),
        next_step=(
            f"Set worker.lease to {format_duration(needed)} or more, or lower worker.heartbeat."
        ),
    )
