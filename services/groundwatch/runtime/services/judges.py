"""The settings that judge: which sections they are, others over them, and judges that an operator names.

A replay's settings are written down with its run, where others may write too. So what they reach, the
addresses that judges are asked at, the variables that hold their keys and the folders of their models, is
taken only where the process's own settings reach it as well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from groundwatch import toml
from groundwatch.addresses import shown_address, shown_variable, without_secrets
from groundwatch.errors import SettingsError, UsageError
from groundwatch.runtime.settings.tree import STAGES, Settings, check

JUDGING = (
    "extraction",
    "verification",
    "matching",
    "scoring",
    "visual",
    "triton",
    "faithscore",
    "retry",
    "cache",
)
"""Sections of the settings that judge; the others are the system's."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_STAGES = tuple(name for name in STAGES if name in JUDGING)


def judging_sections(settings: Settings) -> dict[str, Any]:
    """The sections that judge, as plain values."""
    return {name: msgspec.to_builtins(getattr(settings, name)) for name in JUDGING}


def recorded_sections(settings: Settings) -> dict[str, Any]:
    """The sections that judge as a run is written down with them: addresses without their secrets."""
    return {name: without_secrets(section, name) for name, section in judging_sections(settings).items()}


def with_file(settings: Settings, path: Path | None) -> Settings:
    """The same settings with the judging sections of the TOML file at `path` over them.

    Raises `SettingsError` naming the file and the key.
    """
    if path is None:
        return settings
    try:
        above = toml.read(path)
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}") from error
    except toml.NotToml as error:
        raise SettingsError(f"{path}: is not TOML: {error}") from error
    try:
        return _with_tables(settings, above, "")
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}") from error


def with_judge(settings: Settings, name: str) -> Settings:
    """The same settings with those of `[judges.NAME]` over them; an empty name means the judges in use.

    Raises `UsageError` when there are none of this name.
    """
    if not name:
        return settings
    tables = settings.judges.get(name)
    if tables is None:
        known = ", ".join(settings.judges) or "none"
        raise UsageError(f"no judge '{name[:64]}' is named in the settings; named are: {known}")
    return _with_tables(settings, tables, f"judges.{name}.")


def with_run(settings: Settings, values: Mapping[str, Any]) -> Settings:
    """The same settings with the judging sections that a run was written down with.

    Raises `SettingsError` where these reach further than `settings` and its named judges.
    """
    own = [settings, *(with_judge(settings, name) for name in settings.judges)]
    changed = _with_addresses(_with_sections(settings, values, ""), own)
    allowed = {reached for one in own for reached in _reach(one) | _triton(one)}
    if foreign := sorted(_reach(changed) - allowed):
        raise SettingsError(
            f"the run's judges use {_in_words(foreign[0])}, which is nowhere in these settings: name these "
            "judges there as [judges.NAME], or go on with groundwatch runs resume --with FILE (or --models)"
        )
    return changed


def check_judges(settings: Settings) -> None:
    """Raises `SettingsError` for the first named judge whose settings are wrong."""
    for name in settings.judges:
        if not _NAME.match(name):
            raise SettingsError(
                "setting 'judges': a judge's name has letters, digits, - and _, at most 64 of them"
            )
        with_judge(settings, name)


def _with_tables(settings: Settings, above: Mapping[str, Any], where: str) -> Settings:
    values = judging_sections(settings)
    for name, section in above.items():
        if name not in JUDGING:
            raise SettingsError(
                f"setting '{where}{name}': only the sections that judge can stand here: {', '.join(JUDGING)}"
            )
        if not isinstance(section, dict):
            raise SettingsError(f"setting '{where}{name}': is a value, not a section")
        _merge(values[name], section)
    return _with_sections(settings, values, where)


def _with_sections(settings: Settings, values: Mapping[str, Any], where: str) -> Settings:
    sections: dict[str, Any] = {}
    for name, section in values.items():
        if name not in JUDGING:
            raise SettingsError(f"setting '{where}{name}': is none of the sections that judge")
        try:
            sections[name] = msgspec.convert(section, type(getattr(settings, name)))
        except msgspec.ValidationError as error:
            message, _, inner = str(error).partition(" - at `$")
            raise SettingsError(f"setting '{where}{name}{inner.rstrip('`')}': {message}") from error
    changed = msgspec.structs.replace(settings, **sections)
    try:
        check(changed)
    except SettingsError as error:
        raise SettingsError(str(error).replace("setting '", f"setting '{where}", 1)) from error
    return changed


def _reach(settings: Settings) -> set[tuple[str, ...]]:
    """What these settings make a process ask, read or show its keys to."""
    found: set[tuple[str, ...]] = set()
    for stage in _STAGES:
        section = getattr(settings, stage)
        if section.llm is not None:
            found.add(("llm", section.llm.base_url, section.llm.api_key_env))
        if section.embedding_model:
            found.add(("embedding_model", section.embedding_model))
        if section.engine == "triton":
            found |= _triton(settings)
    return found


def _with_addresses(recorded: Settings, own: Sequence[Settings]) -> Settings:
    """Settings of a run with the secrets of their addresses again, from `own` settings of the same places."""
    known = {
        (shown_address(llm.base_url), shown_variable(llm.api_key_env)): llm
        for one in own
        for stage in _STAGES
        if (llm := getattr(one, stage).llm) is not None
    }
    changes: dict[str, Any] = {}
    for stage in _STAGES:
        section = getattr(recorded, stage)
        if section.llm is None:
            continue
        if own_llm := known.get((section.llm.base_url, section.llm.api_key_env)):
            llm = msgspec.structs.replace(
                section.llm, base_url=own_llm.base_url, api_key_env=own_llm.api_key_env
            )
            changes[stage] = msgspec.structs.replace(section, llm=llm)
    return msgspec.structs.replace(recorded, **changes)


def _triton(settings: Settings) -> set[tuple[str, ...]]:
    return {("triton", settings.triton.url, str(settings.triton.tls), settings.triton.tls_ca)}


def _in_words(reached: tuple[str, ...]) -> str:
    match reached:
        case ("llm", url, variable):
            return f"{shown_address(url)[:200]!r} with the key in {shown_variable(variable)!r}"
        case ("triton", url, *_):
            return f"Triton at {url[:200]!r}"
    return f"the model in {reached[-1][:200]!r}"


def _merge(below: dict[str, Any], above: Mapping[str, Any]) -> None:
    for key, value in above.items():
        inner = below.get(key)
        if isinstance(value, dict) and isinstance(inner, dict):
            _merge(inner, value)
        else:
            below[key] = value
