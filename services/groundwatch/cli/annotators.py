"""`groundwatch agree annotators`: how far people agree among themselves."""

from __future__ import annotations

from pathlib import Path

from groundwatch.cli.output import print_json
from groundwatch.protocols.annotators import AnnotatorAgreement, annotator_agreement, read_annotators
from groundwatch.statistics.intervals import Interval
from groundwatch.terminal import Console, Table, box


def agree_annotators(file: Path, as_json: bool, console: Console) -> None:
    """Print κ and α of the labels in `file`."""
    found = annotator_agreement(read_annotators(file))
    if as_json:
        print_json(found)
    else:
        render_annotators(found, console)


def render_annotators(found: AnnotatorAgreement, console: Console) -> None:
    """The two numbers as a table, and what they rest on."""
    table = Table(
        title=f"Agreement of {found.annotators} annotators on {found.items} items",
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    table.add_column("measure")
    table.add_column("value", justify="right")
    table.add_column("95 % interval", justify="right")
    table.add_column("items", justify="right")
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
