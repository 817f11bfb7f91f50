"""`groundwatch validate` and `groundwatch dataset`: the commands that benchmarks carry, whose functions'
parameters are the commands' arguments and options."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, ClassVar, get_args, get_type_hints

import msgspec
import typer
from typer.main import get_command

from groundwatch.cli.commands import Command, Group, built
from groundwatch.cli.messages import print_json
from groundwatch.cli.options import Configured
from groundwatch.cli.output import bars, render_numbers
from groundwatch.errors import CheckFailed, UsageError
from groundwatch.protocols import registry
from groundwatch.protocols.base import load
from groundwatch.protocols.method import CommandResult
from groundwatch.system.connecting import run
from groundwatch.terminal import Console

GIVEN = ("settings", "progress")
"""Parameters that are no options."""


class _Carried(Group):
    """The commands that benchmarks carry as their `part`, plug-ins among them, and `more`."""

    own: ClassVar = {}
    part: str
    more: ClassVar[dict[str, str]] = {}

    def _carried(self) -> dict[str, str]:
        carried = {name: getattr(one, self.part) for name, one in registry.benchmarks().items()}
        more = self.more if find_spec(registry.BENCHMARKS) else {}
        return {name: reference for name, reference in (carried | more).items() if reference}

    def list_commands(self, ctx: Any) -> list[str]:
        return [*self._carried()]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        reference = self._carried().get(cmd_name)
        if reference is not None:
            return built(cmd_name, _command(load(reference)))
        return None if find_spec(registry.BENCHMARKS) else _not_installed(cmd_name)


def _not_installed(name: str) -> Any:
    def command(ctx: typer.Context) -> None:
        """Needs the package groundwatch-benchmarks, which is not installed."""
        raise UsageError(registry.NOT_INSTALLED.format(what=ctx.command_path))

    alone = typer.Typer(add_completion=False)
    anything = {"ignore_unknown_options": True, "allow_extra_args": True}
    alone.command(name, cls=Command, context_settings=anything)(command)
    return get_command(alone)


class Validations(_Carried):
    """How far the judges agree with people, or with what is known (package groundwatch-benchmarks)."""

    part = "validation"
    more: ClassVar = {
        "annotators": f"{registry.BENCHMARKS}.agreement.people:annotators",
        "verdicts": f"{registry.BENCHMARKS}.agreement.people:verdicts",
        "claims": f"{registry.BENCHMARKS}.agreement.claims:validate",
        "extraction": f"{registry.BENCHMARKS}.agreement.extraction:validate",
        "scores": f"{registry.BENCHMARKS}.agreement.scores:validate",
        "planted": f"{registry.BENCHMARKS}.planted:validate",
        "miniature": f"{registry.BENCHMARKS}.miniature.measuring:validate",
    }


class Datasets(_Carried):
    """Build benchmarks as their papers built them (package groundwatch-benchmarks)."""

    part = "dataset"


def _command(function: Callable[..., Any]) -> Callable[..., None]:
    hints = get_type_hints(function, include_extras=True)
    known = inspect.signature(function).parameters
    own = [one.replace(annotation=hints[one.name]) for one in known.values() if one.name not in GIVEN]
    kind = inspect.Parameter.KEYWORD_ONLY
    if "settings" in known:
        asked = hints["settings"]
        own.append(inspect.Parameter("settings", kind, annotation=asked if get_args(asked) else Configured))
    own.append(inspect.Parameter("as_json", kind, default=False, annotation=bool))

    def command(*, as_json: bool, **given: Any) -> None:
        with bars() as tell:
            if "progress" in known:
                given["progress"] = tell
            result = function(**given)
            if inspect.iscoroutine(result):
                result = run(result)
        _show(result, as_json)

    made: Any = command
    made.__doc__ = function.__doc__
    made.__signature__ = inspect.Signature(own)
    return command


def _show(result: Any, as_json: bool) -> None:
    found = result if isinstance(result, CommandResult) else CommandResult(numbers=result)
    if as_json:
        print_json(found.numbers)
    elif found.table is not None:
        Console().print(found.table)
    else:
        render_numbers(msgspec.to_builtins(found.numbers), Console())
    if found.problem:
        raise CheckFailed(found.problem)
