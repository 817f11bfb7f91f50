"""Commands by the place of their functions, each of which is loaded when it is called: a command line that
only tells its version or its help loads no service."""

from __future__ import annotations

import ast
import inspect
import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, ClassVar, get_args, get_origin

import msgspec
import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group
from typer.models import ParameterInfo

from groundwatch.errors import UsageError

LAST = ("config", "nats", "folder", "as_json")


class Command(TyperCommand):
    """Says which options are meant where an error names parameters."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except UsageError as error:
            named = {one.name: one.opts[0] for one in self.params if one.opts[0].startswith("--")}
            if options := [named[name] for name in error.parameters if name in named]:
                error.args = (f"{error} ({', '.join(options)})",)
            raise


def _data(name: str) -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name(name).read_text("utf-8"))


@cache
def _said() -> dict[str, Any]:
    return _data("options.toml")


def described(function: Callable[..., Any], parameter: inspect.Parameter) -> inspect.Parameter:
    """A parameter as typer takes it: an option where it is given by name alone, else an argument. What it is
    for says `options.toml`, or its own annotation."""
    hint, own = parameter.annotation, None
    if get_origin(hint) is Annotated:
        hint, own = get_args(hint)
    made: Any
    if isinstance(own, ParameterInfo):
        made = own
    else:
        keys = _own_keys(parameter, own) if own is not None else _keys(function, parameter.name)
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            names = keys.pop("names", (f"--{parameter.name.replace('_', '-')}",))
            made = typer.Option(*names, **keys)
        else:
            made = typer.Argument(**keys)
    annotation = Annotated[hint, made]  # type: ignore[valid-type]
    return parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=annotation)


def _keys(function: Callable[..., Any], name: str) -> dict[str, Any]:
    """What is said of a parameter: of the function's, of every function's of its module, or of all. Names in
    braces are those of the function's module."""
    of_module = _said().get(function.__module__.rpartition(".")[2], {})
    places = (of_module.get(function.__name__, {}), of_module.get("each", {}), _said()["all"])
    said = next(place[name] for place in places if name in place)
    keys = {"help": said} if isinstance(said, str) else {**said}
    return keys | {"help": keys["help"].format_map(function.__globals__)}


def _own_keys(parameter: inspect.Parameter, meta: msgspec.Meta) -> dict[str, Any]:
    shown = parameter.default not in (inspect.Parameter.empty, None, "", False)
    return {"help": meta.description, "show_default": shown, "min": meta.ge, "max": meta.le}


def add_command(app: typer.Typer, name: str, function: Callable[..., None]) -> None:
    """Add a command. A parameter that is annotated with a function is what that function makes of options of
    its own, which stand in its place; those that every command has come last."""
    known = inspect.signature(function, eval_str=True).parameters
    makers = {one: get_args(known[one].annotation)[1] for one in known if _has_maker(known[one])}
    wanted = {one: inspect.signature(maker, eval_str=True).parameters for one, maker in makers.items()}
    parameters: dict[str, inspect.Parameter] = {}
    for one, parameter in known.items():
        for key, own in wanted.get(one, {one: parameter}).items():
            of = function if key in known else makers[one]
            parameters[key] = described(of, known.get(key, own))
    in_order = sorted(parameters, key=lambda one: LAST.index(one) if one in LAST else -1)
    shown_parameters = [parameters[one] for one in in_order]

    def command(**given: Any) -> None:
        made = {one: maker(**{key: given[key] for key in wanted[one]}) for one, maker in makers.items()}
        function(**{one: made[one] if one in made else given[one] for one in known})

    shown: Any = command
    shown.__doc__ = function.__doc__
    shown.__signature__ = inspect.Signature(shown_parameters)
    shown.__annotations__ = {one.name: one.annotation for one in shown_parameters}
    app.command(name, cls=Command)(command)


def _has_maker(parameter: inspect.Parameter) -> bool:
    return inspect.isfunction(next(iter(get_args(parameter.annotation)[1:]), None))


class Group(TyperGroup):
    """A group that is loaded when it is called: its docstring is its help, `own` are its commands."""

    own: ClassVar[dict[str, Callable[..., None]]]


class _Placed(TyperCommand):
    """What stands for a command until it is called."""

    place: str

    def load(self) -> Any:
        module, name = self.place.split(".")
        target = getattr(import_module(f"{__package__}.{module}"), name)
        if not (isinstance(target, type) and issubclass(target, Group)):
            return built(self.name or name, target)
        app = typer.Typer(cls=target, help=target.__doc__, no_args_is_help=True, add_completion=False)
        for key, function in target.own.items():
            add_command(app, key, function)
        return get_group(app)

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        return self.load().make_context(info_name, args, parent, **extra)


@cache
def _docstrings(module: str) -> dict[str, str]:
    """Of the functions and classes of a module of this package, which is read and not run."""
    tree = ast.parse(Path(__file__).with_name(f"{module}.py").read_text())
    named = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef))
    return {node.name: ast.get_docstring(node) or "" for node in named}


def place_command(app: typer.Typer, name: str, place: str, panel: str | None = None) -> None:
    """Add the command whose function, or group whose class, stands at `place`: a module here and a name."""
    module, function = place.split(".")
    stub = type("Placed", (_Placed,), {"place": place})
    app.command(name, cls=stub, rich_help_panel=panel, help=_docstrings(module)[function])(lambda: None)


def built(name: str, function: Callable[..., None]) -> Any:
    """The command of a function by itself."""
    alone = typer.Typer(add_completion=False)
    add_command(alone, name, function)
    return get_command(alone)


def add_commands(app: typer.Typer) -> None:
    """Add those of `commands.toml`."""
    for panel, commands in _data("commands.toml").items():
        _add(app, commands, panel)


def _add(app: typer.Typer, commands: Mapping[str, Any], panel: str | None = None) -> None:
    for name, command in commands.items():
        if isinstance(command, str):
            place_command(app, name, command, panel)
        else:
            group = typer.Typer(help=command.pop("about"), no_args_is_help=True)
            _add(group, command)
            app.add_typer(group, name=name, rich_help_panel=panel)
