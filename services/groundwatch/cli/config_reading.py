"""Reading settings to the end: what is wrong is noted and taken out, so that the next wrong key shows."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from groundwatch import toml
from groundwatch.errors import SettingsError
from groundwatch.models.openai.settings import ChatSettings
from groundwatch.runtime.services.judges import check_judges
from groundwatch.runtime.settings import reading
from groundwatch.runtime.settings.tree import Settings, check

_KEY = re.compile(r"setting '([^']*)'")
_PART = re.compile(r"([^.\[]+)((?:\[\d+\])*)")
LIMIT = 500
"""More wrong keys than anybody has."""


class Problems:
    """What is wrong, one line each, and what is only worth knowing."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.notes: list[str] = []
        self._keys: set[str] = set()

    def add(self, key: str, why: str, *, origin: str = "") -> None:
        """A wrong setting; once for each key, and not for what follows from a wrong key in it."""
        if any(key == one or key.startswith((f"{one}.", f"{one}[")) for one in self._keys):
            return
        if any(one.startswith(f"{key}.") for one in self._keys):
            return
        self._keys.add(key)
        self.found.append(f"{origin}: setting '{key}': {why}" if origin else f"setting '{key}': {why}")

    def add_error(self, error: SettingsError) -> None:
        """What reading a part of the settings raised."""
        named = _KEY.search(str(error))
        key = named[1] if named else ""
        self.add(key, str(error).partition(f"setting '{key}': ")[2] or str(error))

    def note(self, key: str, why: str) -> None:
        """A setting that is allowed and may not be meant."""
        self.notes.append(f"setting '{key}': {why}")


class Read:
    """Settings as far as they are right, with where each value came from."""

    def __init__(self, settings: Settings, source: Path | None, values: dict[str, Any], variables: list[str]):
        self.settings = settings
        self.source = source
        self.variables = variables
        self._values = values
        self._of_variables = {key_of(name): name for name in variables}

    def given(self) -> Iterator[tuple[str, Any, str]]:
        """Every value that was set: its key, itself, and the file or variable that says so."""
        yield from self._below("", self._values)

    def _below(self, above: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Any, str]]:
        for name, value in values.items():
            key = f"{above}.{name}" if above else name
            if isinstance(value, dict) and key not in self._of_variables:
                yield from self._below(key, value)
            else:
                yield key, value, self._of_variables.get(key) or str(self.source)


def key_of(variable: str) -> str:
    """The setting that a variable sets."""
    return variable.removeprefix(reading.ENVIRONMENT_PREFIX).lower().replace("__", ".")


def read(path: Path | None, environment: Mapping[str, str], problems: Problems) -> Read:
    """The settings of a file and the environment without what `problems` is told of."""
    source = path or (Path(named) if (named := environment.get(reading.FILE_VARIABLE)) else None)
    values = _of_file(source, problems)
    texts: dict[str, tuple[list[str], str]] = {}
    variables = []
    for name, text in sorted(environment.items()):
        if not reading.sets(name):
            continue
        try:
            reading.put(values, name, key_of(name).split("."), text)
        except SettingsError as error:
            problems.add(key_of(name), str(error).partition(": ")[2], origin=name)
            continue
        variables.append(name)
        texts[key_of(name)] = (key_of(name).split("."), text)
    given = copy.deepcopy(values)
    _check_models(values, problems)
    settings = _mended(values, texts, problems, source)
    return Read(settings, source, given, variables)


def _of_file(source: Path | None, problems: Problems) -> dict[str, Any]:
    if source is None:
        return {}
    try:
        return toml.read(source)
    except OSError as error:
        problems.found.append(f"{source}: cannot be read: {error.strerror}")
    except toml.NotToml as error:
        problems.found.append(f"{source}: is not TOML: {error}")
    return {}


def _check_models(values: dict[str, Any], problems: Problems) -> None:
    """Models under test have names of their own, which the decoder's messages leave out."""
    captioning = values.get("captioning")
    models = captioning.get("models") if isinstance(captioning, dict) else None
    if not isinstance(models, dict):
        return
    for name, model in list(models.items()):
        try:
            msgspec.convert(model, ChatSettings)
        except msgspec.ValidationError as error:
            message, _, where = str(error).partition(" - at `$")
            inner = where.rstrip("`")
            problems.add(f"captioning.models.{name}{inner}", message)
            del models[name]


def _mended(
    values: dict[str, Any],
    texts: dict[str, tuple[list[str], str]],
    problems: Problems,
    source: Path | None,
) -> Settings:
    """Take out what is wrong, one key after another, until the rest can be read."""
    for _ in range(LIMIT):
        try:
            settings = reading.convert(copy.deepcopy(values), dict(texts), None)
            check(settings)
            check_judges(settings)
            return settings
        except SettingsError as error:
            named = _KEY.search(str(error))
            key = named[1] if named else ""
            why = str(error).partition(f"setting '{key}': ")[2] or str(error)
            problems.add(key, why, origin=_origin(key, texts, source))
            if not _take_out(values, texts, key):
                break
    return Settings()


def _origin(key: str, texts: Mapping[str, tuple[list[str], str]], source: Path | None) -> str:
    if key in texts:
        return f"{reading.ENVIRONMENT_PREFIX}{key.upper().replace('.', '__')}"
    return str(source) if source else ""


def _take_out(values: dict[str, Any], texts: dict[str, tuple[list[str], str]], key: str) -> bool:
    """Remove a key, or what holds it where it is not there itself; False where nothing is left to remove."""
    parts = [(name, [int(one) for one in re.findall(r"\d+", at)]) for name, at in _PART.findall(key)]
    for length in range(len(parts), 0, -1):
        if _remove(values, parts[:length]):
            gone = ".".join(name for name, _ in parts[:length])
            for one in [one for one in texts if one == gone or one.startswith(f"{gone}.")]:
                del texts[one]
            return True
    return False


def _remove(values: dict[str, Any], parts: list[tuple[str, list[int]]]) -> bool:
    inner: Any = values
    for name, _ in parts[:-1]:
        inner = inner.get(name) if isinstance(inner, dict) else None
    name, at = parts[-1]
    if not isinstance(inner, dict) or name not in inner:
        return False
    held = inner[name]
    if at and isinstance(held, list) and at[0] < len(held) and held[at[0]] != {"rate": 1.0}:
        # The only lists of tables are sampling rules: one that is right keeps the numbers of the others.
        held[at[0]] = {"rate": 1.0}
        return True
    del inner[name]
    return True
