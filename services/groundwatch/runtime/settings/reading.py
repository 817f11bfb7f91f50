"""Reading settings: one TOML file, then the environment.

A key `[extraction] engine` is overridden by the variable `GROUNDWATCH_EXTRACTION__ENGINE`; values there are
read as TOML, and as plain text when they are not or text is wanted.

Over the sections that judge there may be others: of a file, or of judges that an operator names.
"""

import difflib
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
from groundwatch.errors import SettingsError, UsageError
from groundwatch.protocols import registry
from groundwatch.runtime.settings import STAGES, Settings
from groundwatch.runtime.settings.judges import JUDGE, second_engines, second_protocols
from groundwatch.section import NO_SUCH, Key, dotted, explained

ENVIRONMENT_PREFIX = "GROUNDWATCH_"
FILE_VARIABLE = "GROUNDWATCH_CONFIG"
"""Names the file of settings."""

TOKEN_VARIABLE = "GROUNDWATCH_TOKEN"
"""Says to a gateway who a command is: a credential, not a setting."""

URL_VARIABLE = "GROUNDWATCH_URL"
"""Says to the client's callbacks where the gateway is."""

JUDGING = (
    "extraction",
    "verification",
    "matching",
    "scoring",
    "visual",
    "detector",
    "prompts",
    "triton",
    "protocols",
    "retry",
    "cache",
)
"""Sections of the settings that judge; the others are the system's."""

_JUDGE = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_STAGES = tuple(name for name in STAGES if name in JUDGING)

_SERVICE_LINK = re.compile(
    r"[A-Z0-9_]*?(_SERVICE_HOST|_SERVICE_PORT(_\w+)?|_PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)"
)
"""What Kubernetes puts into the environment for a Service whose name begins with ours."""

_LINE = re.compile(r"(?:.*: )?setting '([^']*)': (.*)", re.DOTALL)


class Problems:
    """Wrong settings: once for each key, and nothing that follows from a wrong key in it or above it."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.notes: list[str] = []
        self._keys: list[list[str]] = []

    def add(self, key: str, why: str, *, origin: str = "") -> None:
        """A wrong setting, and the file or variable that says so."""
        parts = re.split(r"[.\[]", key)
        if any(parts[: len(one)] == one[: len(parts)] for one in self._keys):
            return
        self._keys.append(parts)
        self.found.append(f"{origin}: setting '{key}': {why}" if origin else f"setting '{key}': {why}")

    def add_error(self, error: SettingsError) -> None:
        """What somebody who reads a part of the settings raised."""
        for line in error.problems:
            if named := _LINE.fullmatch(line):
                self.add(named[1], named[2])
            else:
                self.found.append(line)

    def note(self, key: str, why: str) -> None:
        """A setting that is allowed and may not be meant."""
        self.notes.append(f"setting '{key}': {why}")


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
    """Read the file, then the environment. Raises `SettingsError` with every key that is wrong."""
    found = read(path, os.environ if environment is None else environment)
    if found.problems.found:
        raise SettingsError(*found.problems.found)
    return found.settings


def read(path: Path | None, environment: Mapping[str, str]) -> Reading:
    """As `load` does, to the end: what is wrong is noted and left out."""
    source = path or (Path(named) if (named := environment.get(FILE_VARIABLE)) else None)
    problems = Problems()
    values: dict[str, Any] = {}
    try:
        values = read_file(source) if source else {}
    except SettingsError as error:
        problems.add_error(error)
    variables: dict[Key, str] = {
        tuple(name.removeprefix(ENVIRONMENT_PREFIX).lower().split("__")): name
        for name in sorted(environment)
        if _sets(name)
    }
    texts = _Variables({name: environment[name] for name in variables.values()})()
    for key in variables:
        _remove(values, key)
    given = {dotted(key): (value, str(source)) for key, value in _leaves(values)}
    for key, name in variables.items():
        try:
            given[dotted(key)] = (_at(texts, key), name)
        except (KeyError, TypeError):
            known = len(key) > 1 and key[0] in Settings.model_fields
            why = f"'{key[-2]}' is a value, not a section" if known else f"{NO_SUCH}{_meant(key)}"
            problems.add(dotted(key), why, origin=name)
    merge(values, texts)

    def origin(key: Key) -> str:
        named = (name for at, name in variables.items() if at[: len(key)] == key[: len(at)])
        return next(named, str(source or ""))

    settings = _mended(values, problems, origin)
    return Reading(settings, problems, source, list(variables.values()), given)


def _sets(variable: str) -> bool:
    """Whether a variable of the environment is meant to set something here."""
    if not variable.startswith(ENVIRONMENT_PREFIX) or variable in (
        FILE_VARIABLE,
        TOKEN_VARIABLE,
        URL_VARIABLE,
    ):
        return False
    return "__" in variable or not _SERVICE_LINK.fullmatch(variable)


def _mended(values: dict[str, Any], problems: Problems, origin: Any) -> Settings:
    """Settings of what is right; what is not is taken out until the rest can be read."""
    while True:
        try:
            settings = Settings.model_validate(values)
            break
        except ValidationError as error:
            for key, why in explained(error):
                problems.add(dotted(key), why + (_meant(key) if why == NO_SUCH else ""), origin=origin(key))
                _remove(values, key, or_above=True)
    judges = {}
    for name, tables in settings.judges.items():
        try:
            with_judge(settings, name)
            judges[name] = tables
        except SettingsError as error:
            problems.add_error(error)
    name = settings.second_opinion.judge
    if name and (name in judges or name not in settings.judges):
        try:
            with_second_judge(settings)
        except SettingsError as error:
            problems.add_error(error)
    return settings.model_copy(update={"judges": judges})


def _meant(key: Key, where: str = "") -> str:
    """What is meant by a key below `where` that there is not: the only one of this name in its section, since
    settings have moved before, or the one beside it that is written nearly so; empty without."""
    beside: Any = Settings().model_dump()
    named = [leaf for leaf, _ in _leaves(beside) if (leaf[0], leaf[-1]) == (key[0], key[-1])]
    if len(named) == 1:
        return f"; {where}{dotted(named[0])} is one"
    for depth, part in enumerate(key):
        if not isinstance(beside, dict):
            break
        if part not in beside:
            near = difflib.get_close_matches(str(part), beside, n=1, cutoff=0.75)
            meant = (*key[:depth], *near, *key[depth + 1 :])
            return f"; did you mean {where}{dotted(meant)}?" if near else ""
        beside = beside[part]
    return ""


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


def read_file(path: Path) -> dict[str, Any]:
    """The tables of a TOML file. Raises `SettingsError`."""
    try:
        return toml.read(path)
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}") from error
    except toml.NotToml as error:
        raise SettingsError(f"{path}: is not TOML: {error}") from error


def with_judge(settings: Settings, name: str) -> Settings:
    """The settings with `[judges.NAME]` over them, where there is a name. Raises `UsageError` for another."""
    if not name:
        return settings
    tables = settings.judges.get(name)
    if tables is None:
        known = ", ".join(settings.judges) or "none"
        raise UsageError(f"no judge '{name[:64]}' is named in the settings; named are: {known}")
    if not _JUDGE.match(name):
        raise SettingsError(
            "setting 'judges': a judge's name has letters, digits, - and _, at most 64 of them"
        )
    return _with_tables(settings, tables, f"judges.{name}.")


def with_endpoint(settings: Settings, url: str, model: str) -> Settings:
    """The settings with one model of an OpenAI-compatible endpoint that reads answers, looks, and matches.

    It looks by P(yes) of each fact where a protocol takes that, and else as an LLM.
    """
    llm = {"base_url": url, "model": model}
    asked = {"engine": "llm", "llm": llm}
    protocols = {
        name: asked
        for name in registry.names()
        if registry.get(name).why_not("visual") and not registry.get(name).why_not("llm")
    }
    looking = {"engine": "visual", "llm": llm, "protocols": protocols}
    return _with_tables(settings, {"extraction": asked, "matching": asked, "verification": looking}, "")


def with_second_judge(settings: Settings) -> tuple[Settings, tuple[str, ...]]:
    """The settings with the judge of `[second_opinion]` over them, and the protocols that it is asked about.

    Raises `SettingsError` where there is no such judge, or none that can give another opinion.
    """
    name = settings.second_opinion.judge
    if name in settings.judges:
        second = with_judge(settings, name)
        if second.prompts != settings.prompts:
            why = f"[judges.{name}] has prompts of its own, and a process has one set of prompts"
            raise SettingsError(f"setting '{JUDGE}': {why}")
    elif name in second_engines() or ":" in name:
        try:
            second = _with_tables(settings, {"verification": {"engine": name}}, "")
        except SettingsError as error:
            told = (_LINE.fullmatch(line) for line in error.problems)
            why = "; ".join(f"{one[1]}: {one[2]}" for one in told if one) or str(error)
            raise SettingsError(f"setting '{JUDGE}': {why}") from error
    else:
        known = ", ".join(settings.judges) or "none"
        engines = ", ".join(second_engines())
        why = f"'{name[:64]}' is none of [judges] (named are: {known}), and no engine ({engines})"
        raise SettingsError(f"setting '{JUDGE}': {why}")
    return second, second_protocols(settings, second)


def _with_tables(settings: Settings, above: Mapping[str, Any], where: str) -> Settings:
    for stage in _STAGES:
        table = above.get(stage)
        if isinstance(table, dict) and isinstance(engine := table.get("engine"), str):
            cascade = table.get("cascade")
            steps = cascade if isinstance(cascade, list) else ()
            names = [str(step.get("engine")) for step in steps if isinstance(step, dict)]
            section = getattr(settings, stage).with_engine(engine, names)
            settings = settings.model_copy(update={stage: section})
    values = settings.model_dump(mode="json", include=set(JUDGING))
    merge(values, above)
    if foreign := sorted(set(values) - {*JUDGING}):
        near = difflib.get_close_matches(foreign[0], JUDGING, n=1, cutoff=0.75)
        meant = f"did you mean {where}{near[0]}?" if near else f"those are {', '.join(JUDGING)}"
        raise SettingsError(f"setting '{where}{foreign[0]}': is none of the sections that judge; {meant}")
    try:
        return Settings.model_validate({**dict(settings), **values})
    except ValidationError as error:
        raise SettingsError(
            *(
                f"setting '{where}{dotted(key)}': {why}{_meant(key, where) if why == NO_SUCH else ''}"
                for key, why in explained(error)
            )
        ) from error


def merge(below: dict[str, Any], above: Mapping[str, Any]) -> None:
    """Put values over others, table by table."""
    for key, value in above.items():
        inner = below.get(key)
        if isinstance(value, dict) and isinstance(inner, dict):
            merge(inner, value)
        else:
            below[key] = value
