"""`groundwatch validate`: how far the judges agree with people, from annotated files or planted errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from typer.core import TyperGroup
from typer.main import get_command

from groundwatch.cli.options import Command, ConfigOption, JsonOption, NatsOption, client_settings
from groundwatch.cli.output import Bars, print_json, progress_bar, render_numbers
from groundwatch.errors import CheckFailed, UsageError
from groundwatch.evaluation.verdicts import compare_verdicts, write_metrics
from groundwatch.protocols import registry
from groundwatch.protocols.annotators import AnnotatorAgreement, annotator_agreement, read_annotators
from groundwatch.protocols.base import load
from groundwatch.protocols.faithscore.annotation import read_annotations
from groundwatch.protocols.method import Method
from groundwatch.protocols.verdicts import VerdictAgreement, read_verdicts
from groundwatch.statistics.intervals import Interval
from groundwatch.system.connecting import connected, run
from groundwatch.terminal import Console, Table, box, styled

if TYPE_CHECKING:
    from groundwatch.evaluation import planted as planting

FileArgument = Annotated[
    Path, typer.Argument(help="The annotated file, in the format of the published work.", show_default=False)
]
EncoderOption = Annotated[
    str,
    typer.Option(
        "--embedding-model",
        help="Folder of a sentence-transformers model in place of the embedded one.",
        show_default=False,
    ),
]


class Validations(TyperGroup):
    """Also those that protocols bring along themselves, plug-ins among them."""

    def list_commands(self, ctx: Any) -> list[str]:
        brought = (name for name, method in registry.methods().items() if method.validation)
        return [*super().list_commands(ctx), *brought]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        method = registry.methods().get(cmd_name)
        if method is None or not method.validation:
            return super().get_command(ctx, cmd_name)
        alone = typer.Typer(add_completion=False)
        alone.command(cmd_name, cls=Command)(_brought(method))
        return get_command(alone)


def _brought(method: Method) -> Callable[..., None]:
    def validate(file: FileArgument, as_json: JsonOption = False) -> None:
        found = load(method.validation)(file)
        print_json(found) if as_json else render_numbers(found, Console())

    validate.__doc__ = f"The judges of {method.name} against people."
    return validate


def faithscore(file: FileArgument, as_json: JsonOption = False) -> None:
    """FaithScore's embedded engines against people's sub-sentences, facts and scores."""
    from groundwatch.evaluation.faithscore import agreement

    answers = read_annotations(file)
    with progress_bar() as progress:
        progress.add_task("comparing with people", total=None)
        found = run(agreement(answers))
    built = msgspec.to_builtins(found)
    if as_json:
        print_json(built)
    else:
        _render_agreement(built, Console())


def valor(file: FileArgument, embedding_model: EncoderOption = "", as_json: JsonOption = False) -> None:
    """VALOR's matching engines against pairs that people matched."""
    from groundwatch.evaluation.valor import valor_agreement
    from groundwatch.matching.engines.semantic import SemanticEngine
    from groundwatch.models.embeddings import embedder

    result = valor_agreement(file, SemanticEngine(embedder(embedding_model)).compare)
    print_json(result) if as_json else render_numbers(result, Console())


def tri_he(file: FileArgument, embedding_model: EncoderOption = "", as_json: JsonOption = False) -> None:
    """Tri-HE's similarity judge on triplets of its benchmark: reworded, borrowed and planted."""
    from groundwatch.evaluation.tri_he import tri_he_agreement
    from groundwatch.models.embeddings import embedder

    with Bars() as bars:
        found = tri_he_agreement(
            file, embedder(embedding_model, cached=20_000), partial(bars.tell, "comparing triplets")
        )
    print_json(found) if as_json else render_tri_he(found, Console())


def annotators(
    file: Annotated[Path, typer.Argument(help="Labels (JSON lines: item, annotator, label).")],
    as_json: JsonOption = False,
) -> None:
    """How far people agree among themselves: Fleiss' kappa and Krippendorff's alpha."""
    agreed = annotator_agreement(read_annotators(file))
    print_json(agreed) if as_json else render_annotators(agreed, Console())


def verdicts(
    file: Annotated[Path, typer.Argument(help="People's verdicts on claims (JSON lines).")],
    metrics_file: Annotated[
        Path | None, typer.Option(help="Also write the counts here, for Prometheus.", show_default=False)
    ] = None,
    config: ConfigOption = None,
    nats: NatsOption = "",
    as_json: JsonOption = False,
) -> None:
    """The judges of a running system against what people say of the same claims."""
    settings = client_settings(config, nats)
    given = read_verdicts(file)
    if not given:
        raise UsageError(f"{file} has no verdicts")

    async def work() -> dict[str, VerdictAgreement]:
        async with connected(settings, "validate") as bus:
            return await compare_verdicts(given, bus)

    found = run(work())
    if metrics_file is not None:
        write_metrics(metrics_file, found)
    print_json(found) if as_json else render_verdicts(found, Console())


def planted(
    only: Annotated[
        str | None, typer.Option("--protocol", help="Only this protocol.", show_default=False)
    ] = None,
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
    from groundwatch.evaluation.promises import measure

    with Bars() as bars:
        found = run(measure(scenes, bars.tell))
    print_json(found) if as_json else render_miniature(found, Console())
    if broken := [name for name, one in found["promises"].items() if not one["holds"]]:
        raise CheckFailed(f"the monitor does not see the truth as promised: {', '.join(broken)}")


def _render_agreement(found: dict[str, Any], console: Console) -> None:
    table = Table(
        title=f"Agreement with people on {found['answers']} answers",
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    table.add_column("measure")
    table.add_column("value", justify="right")
    table.add_row("recogniser: accuracy", f"{found['recogniser']['accuracy']:.3f}")
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


def render_planted(told: Mapping[str, Any], found: Sequence[planting.Found], console: Console) -> None:
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
