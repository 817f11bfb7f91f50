"""Reading settings: one TOML file, then the environment.

A key `[extraction] engine` is overridden by the variable `GROUNDWATCH_EXTRACTION__ENGINE`; values there are
read as TOML, and as plain text when they are not.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from groundwatch import toml
from groundwatch.errors import SettingsError
from groundwatch.runtime.services.judges import check_judges
from groundwatch.runtime.settings.tree import Settings, check

ENVIRONMENT_PREFIX = "GROUNDWATCH_"
FILE_VARIABLE = "GROUNDWATCH_CONFIG"
"""Names the file of settings."""

TOKEN_VARIABLE = "GROUNDWATCH_TOKEN"
"""Says to a gateway who a command is: a credential, not a setting."""

_SERVICE_LINK = re.compile(
    r"[A-Z0-9_]*?(_SERVICE_HOST|_SERVICE_PORT(_\w+)?|_PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)"
)
"""What Kubernetes puts into the environment for a Service whose name begins with ours."""


def sets(variable: str) -> bool:
    """Whether a variable of the environment is meant to set something here."""
    if not variable.startswith(ENVIRONMENT_PREFIX) or variable in (FILE_VARIABLE, TOKEN_VARIABLE):
        return False
    return "__" in variable or not _SERVICE_LINK.fullmatch(variable)


def load(path: Path | None = None, environment: Mapping[str, str] | None = None) -> Settings:
    """Read the file at `path` (or the one that `GROUNDWATCH_CONFIG` names), then the environment.

    Raises `SettingsError` with the key that is wrong.
    """
    environment = os.environ if environment is None else environment
    source = path or (Path(named) if (named := environment.get(FILE_VARIABLE)) else None)
    values: dict[str, Any] = {}
    if source is not None:
        try:
            values = toml.read(source)
        except OSError as error:
            raise SettingsError(f"{source}: cannot be read: {error.strerror}") from error
        except toml.NotToml as error:
            raise SettingsError(f"{source}: is not TOML: {error}") from error
    texts: dict[str, tuple[list[str], str]] = {}
    for name, text in environment.items():
        if sets(name):
            keys = name.removeprefix(ENVIRONMENT_PREFIX).lower().split("__")
            texts[".".join(keys)] = (keys, text)
            put(values, name, keys, text)
    settings = convert(values, texts, source)
    check(settings)
    check_judges(settings)
    return settings


def convert(values: dict[str, Any], texts: dict[str, tuple[list[str], str]], source: Path | None) -> Settings:
    """Values as settings; of `texts`, the variables, what reads as a number is text where text is wanted.

    Raises `SettingsError` with the key that is wrong.
    """
    while True:
        try:
            return msgspec.convert(values, Settings)
        except msgspec.ValidationError as error:
            message, _, where = str(error).partition(" - at `$.")
            path, text = texts.pop(where.rstrip("`"), ([], ""))
            if not path or not message.startswith("Expected `str`"):
                raise SettingsError(_explain(error, source)) from error
            inner = values
            for part in path[:-1]:
                inner = inner[part]
            inner[path[-1]] = text


def put(values: dict[str, Any], name: str, path: list[str], text: str) -> None:
    """Set what the variable `name` says under the keys of `path`. Raises `SettingsError`."""
    try:
        value: Any = toml.parse(f"value = {text}")["value"]
    except toml.NotToml:
        value = text
    inner = values
    for part in path[:-1]:
        inner = inner.setdefault(part, {})
        if not isinstance(inner, dict):
            raise SettingsError(f"{name}: '{part}' is a value, not a section")
    inner[path[-1]] = value


def as_variables(settings: Settings, sections: Sequence[str]) -> dict[str, str]:
    """Variables that give a process these sections as they are here, whatever its file says."""
    return {
        f"{ENVIRONMENT_PREFIX}{name.upper()}": _toml(msgspec.to_builtins(getattr(settings, name)))
        for name in sections
    }


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        pairs = (f"{_toml(key)} = {_toml(one)}" for key, one in value.items() if one is not None)
        return f"{{ {', '.join(pairs)} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, str):
        # JSON's strings are TOML's, but for one sign.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _explain(error: msgspec.ValidationError, source: Path | None) -> str:
    message, _, where = str(error).partition(" - at `$")
    key = where.rstrip("`").lstrip(".")
    if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", message):
        key, message = f"{key}.{unknown[1]}".lstrip("."), "no such setting"
    origin = f"{source}: " if source else ""
    return f"{origin}setting '{key}': {message}"
