"""`groundwatch validate`: how far the judges agree with people, from annotated files or planted errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from groundwatch.cli.options import JsonOption, OnServer
from groundwatch.cli.output import bars, print_json, progress_bar, table_of
from groundwatch.errors import CheckFailed, UsageError
from groundwatch.evaluation.verdicts import compare_verdicts, write_metrics
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

if TYPE_CHECKING:
    from groundwatch.evaluation import planted as planting


def annotators(
    file: Annotated[Path, typer.Argument(help="Labels (JSON lines: item, annotator, label).")],
    as_json: JsonOption = False,
) -> None:
    """How far people agree among themselves: Fleiss' kappa and Krippendorff's alpha."""
    agreed = annotator_agreement(read_annotators(file))
    print_json(agreed) if as_json else render_annotators(agreed, Console())


def verdicts(
    settings: OnServer,
    file: Annotated[Path, typer.Argument(help="People's verdicts on claims (JSON lines).")],
    metrics_file: Annotated[
        Path | None, typer.Option(help="Also write the counts here, for Prometheus.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """The judges of a running system against what people say of the same claims."""
    given = list(read_lines(file, PersonsVerdict))
    if not given:
        raise UsageError(f"{file} has no verdicts")
    found = on_bus(settings, lambda bus: compare_verdicts(given, bus), "validate")
    if metrics_file is not None:
        write_metrics(metrics_file, found)
    print_json(found) if as_json else render_verdicts(found, Console())


def planted(
    only: Annotated[str | None, typer.Option("--protocol", help="Only this protocol.")] = None,
    count: Annotated[int, typer.Option("--answers", min=1, help="How many answers.")] = 136,
    as_json: JsonOption = False,
) -> None:
    """How many planted hallucinations the embedded engines find, and how many false alarms they raise."""
    from groundwatch.evaluation import planted as planting

    protocols = planting.chosen(only)
    answers = planting.planted_answers(count)
    with progress_bar() as bar:
        task = bar.add_task("looking for what was planted", total=count * len(protocols))
        found = run(planting.planted(answers, protocols, lambda: bar.advance(task)))
    told = planting.report(answers, found)
    print_json(told) if as_json else render_planted(told, found, Console())


def miniature(
    scenes: Annotated[int, typer.Option(min=12, help="How many scenes each model describes.")] = 2000,
    as_json: JsonOption = False,
) -> None:
    """How far every protocol's numbers lie from the known truth of the miniature world."""
    from groundwatch.evaluation.promises import measure, show

    with bars() as tell:
        found = run(measure(scenes, tell))
    print_json(found) if as_json else Console().print(show(found))
    if broken := [name for name, one in found["promises"].items() if not one["holds"]]:
        raise CheckFailed(f"the monitor does not see the truth as promised: {', '.join(broken)}")


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
            "alpha over all with at least two.",
        )


def _cells(interval: Interval | None) -> tuple[str, str, str]:
    if interval is None:
        return "–", "undefined", ""
    return f"{interval.value:.3f}", f"{interval.low:.3f} to {interval.high:.3f}", str(interval.n)


def render_planted(told: Mapping[str, Any], found: Sequence[planting.Found], console: Console) -> None:
    title = f"Planted into {told['answers']} answers; {told['untouched']} sub-sentences untouched"
    table = table_of(title, "protocol", "planted", "number", "recall", "false alarms", left=2)
    for one in found:
        number = str(one.recall.n if one.recall else 0)
        table.add_row(one.protocol, one.kind.value, number, _share(one.recall), _share(one.false_alarms))
    console.print(table)
    console.print("Intervals are Wilson's, 95 %.")


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


def _share(interval: Interval | None) -> str:
    if interval is None:
        return "–"
    return f"{interval.value:.3f} ({interval.low:.3f} to {interval.high:.3f})"
