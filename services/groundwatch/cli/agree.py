"""`groundwatch agree`: how far the judges agree with people, from annotated files or planted errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from groundwatch.cli.options import ConfigOption, JsonOption, NatsOption, client_settings
from groundwatch.cli.output import Bars, print_json, progress_bar, render_numbers
from groundwatch.errors import CheckFailed, UsageError
from groundwatch.evaluation.verdicts import compare_verdicts, write_metrics
from groundwatch.protocols import registry
from groundwatch.protocols.annotators import AnnotatorAgreement, annotator_agreement, read_annotators
from groundwatch.protocols.base import load
from groundwatch.protocols.faithscore.annotation import AnnotatedAnswer, read_annotations
from groundwatch.protocols.faithscore.protocol import FaithScore
from groundwatch.protocols.method import Method
from groundwatch.protocols.verdicts import VerdictAgreement, read_verdicts
from groundwatch.runtime.settings import Settings
from groundwatch.statistics.intervals import Interval
from groundwatch.system.connecting import connected, run
from groundwatch.terminal import Console, Table, box, styled

if TYPE_CHECKING:
    from groundwatch.evaluation import planted

Annotations = Annotated[
    Path | None,
    typer.Argument(help="The annotated file, in the protocol's own format.", show_default=False),
]


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command("agree")(agree)


def agree(
    protocol: Annotated[
        str, typer.Argument(help="The protocol; or planted or miniature, for several.", show_default=False)
    ],
    file: Annotations = None,
    as_json: JsonOption = False,
    cross_validate: Annotated[
        bool, typer.Option("--cross-validate", help="Retrain the recogniser in folds by image.")
    ] = False,
    folds: Annotated[int, typer.Option(min=2, help="How many folds.")] = 10,
    only: Annotated[
        str | None, typer.Option("--protocol", help="planted: only this protocol.", show_default=False)
    ] = None,
    count: Annotated[int, typer.Option("--answers", min=1, help="planted: how many answers.")] = 136,
    scenes: Annotated[
        int, typer.Option("--scenes", min=12, help="miniature: how many scenes each model describes.")
    ] = 2000,
    embedding_model: Annotated[
        str,
        typer.Option(
            help="tri-he, valor: folder of a sentence-transformers model in place of the embedded one.",
            show_default=False,
        ),
    ] = "",
    metrics_file: Annotated[
        Path | None,
        typer.Option(help="verdicts: also write the counts here, for Prometheus.", show_default=False),
    ] = None,
    config: ConfigOption = None,
    nats: NatsOption = "",
) -> None:
    """Tell how far the embedded engines agree with people, from an annotated file.

    With `verdicts`, how far the judges of a running system do, from what people say of their claims. With
    `planted`, which needs no file: how many planted hallucinations they find. With `miniature`, which
    needs none either: how far every protocol's numbers lie from the known truth of the miniature world.
    """
    if metrics_file is not None and protocol != "verdicts":
        raise UsageError(f"groundwatch agree {protocol} takes no option --metrics-file")
    if protocol == "verdicts":
        if file is None:
            raise UsageError("groundwatch agree verdicts needs a file of people's verdicts")
        _agree_verdicts(file, client_settings(config, nats), metrics_file, as_json)
        return
    if protocol == "planted":
        _agree_planted(only, count, as_json)
        return
    if protocol == "miniature":
        _agree_miniature(scenes, as_json)
        return
    if file is None:
        raise UsageError(f"groundwatch agree {protocol} needs an annotated file")
    if protocol == "valor":
        _agree_valor(file, embedding_model, as_json)
        return
    if protocol == "tri-he":
        _agree_tri_he(file, embedding_model, as_json)
        return
    if embedding_model:
        raise UsageError(f"groundwatch agree {protocol} takes no option --embedding-model")
    if protocol == "annotators":
        agreed = annotator_agreement(read_annotators(file))
        print_json(agreed) if as_json else render_annotators(agreed, Console())
        return
    method = registry.methods().get(protocol)
    if method is not None and method.validation:
        _validate(method, file, as_json)
        return
    from groundwatch.evaluation.faithscore import agreement

    answers = _annotated(protocol, file)
    with progress_bar() as progress:
        progress.add_task("comparing with people", total=None)
        found = run(agreement(answers, folds=folds if cross_validate else None))
    built = msgspec.to_builtins(found)
    if as_json:
        print_json(built)
    else:
        _render_agreement(built, Console())


def _agree_verdicts(file: Path, settings: Settings, metrics_file: Path | None, as_json: bool) -> None:
    verdicts = read_verdicts(file)
    if not verdicts:
        raise UsageError(f"{file} has no verdicts")

    async def work() -> dict[str, VerdictAgreement]:
        async with connected(settings, "agree") as bus:
            return await compare_verdicts(verdicts, bus)

    found = run(work())
    if metrics_file is not None:
        write_metrics(metrics_file, found)
    print_json(found) if as_json else render_verdicts(found, Console())


def _agree_miniature(scenes: int, as_json: bool) -> None:
    from groundwatch.evaluation.promises import measure

    with Bars() as bars:
        found = run(measure(scenes, bars.tell))
    print_json(found) if as_json else render_miniature(found, Console())
    if broken := [name for name, one in found["promises"].items() if not one["holds"]]:
        raise CheckFailed(f"the monitor does not see the truth as promised: {', '.join(broken)}")


def _agree_tri_he(file: Path, embedding_model: str, as_json: bool) -> None:
    from groundwatch.evaluation.tri_he import tri_he_agreement
    from groundwatch.models.embeddings import embedder

    with Bars() as bars:
        found = tri_he_agreement(
            file, embedder(embedding_model, cached=20_000), partial(bars.tell, "comparing triplets")
        )
    print_json(found) if as_json else render_tri_he(found, Console())


def _agree_valor(file: Path, embedding_model: str, as_json: bool) -> None:
    from groundwatch.evaluation.valor import valor_agreement
    from groundwatch.matching.engines.semantic import SemanticEngine
    from groundwatch.models.embeddings import embedder

    result = valor_agreement(file, SemanticEngine(embedder(embedding_model)).compare)
    print_json(result) if as_json else render_numbers(result, Console())


def _agree_planted(only: str | None, count: int, as_json: bool) -> None:
    from groundwatch.evaluation import planted

    protocols = planted.chosen(only)
    answers = planted.planted_answers(count)
    with progress_bar() as bar:
        task = bar.add_task("looking for what was planted", total=count * len(protocols))
        found = run(planted.planted(answers, protocols, lambda: bar.advance(task)))
    told = planted.report(answers, found)
    print_json(told) if as_json else render_planted(told, found, Console())


def _validate(method: Method, file: Path, as_json: bool) -> None:
    found = load(method.validation)(file)
    print_json(found) if as_json else render_numbers(found, Console())


def _annotated(protocol: str, file: Path) -> list[AnnotatedAnswer]:
    """The answers of a FaithScore annotation file; `UsageError` for a protocol without such a format."""
    registry.get(protocol)
    if protocol != FaithScore.name:
        raise UsageError(f"groundwatch agree knows no file format of protocol '{protocol}'")
    return read_annotations(file)


def _render_agreement(found: dict[str, Any], console: Console) -> None:
    table = Table(
        title=f"Agreement with people on {found['answers']} answers",
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    table.add_column("measure")
    table.add_column("value", justify="right")
    folds = found["recogniser"]["folds"]
    how = f" ({folds} folds by image)" if folds else ""
    table.add_row(f"recogniser: accuracy{how}", f"{found['recogniser']['accuracy']:.3f}")
    for label, value in found["recogniser"]["f1"].items():
        table.add_row(f"recogniser: F1 of {label}", "–" if value is None else f"{value:.3f}")
    for name in ("precision", "recall", "f1"):
        table.add_row(f"decomposer: {name}", f"{found['decomposer'][name]:.3f}")
    for title, group in (("", found), ("Likert: ", found["likert"])):
        for name in ("pearson", "spearman", "kendall"):
            table.add_row(f"{title}{name}", _shown(group[name]))
    for name, value in found["mean"].items():
        table.add_row(f"mean score, {name}", "–" if value is None else f"{value:.3f}")
    if found["coverage"] is not None:
        table.add_row("facts decided by the reference judge", f"{found['coverage']:.1%}")
    console.print(table)
    console.print(
        f"{found['compared']} answers have a human and an automatic score; intervals are 95 %.",
    )


def _shown(interval: Interval | dict[str, Any] | None) -> str:
    if interval is None:
        return "–"
    found = msgspec.convert(interval, Interval)
    return f"{found.value:.3f} ({found.low:.3f} to {found.high:.3f}, n = {found.n})"


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


def render_tri_he(found: Mapping[str, Any], console: Console) -> None:
    """The same as a table."""
    table = Table(title=f"Similarity judge, {found['encoder']}", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("measure")
    table.add_column("value", justify="right")
    auc = found["roc_auc"]
    shown = "–" if auc is None else f"{auc['value']:.3f} ({auc['low']:.3f} to {auc['high']:.3f})"
    table.add_row(f"ROC AUC, {found['reworded']} reworded against {found['borrowed']} borrowed", shown)
    for made, value in found["roc_auc_by_rewording"].items():
        table.add_row(f"  {made}", _rate(value))
    threshold = found["threshold"]
    table.add_row(f"reworded that hold at {threshold}", _rate(found["true_positive_rate"]))
    table.add_row(f"borrowed that hold at {threshold}", _rate(found["false_positive_rate"]))
    for made, value in found["false_alarm_by_rewording"].items():
        table.add_row(f"false alarms, {made}", _rate(value))
    code = found["published_code"]
    table.add_row("as the published code has it: ROC AUC", _rate(code["roc_auc"]))
    table.add_row(f"  reworded that hold at {threshold}", _rate(code["true_positive_rate"]))
    table.add_row(f"  borrowed that hold at {threshold}", _rate(code["false_positive_rate"]))
    for part, rates in found["planted"].items():
        table.add_row(f"planted {part}: refuted", _rate(rates["recall"]))
        table.add_row(f"planted {part}: and rightly blamed", _rate(rates["blamed"]))
    console.print(table)


def render_planted(told: Mapping[str, Any], found: Sequence[planted.Found], console: Console) -> None:
    """The same as a table."""
    title = f"Planted into {told['answers']} answers; {told['untouched']} sub-sentences untouched"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("protocol", no_wrap=True)
    table.add_column("planted")
    for name in ("number", "recall", "false alarms"):
        table.add_column(name, justify="right")
    for one in found:
        number = str(one.recall.n if one.recall else 0)
        table.add_row(one.protocol, one.kind.value, number, _share(one.recall), _share(one.false_alarms))
    console.print(table)
    console.print("Intervals are Wilson's, 95 %.")


def render_miniature(found: dict[str, Any], console: Console) -> None:
    console.print(f"The monitor against the known truth of {found['scenes']} scenes for each model")
    console.print()
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("model", "facts not in the image: true", "estimated", "error (95 %)", "r", "GC@3"):
        table.add_column(name, justify="left" if name == "model" else "right")
    for name, one in found["faithscore"]["by_model"].items():
        error = one["error"]
        table.add_row(
            name,
            f"{one['true']:.2%}",
            f"{one['estimated']:.2%}",
            f"{error['value']:+.2%} ({error['low']:+.2%} to {error['high']:+.2%})",
            f"{one['pearson']['value']:.3f}" if one["pearson"] else "–",
            f"{found['genception']['gc_at_3'][name]:.3f}",
        )
    console.print(table)
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("per response, all models", "Pearson (95 %)", "Spearman", "Kendall", "n"):
        table.add_column(name, justify="left" if name.startswith("per") else "right")
    for name, one in (
        ("FaithScore", found["faithscore"]["per_response"]),
        ("VALOR faithfulness", found["valor"]["faithfulness"]),
        ("VALOR coverage", found["valor"]["coverage"]),
        ("Tri-HE", found["tri_he"]["per_response"]),
    ):
        r = one["pearson"]
        table.add_row(
            name,
            f"{r['value']:.3f} ({r['low']:.3f} to {r['high']:.3f})" if r else "–",
            *(f"{one[key]['value']:.3f}" if one[key] else "–" for key in ("spearman", "kendall")),
            str(one["n"]),
        )
    console.print(table)
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("promise", "wanted", "found", "holds"):
        table.add_column(name)
    for name, one in found["promises"].items():
        value = one["found"]
        shown = f"{value:.3f}" if isinstance(value, float) else str(value)
        table.add_row(
            name.replace("_", " "), one["promised"], shown, "yes" if one["holds"] else styled(("no", "red"))
        )
    console.print(table)
    console.print(f"{found['seconds']:.0f} s")


def render_verdicts(found: dict[str, VerdictAgreement], console: Console) -> None:
    table = Table(title="Agreement of judges with people", title_justify="left", box=box.SIMPLE_HEAD)
    for name in ("protocol", "verdicts", "undecided", "agreement", "95 % interval", "Cohen's kappa"):
        table.add_column(name, justify="left" if name == "protocol" else "right")
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


def _rate(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _share(interval: Interval | None) -> str:
    if interval is None:
        return "–"
    return f"{interval.value:.3f} ({interval.low:.3f} to {interval.high:.3f})"
