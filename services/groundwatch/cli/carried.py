"""Commands that protocols carry: their functions' parameters are the commands' arguments and options."""

import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec
import typer
from typer.core import TyperGroup
from typer.main import get_command

from groundwatch.cli.options import Configured, JsonOption, add_command
from groundwatch.cli.output import bars, print_json, render_numbers
from groundwatch.errors import CheckFailed
from groundwatch.protocols import registry
from groundwatch.protocols.base import load
from groundwatch.protocols.method import CommandResult
from groundwatch.system.connecting import run
from groundwatch.terminal import Console

GIVEN = ("settings", "progress")
"""Parameters that are no options."""


class _Carried(TyperGroup):
    """The commands of its own, and those that protocols carry, plug-ins among them."""

    part: str

    def list_commands(self, ctx: Any) -> list[str]:
        carried = (name for name, method in registry.methods().items() if getattr(method, self.part))
        return [*carried, *super().list_commands(ctx)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        method = registry.methods().get(cmd_name)
        if method is None or not (reference := getattr(method, self.part)):
            return super().get_command(ctx, cmd_name)
        alone = typer.Typer(add_completion=False)
        add_command(alone, cmd_name, _command(load(reference)))
        return get_command(alone)


class Validations(_Carried):
    part = "validation"


class Datasets(_Carried):
    part = "dataset"


def _command(function: Callable[..., Any]) -> Callable[..., None]:
    hints = get_type_hints(function, include_extras=True)
    known = inspect.signature(function).parameters
    parameters = [_parameter(one, hints[one.name]) for one in known.values() if one.name not in GIVEN]
    kind = inspect.Parameter.KEYWORD_ONLY
    if "settings" in known:
        parameters.append(inspect.Parameter("settings", kind, annotation=Configured))
    parameters.append(inspect.Parameter("as_json", kind, default=False, annotation=JsonOption))

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
    made.__signature__ = inspect.Signature(parameters)
    return command


def _parameter(parameter: inspect.Parameter, hint: Any) -> inspect.Parameter:
    kind, meta = get_args(hint) if get_origin(hint) is Annotated else (hint, msgspec.Meta())
    shown = parameter.default not in (inspect.Parameter.empty, None, "", False)
    if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
        option = f"--{parameter.name.replace('_', '-')}"
        made = typer.Option(option, help=meta.description, show_default=shown, min=meta.ge, max=meta.le)
    else:
        made = typer.Argument(help=meta.description, show_default=shown)
    annotation = Annotated[kind, made]  # type: ignore[valid-type]
    return parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=annotation)


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
