"""`groundwatch validate`: how far the judges agree with people, from annotated files; and the commands that
protocols and the benchmarks carry, whose functions' parameters are the commands' arguments and options."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, get_type_hints

import msgspec
import typer
from typer.main import get_command

from groundwatch.cli.commands import Command, Group, built
from groundwatch.cli.messages import print_json
from groundwatch.cli.options import Configured, OnServer
from groundwatch.cli.output import bars, render_numbers, table_of
from groundwatch.errors import CheckFailed, UsageError
from groundwatch.judging.agreement import compare_verdicts, write_metrics
from groundwatch.protocols import registry
from groundwatch.protocols.base import BENCHMARKS, lacks_benchmarks, load
from groundwatch.protocols.method import CommandResult
from groundwatch.protocols.people import (
    AnnotatorAgreement,
    PersonsVerdict,
    VerdictAgreement,
    annotator_agreement,
    read_annotators,
)
from groundwatch.protocols.published import read_lines
from groundwatch.statistics.intervals import Interval
from groundwatch.system.connecting import on_bus, run
from groundwatch.terminal import Console


def annotators(file: Path, *, as_json: bool = False) -> None:
    """How far people agree among themselves: Fleiss' kappa and Krippendorff's alpha."""
    agreed = annotator_agreement(read_annotators(file))
    print_json(agreed) if as_json else render_annotators(agreed, Console())


def verdicts(
    settings: OnServer, file: Path, *, metrics_file: Path | None = None, as_json: bool = False
) -> None:
    """The judges of a running system against what people say of the same claims."""
    given = list(read_lines(file, PersonsVerdict))
    if not given:
        raise UsageError(f"{file} has no verdicts")
    found = on_bus(settings, lambda bus: compare_verdicts(given, bus), "validate")
    if metrics_file is not None:
        write_metrics(metrics_file, found)
    print_json(found) if as_json else render_verdicts(found, Console())


def render_annotators(found: AnnotatorAgreement, console: Console) -> None:
    title = f"Agreement of {found.annotators} annotators on {found.items} items"
    table = table_of(title, "measure", "value", "95 % interval", "items")
    for name, interval in (
        ("Fleiss' kappa", found.fleiss_kappa),
        ("Krippendorff's alpha (nominal)", found.krippendorff_alpha),
    ):
        table.add_row(name, *_cells(interval))
    console.print(table)
    told = ", ".join(f"{label} ({number})" for label, number in found.labels.items())
    console.print(f"Labels given, {found.annotations} in all: {told}.")
    if found.fleiss_items < found.items:
        console.print(
            f"Kappa is over the {found.fleiss_items} items with {found.fleiss_labels} labels each, "
            "alpha over all with at least two."
        )


def _cells(interval: Interval | None) -> tuple[str, str, str]:
    if interval is None:
        return "–", "undefined", ""
    return f"{interval.value:.3f}", f"{interval.low:.3f} to {interval.high:.3f}", str(interval.n)


def render_verdicts(found: dict[str, VerdictAgreement], console: Console) -> None:
    columns = ("protocol", "verdicts", "undecided", "agreement", "95 % interval", "Cohen's kappa")
    table = table_of("Agreement of judges with people", *columns)
    for protocol, one in found.items():
        share = one.agreement
        table.add_row(
            protocol,
            f"{one.verdicts:,}",
            f"{one.undecided:,}",
            f"{share.value:.1%}" if share else "–",
            f"{share.low:.1%} to {share.high:.1%}" if share else "–",
            "–" if one.kappa is None else f"{one.kappa:.3f}",
        )
    console.print(table)
    console.print("Of claims that the judge decided; intervals are over whole responses.")


GIVEN = ("settings", "progress")
"""Parameters that are no options."""


class _Carried(Group):
    """The commands of its own, and those that protocols or the benchmarks carry, plug-ins among them."""

    part: str
    benchmarks: ClassVar[dict[str, str]] = {}

    def _carried(self) -> dict[str, str]:
        methods = {name: getattr(method, self.part) for name, method in registry.methods().items()}
        return {name: reference for name, reference in (methods | self.benchmarks).items() if reference}

    def list_commands(self, ctx: Any) -> list[str]:
        return [*self._carried(), *super().list_commands(ctx)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        reference = self._carried().get(cmd_name)
        if reference is None:
            return super().get_command(ctx, cmd_name)
        if lacks_benchmarks(reference):
            return _not_installed(cmd_name)
        return built(cmd_name, _command(load(reference)))


def _not_installed(name: str) -> Any:
    def command(ctx: typer.Context) -> None:
        """Needs the package groundwatch-benchmarks, which is not installed."""
        raise UsageError(
            f"{ctx.command_path} needs the package groundwatch-benchmarks: pip install groundwatch-benchmarks"
        )

    alone = typer.Typer(add_completion=False)
    anything = {"ignore_unknown_options": True, "allow_extra_args": True}
    alone.command(name, cls=Command, context_settings=anything)(command)
    return get_command(alone)


class Validations(_Carried):
    """How far the judges agree with people, or with what is known to be true."""

    part = "validation"
    own: ClassVar = {
        "annotators": annotators,
        "verdicts": verdicts,
    }
    benchmarks: ClassVar = {
        "claims": f"{BENCHMARKS}.agreement.claims:validate",
        "extraction": f"{BENCHMARKS}.agreement.extraction:validate",
        "scores": f"{BENCHMARKS}.agreement.scores:validate",
        "planted": f"{BENCHMARKS}.planted:validate",
        "miniature": f"{BENCHMARKS}.miniature.measuring:validate",
    }


class Datasets(_Carried):
    """Build benchmarks as their papers built them."""

    part = "dataset"
    own: ClassVar = {}


def _command(function: Callable[..., Any]) -> Callable[..., None]:
    hints = get_type_hints(function, include_extras=True)
    known = inspect.signature(function).parameters
    own = [one.replace(annotation=hints[one.name]) for one in known.values() if one.name not in GIVEN]
    kind = inspect.Parameter.KEYWORD_ONLY
    if "settings" in known:
        own.append(inspect.Parameter("settings", kind, annotation=Configured))
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
