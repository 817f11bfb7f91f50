"""The settings that judge: which sections they are, others over them, and judges that an operator names.

A replay's settings are written down with its run, where others may write too. So what they reach, the
addresses that judges are asked at, the variables that hold their keys and the folders of their models, is
taken only where the process's own settings reach it as well.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from groundwatch import toml
from groundwatch.addresses import shown_address, shown_variable, without_secrets
from groundwatch.errors import SettingsError, UsageError
from groundwatch.runtime.settings.sections import STAGES, Settings
from groundwatch.section import dotted, explained

JUDGING = (
    "extraction",
    "verification",
    "matching",
    "scoring",
    "visual",
    "triton",
    "protocols",
    "retry",
    "cache",
)
"""Sections of the settings that judge; the others are the system's."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_STAGES = tuple(name for name in STAGES if name in JUDGING)


def judging_sections(settings: Settings) -> dict[str, Any]:
    """The sections that judge, as plain values."""
    return settings.model_dump(mode="json", include=set(JUDGING))


def recorded_sections(settings: Settings) -> dict[str, Any]:
    """The sections that judge as a run is written down with them: addresses without their secrets."""
    return {name: without_secrets(section, name) for name, section in judging_sections(settings).items()}


def read_file(path: Path) -> dict[str, Any]:
    """The tables of a TOML file. Raises `SettingsError`."""
    try:
        return toml.read(path)
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}") from error
    except toml.NotToml as error:
        raise SettingsError(f"{path}: is not TOML: {error}") from error


def with_file(settings: Settings, path: Path | None) -> Settings:
    """The same settings with the judging sections of the TOML file at `path` over them.

    Raises `SettingsError` naming the file and the keys.
    """
    if path is None:
        return settings
    above = read_file(path)
    try:
        return _with_tables(settings, above, "")
    except SettingsError as error:
        raise SettingsError(*(f"{path}: {problem}" for problem in error.problems)) from error


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
    if not _NAME.match(name):
        raise SettingsError(
            "setting 'judges': a judge's name has letters, digits, - and _, at most 64 of them"
        )
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
            "judges there as [judges.NAME], or name them where it goes on (groundwatch replay resume)"
        )
    return changed


def _with_tables(settings: Settings, above: Mapping[str, Any], where: str) -> Settings:
    values = judging_sections(settings)
    merge(values, above)
    return _with_sections(settings, values, where)


def _with_sections(settings: Settings, values: Mapping[str, Any], where: str) -> Settings:
    if foreign := sorted(set(values) - {*JUDGING}):
        raise SettingsError(
            f"setting '{where}{foreign[0]}': is none of the sections that judge: {', '.join(JUDGING)}"
        )
    try:
        return Settings.model_validate({**dict(settings), **values})
    except ValidationError as error:
        raise SettingsError(
            *(f"setting '{where}{dotted(key)}': {why}" for key, why in explained(error))
        ) from error


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
            llm = section.llm.model_copy(
                update={"base_url": own_llm.base_url, "api_key_env": own_llm.api_key_env}
            )
            changes[stage] = section.model_copy(update={"llm": llm})
    return recorded.model_copy(update=changes)


def _triton(settings: Settings) -> set[tuple[str, ...]]:
    return {("triton", settings.triton.url, str(settings.triton.tls), settings.triton.tls_ca)}


def _in_words(reached: tuple[str, ...]) -> str:
    match reached:
        case ("llm", url, variable):
            return f"{shown_address(url)[:200]!r} with the key in {shown_variable(variable)!r}"
        case ("triton", url, *_):
            return f"Triton at {url[:200]!r}"
    return f"the model in {reached[-1][:200]!r}"


def merge(below: dict[str, Any], above: Mapping[str, Any]) -> None:
    """Put values over others, table by table."""
    for key, value in above.items():
        inner = below.get(key)
        if isinstance(value, dict) and isinstance(inner, dict):
            merge(inner, value)
        else:
            below[key] = value
