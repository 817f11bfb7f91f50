"""Reading settings: one TOML file, then the environment.

A key `[extraction] engine` is overridden by the variable `GROUNDWATCH_EXTRACTION__ENGINE`; values there are
read as TOML, and as plain text when they are not or text is wanted.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource

from groundwatch import toml
from groundwatch.errors import SettingsError
from groundwatch.runtime.settings.judges import merge, read_file, with_judge
from groundwatch.runtime.settings.problems import Problems
from groundwatch.runtime.settings.sections import Settings
from groundwatch.section import Key, dotted, explained

ENVIRONMENT_PREFIX = "GROUNDWATCH_"
FILE_VARIABLE = "GROUNDWATCH_CONFIG"
"""Names the file of settings."""

TOKEN_VARIABLE = "GROUNDWATCH_TOKEN"
"""Says to a gateway who a command is: a credential, not a setting."""

_SERVICE_LINK = re.compile(
    r"[A-Z0-9_]*?(_SERVICE_HOST|_SERVICE_PORT(_\w+)?|_PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)"
)
"""What Kubernetes puts into the environment for a Service whose name begins with ours."""


class _Variables(EnvSettingsSource):
    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        super().__init__(
            cast("type[BaseSettings]", Settings), env_prefix=ENVIRONMENT_PREFIX, env_nested_delimiter="__"
        )

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return {name.lower(): text for name, text in self._environment.items()}

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        return _decoded(value)

    def _coerce_env_val_strict(self, field: Any, value: Any) -> Any:
        if not isinstance(value, str) or (isinstance(field, FieldInfo) and value[:1] not in ("'", '"')):
            return value
        decoded = _decoded(value)
        return value if field is str and not isinstance(decoded, str) else decoded


def _decoded(text: str) -> Any:
    try:
        return toml.parse(f"value = {text}")["value"]
    except toml.NotToml:
        pass
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


@dataclass(frozen=True)
class Reading:
    """Settings as far as they are right, what is not, and where each value came from."""

    settings: Settings
    problems: Problems
    source: Path | None
    variables: Sequence[str]
    given: Mapping[str, tuple[Any, str]]
    """Every value that was set: by its key itself, and the file or variable that says so."""


def load(path: Path | None = None, environment: Mapping[str, str] | None = None) -> Settings:
    """Read the file at `path` (or the one that `GROUNDWATCH_CONFIG` names), then the environment.

    Raises `SettingsError` with every key that is wrong.
    """
    found = read(path, os.environ if environment is None else environment)
    if found.problems.found:
        raise SettingsError(*found.problems.found)
    return found.settings


def read(path: Path | None, environment: Mapping[str, str]) -> Reading:
    """As `load` does, to the end: what is wrong is noted and left out."""
    source = path or (Path(named) if (named := environment.get(FILE_VARIABLE)) else None)
    problems = Problems()
    values = _of_file(source, problems) if source else {}
    variables = {_key(name): name for name in sorted(environment) if _sets(name)}
    texts = _Variables({name: environment[name] for name in variables.values()})()
    for key in variables:
        _remove(values, key)
    given = {dotted(key): (value, str(source)) for key, value in _leaves(values)}
    for key, name in variables.items():
        try:
            given[dotted(key)] = (_at(texts, key), name)
        except (KeyError, TypeError):
            known = len(key) > 1 and key[0] in Settings.model_fields
            why = f"'{key[-2]}' is a value, not a section" if known else "no such setting"
            problems.add(dotted(key), why, origin=name)
    merge(values, texts)

    def origin(key: Key) -> str:
        named = (name for at, name in variables.items() if at[: len(key)] == key[: len(at)])
        return next(named, str(source or ""))

    settings = _mended(values, problems, origin)
    return Reading(settings, problems, source, list(variables.values()), given)


def _of_file(source: Path, problems: Problems) -> dict[str, Any]:
    try:
        return read_file(source)
    except SettingsError as error:
        problems.add_error(error)
        return {}


def _sets(variable: str) -> bool:
    """Whether a variable of the environment is meant to set something here."""
    if not variable.startswith(ENVIRONMENT_PREFIX) or variable in (FILE_VARIABLE, TOKEN_VARIABLE):
        return False
    return "__" in variable or not _SERVICE_LINK.fullmatch(variable)


def _key(variable: str) -> Key:
    return tuple(variable.removeprefix(ENVIRONMENT_PREFIX).lower().split("__"))


def _mended(values: dict[str, Any], problems: Problems, origin: Any) -> Settings:
    """Settings of what is right; what is not is taken out until the rest can be read."""
    while True:
        try:
            settings = Settings.model_validate(values)
            break
        except ValidationError as error:
            for key, why in explained(error):
                problems.add(dotted(key), why, origin=origin(key))
                _remove(values, key, or_above=True)
    judges = {}
    for name, tables in settings.judges.items():
        try:
            with_judge(settings, name)
            judges[name] = tables
        except SettingsError as error:
            problems.add_error(error)
    return settings.model_copy(update={"judges": judges})


def _leaves(values: Mapping[str, Any], above: Key = ()) -> Iterator[tuple[Key, Any]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*above, name))
        else:
            yield (*above, name), value


def _at(values: Any, key: Key) -> Any:
    for part in key:
        values = values[part]
    return values


def _remove(values: dict[str, Any], key: Key, *, or_above: bool = False) -> None:
    """Take out what stands at `key`; or what holds it, where that is a list or has it not."""
    for length in range(len(key), 0, -1 if or_above else -len(key)):
        try:
            inner = _at(values, key[: length - 1])
            if isinstance(inner, dict):
                del inner[key[length - 1]]
                return
        except (KeyError, IndexError, TypeError):
            continue


def as_variables(settings: Settings, sections: Sequence[str]) -> dict[str, str]:
    """Variables that give a process these sections as they are here, whatever its file says."""
    values = settings.model_dump(mode="json", include=set(sections))
    return {f"{ENVIRONMENT_PREFIX}{name.upper()}": json.dumps(value) for name, value in values.items()}
