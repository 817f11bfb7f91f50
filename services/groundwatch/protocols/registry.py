"""Where a protocol is found by name: in the packages beside this file, and in plug-ins.

A plug-in is an installed package with an entry point `groundwatch.protocols` that names a `Method`. One of
`groundwatch.benchmarks`, under the name of a method, names its `Benchmark`.
"""

import functools
import pkgutil
import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pydantic import create_model

from groundwatch import protocols
from groundwatch.errors import SettingsError, UsageError
from groundwatch.events import ResponseRecorded
from groundwatch.protocols import prompts
from groundwatch.protocols.base import EvaluationProtocol, load
from groundwatch.protocols.method import Benchmark, Method
from groundwatch.section import Section

GROUP = "groundwatch.protocols"

BENCHMARKS_GROUP = "groundwatch.benchmarks"

BENCHMARKS = "groundwatch_benchmarks"
"""The package of the published benchmarks, which also measures the monitor itself."""

NOT_INSTALLED = "{what} needs the package groundwatch-benchmarks: pip install groundwatch-benchmarks"

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}\Z")
_ROOMS = ("captioning", "verification")
"""Services with prompts that belong to no protocol."""

_configured: dict[str, EvaluationProtocol] = {}


@functools.cache
def methods() -> dict[str, Method]:
    """All of them by name, in alphabetical order; raises `UsageError` for a plug-in that is wrong."""
    found = _built_in()
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        method = _plugged(point)
        taken = {name for one in found.values() for name in _names_of(one)}
        if clash := taken & _names_of(method):
            raise UsageError(f"{_shown(point)}: the name '{min(clash)}' is taken")
        found[method.name] = method
    return dict(sorted(found.items()))


def method(name: str) -> Method:
    """The method of this name, or of the protocol of this name."""
    return _named(name, methods(), "protocol")


@functools.cache
def benchmarks() -> dict[str, Benchmark]:
    """By the method's name: those that methods carry, and those with an entry point of their own. Raises
    `UsageError` for one of these that is wrong."""
    found = {name: one.benchmark for name, one in methods().items() if one.benchmark is not None}
    for point in entry_points(group=BENCHMARKS_GROUP):
        if point.name not in methods():
            raise UsageError(f"{_shown(point)}: {unknown(point.name)}")
        found.setdefault(point.name, _loaded(point))
    return dict(sorted(found.items()))


def benchmark(name: str, part: str, what: str) -> Benchmark:
    """That of the method or protocol of this name, which has a part such as `tally`.

    Raises `UsageError` where there is none, or no package that brings it.
    """
    able = {one: methods()[one] for one, found in benchmarks().items() if getattr(found, part)}
    if not able or (find_spec(BENCHMARKS) is None and name not in able):
        raise UsageError(NOT_INSTALLED.format(what=f"{what} '{name}'"))
    return benchmarks()[_named(name, able, what).name]


def of_benchmarks(reference: str, what: str) -> Any:
    """What "module:attribute" names in the package of the benchmarks. Raises `UsageError` without it."""
    if find_spec(BENCHMARKS) is None:
        raise UsageError(NOT_INSTALLED.format(what=what))
    return load(f"{BENCHMARKS}.{reference}")


def _named(name: str, able: Mapping[str, Method], what: str) -> Method:
    for one in able.values():
        if name in _names_of(one):
            return one
    raise UsageError(f"no {what} '{name}'; known are {', '.join(able)}")


def names() -> tuple[str, ...]:
    return tuple(sorted(_protocols().keys() | _configured.keys()))


def get(name: str) -> EvaluationProtocol:
    found = _configured.get(name) or _protocols().get(name)
    if found is None:
        raise UsageError(unknown(name))
    return found


def unknown(name: str) -> str:
    """What is said of a name that no protocol has."""
    more = "" if find_spec(BENCHMARKS) else "; groundwatch-benchmarks, which is not installed, has others"
    return f"no protocol '{name[:64]}'; known are {', '.join(names())}{more}"


def published_answers(path: Path) -> Sequence[ResponseRecorded] | None:
    """The answers in a file of some method's own format; None for a file in none of them."""
    for one in benchmarks().values():
        if one.answers is not None and (answers := one.answers(path)) is not None:
            return answers
    return None


def settings_model() -> type[Section]:
    """The section `protocols` of the settings: a section for each method that has settings.

    A plug-in that is wrong has none; whoever asks for `methods` is told.
    """
    try:
        found = methods()
    except UsageError:
        found = _built_in()
    sections: dict[str, Any] = {
        name.replace("-", "_"): (method.settings, method.settings())
        for name, method in found.items()
        if method.settings
    }
    model: type[Section] = create_model("ProtocolSettings", __base__=Section, **sections)
    return model


def configure(settings: Section, prompts_folder: str) -> None:
    """Let protocols be found as the section `protocols` of the settings has them, and the user's prompts."""
    for _, section in settings:
        for protocol in section.protocols():
            _configured[protocol.name] = protocol
    try:
        prompts.use(own_prompts(prompts_folder))
    except ValueError as error:
        raise SettingsError(f"setting 'prompts.folder': {error}") from error


def own_prompts(folder: str) -> dict[tuple[str, str], prompts.Prompt]:
    """The user's prompts, from files `METHOD/NAME.md` named as ours are; by package and name.

    Raises `ValueError` in one line for a file that is none of these or cannot take its place.
    """
    if not folder:
        return {}
    packages = {room: f"groundwatch.{room}" for room in _ROOMS} | {
        one.name: protocol.package for one in methods().values() for protocol in one.protocols
    }
    known = {
        f"{place}/{name}": (package, name)
        for place, package in sorted(packages.items())
        for name in (prompts.packaged_names(package) if package else ())
    }
    found = {}
    top = Path(folder).expanduser()
    try:
        for path in (inner for one in _visible(top) for inner in (_visible(one) if one.is_dir() else [one])):
            own = path.relative_to(top).as_posix().removesuffix(".md")
            if own not in known or path.suffix != ".md":
                raise ValueError(f"{path} is no prompt; there are {', '.join(known)}, each with .md")
            try:
                found[known[own]] = prompts.read_own(path.read_bytes(), *known[own], own)
            except ValueError as error:
                raise ValueError(f"{path} {error}") from error
    except OSError as error:
        raise ValueError(f"{error.filename} cannot be read: {error.strerror}") from error
    return found


def _visible(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def _built_in() -> dict[str, Method]:
    found = {}
    for package in pkgutil.iter_modules(protocols.__path__, f"{protocols.__name__}."):
        if package.ispkg:
            method: Method = import_module(package.name).METHOD
            found[method.name] = method
    return found


@functools.cache
def _protocols() -> dict[str, EvaluationProtocol]:
    return {protocol.name: protocol for one in methods().values() for protocol in one.protocols}


def _names_of(method: Method) -> set[str]:
    return {method.name, *(protocol.name for protocol in method.protocols)}


def _loaded(point: EntryPoint) -> Any:
    try:
        return point.load()
    except Exception as error:  # whatever the plug-in's own code raises
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise UsageError(f"{_shown(point)}: cannot be loaded: {why}") from error


def _plugged(point: EntryPoint) -> Method:
    method = _loaded(point)
    if not isinstance(method, Method):
        raise UsageError(f"{_shown(point)}: {point.value} is no Method")
    for part in method.protocols:
        if not isinstance(part, EvaluationProtocol):
            raise UsageError(f"{_shown(point)}: {part!r} is no EvaluationProtocol")
        if not _NAME.match(part.name):
            raise UsageError(f"{_shown(point)}: '{part.name}' is no name: use a-z, 0-9, - and _, at most 64")
    return method


def _shown(point: EntryPoint) -> str:
    package = f" of {point.dist.name} {point.dist.version}" if point.dist else ""
    return f"protocol plug-in '{point.name}'{package}"
