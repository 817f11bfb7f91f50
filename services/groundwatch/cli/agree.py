"""`groundwatch agree`: how far the judges agree with people, from annotated files or planted errors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from groundwatch.cli.common import (
    ConfigOption,
    JsonOption,
    NatsOption,
    client_settings,
    run,
)
from groundwatch.cli.numbers import render_numbers
from groundwatch.cli.output import print_json, progress_bar
from groundwatch.errors import UsageError
from groundwatch.protocols import registry
from groundwatch.protocols.base import load
from groundwatch.protocols.faithscore.annotation import AnnotatedAnswer, read_annotations
from groundwatch.protocols.faithscore.protocol import FaithScore
from groundwatch.protocols.method import Method
from groundwatch.statistics.intervals import Interval
from groundwatch.terminal import Console, Table, box

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
        from groundwatch.cli.verdicts import agree_verdicts

        if file is None:
            raise UsageError("groundwatch agree verdicts needs a file of people's verdicts")
        agree_verdicts(file, client_settings(config, nats), metrics_file, as_json=as_json)
        return
    if protocol == "planted":
        _agree_planted(only, count, as_json)
        return
    if protocol == "miniature":
        from groundwatch.cli.miniature_report import agree_miniature

        agree_miniature(scenes, as_json)
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
        from groundwatch.cli.annotators import agree_annotators

        agree_annotators(file, as_json, Console())
        return
    method = registry.methods().get(protocol)
    if method is not None and method.validation:
        _validate(method, file, as_json)
        return
    from groundwatch.cli.agreement import agreement

    answers = _annotated(protocol, file)
    with progress_bar() as progress:
        progress.add_task("comparing with people", total=None)
        found = run(agreement(answers, folds=folds if cross_validate else None))
    built = msgspec.to_builtins(found)
    if as_json:
        print_json(built)
    else:
        _render_agreement(built, Console())


def _agree_tri_he(file: Path, embedding_model: str, as_json: bool) -> None:
    from groundwatch.cli.trihe import agree_tri_he, render_tri_he
    from groundwatch.models.embeddings import embedder

    with progress_bar() as progress:
        task = progress.add_task("comparing triplets", total=None)
        found = agree_tri_he(
            file,
            embedder(embedding_model, cached=20_000),
            lambda done, total: progress.update(task, completed=done, total=total),
        )
    if as_json:
        print_json(found)
    else:
        render_tri_he(found, Console())


def _agree_valor(file: Path, embedding_model: str, as_json: bool) -> None:
    from groundwatch.cli.valor import agree_valor
    from groundwatch.matching.engines.semantic import SemanticEngine
    from groundwatch.models.embeddings import embedder

    result = agree_valor(file, SemanticEngine(embedder(embedding_model)).compare)
    print_json(result) if as_json else render_numbers(result, Console())


def _agree_planted(only: str | None, count: int, as_json: bool) -> None:
    from groundwatch.cli import planted

    protocols = planted.chosen(only)
    answers = planted.planted_answers(count)
    with progress_bar() as bar:
        task = bar.add_task("looking for what was planted", total=count * len(protocols))
        found = run(planted.planted(answers, protocols, lambda: bar.advance(task)))
    told = planted.report(answers, found)
    print_json(told) if as_json else planted.render(told, found, Console())


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
