"""The commands that judge and count without a server: `score` and `tally`.

Standard output holds the result and nothing else; progress goes to standard error.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from groundwatch.cli.common import ByOption, ConfigOption, JsonOption, prepare, run, show_beside
from groundwatch.cli.inputs import ImageFolder, Responses, no_images
from groundwatch.cli.numbers import render_numbers
from groundwatch.cli.output import print_json, progress_bar
from groundwatch.errors import UsageError
from groundwatch.events import ResponseRecorded
from groundwatch.protocols import registry
from groundwatch.protocols.base import Stage
from groundwatch.protocols.faithscore.protocol import FaithScore
from groundwatch.protocols.tally import TallyRequest
from groundwatch.records import Limits
from groundwatch.reporting import Beside, Report, render
from groundwatch.runtime.delivery.recording import limits
from groundwatch.runtime.settings import Settings
from groundwatch.terminal import Console

ProtocolName = Annotated[str, typer.Argument(help="The protocol, such as faithscore.", show_default=False)]
SubsetOption = Annotated[
    str | None,
    typer.Option(help="valor: the benchmark's subset, such as object-existence.", show_default=False),
]


def register(app: typer.Typer) -> None:
    """Add the commands to an application."""
    app.command("score")(score)
    app.command("tally")(tally)


def score(
    protocol: ProtocolName,
    file: Annotated[
        Path,
        typer.Argument(
            help="Recorded responses (JSON lines: id, model, prompt, answer, images, reference, tags) or "
            "FaithScore's annotations, whose facts are then the reference.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="Write one outcome a line here, with every fact and verdict.")
    ] = None,
    as_json: JsonOption = False,
    engine: Annotated[
        str, typer.Option(help="Who finds the facts: linguistic or llm. By default as in settings.")
    ] = "",
    judge: Annotated[
        str,
        typer.Option(
            help="Who judges them: reference or llm; for protocols that match with a reference lexical, "
            "semantic or llm. By default as in settings."
        ),
    ] = "",
    images: Annotated[
        Path | None, typer.Option(help="A folder of images for judges that look, by SHA-256 or file name.")
    ] = None,
    subset: SubsetOption = None,
    annotation: Annotated[
        Path | None,
        typer.Option(
            help="valor, tri-he, pope: the benchmark's own annotation of the images.", show_default=False
        ),
    ] = None,
    beside: Annotated[
        bool, typer.Option("--beside", help="Put the models into the tables that the paper published.")
    ] = False,
    by: ByOption = "",
    config: ConfigOption = None,
) -> None:
    """Judge a file with the engines of the running system; no server is needed."""
    settings = prepare(config)
    if beside and by:
        raise UsageError("--beside and --by do not go together")
    published = Beside(protocol) if beside else None
    if protocol == "valor":
        if by:
            raise UsageError("--by needs one of VALOR's protocols, such as valor-object-existence")
        if beside:
            raise UsageError("--beside needs one of VALOR's protocols, such as valor-object-existence")
        _score_valor(file, subset, annotation, out, engine, judge, settings, as_json)
        return
    if settings.faithscore.weights:
        registry.configure(FaithScore(settings.faithscore.weights))
    found = registry.get(protocol)
    responses = _responses(found.name, file, annotation, limits(settings.gateway.intake))
    report = Report(by=by)
    run(_score(found.name, responses, out, engine, judge, images, settings, published or report))
    if published is not None:
        show_beside(published, as_json)
    elif as_json:
        print_json({"protocol": found.name, **report.to_dict()})
    else:
        render(report, Console())


def tally(
    protocol: ProtocolName,
    file: Annotated[
        Path,
        typer.Argument(
            help="Recorded judgements, in the format that the work published.", show_default=False
        ),
    ],
    as_json: JsonOption = False,
    subset: SubsetOption = None,
    t: Annotated[
        int | None, typer.Option("--t", min=1, help="genception: the chains' length T.", show_default=False)
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(help="pope: the file of labels beside the answers.", show_default=False)
    ] = None,
) -> None:
    """Do only the arithmetic, from recorded judgements in the published formats."""
    found = registry.method(protocol, "tally", "tally").tally
    assert found is not None
    result = found.run(protocol, TallyRequest(file=file, subset=subset, t=t, labels=labels))
    if as_json:
        print_json(result)
    elif found.tell is not None:
        Console().print(found.tell(result))
    else:
        render_numbers(result, Console())


def _responses(
    protocol: str, file: Path, annotation: Path | None, limits: Limits
) -> Sequence[ResponseRecorded] | Responses:
    from groundwatch.cli.benchmarks import annotated_responses, answered_benchmark, is_answered_benchmark

    if annotation is not None:
        return annotated_responses(protocol, file, annotation, lambda path: Responses(path, limits))
    if protocol == "tri-he" and is_answered_benchmark(file):
        return answered_benchmark(file)
    return Responses(file, limits)


async def _score(
    protocol: str,
    responses: Sequence[ResponseRecorded] | Responses,
    out: Path | None,
    engine: str,
    judge: str,
    images: Path | None,
    settings: Settings,
    report: Report | Beside,
) -> None:
    from groundwatch.cli.judging import Judging, judging_stage
    from groundwatch.extraction import engines as extraction
    from groundwatch.matching import engines as matching
    from groundwatch.verification import engines as verification

    found = registry.get(protocol)
    loader = no_images if images is None else ImageFolder(images, settings.gateway.intake).load
    verifies = judging_stage(found) is Stage.VERIFICATION
    extracting, chosen = settings.extraction, settings.verification if verifies else settings.matching
    if engine:
        extracting = extracting.model_copy(update={"engine": engine})
    if judge:
        chosen = chosen.model_copy(update={"engine": judge})
    elif protocol == "tri-he" and not chosen.engine:
        chosen = chosen.model_copy(update={"engine": "similarity"})
    judging = Judging(
        found,
        extraction.build(extracting),
        verification.build(chosen, load_image=loader, visual=settings.visual, triton=settings.triton)
        if verifies
        else matching.build(chosen),
        settings.retry,
    )
    encoder = msgspec.json.Encoder()
    try:
        with ExitStack() as stack:
            try:
                sink = stack.enter_context(out.open("wb")) if out else None
            except OSError as error:
                raise UsageError(f"{out}: cannot be written ({error.strerror or error})") from error
            progress = stack.enter_context(progress_bar())
            task = progress.add_task(f"judging with {protocol}", total=len(responses))
            async for outcome in judging.outcomes(responses):
                report.add(outcome)
                if sink is not None:
                    sink.write(encoder.encode(outcome) + b"\n")
                progress.advance(task)
    finally:
        await judging.close()


def _score_valor(
    file: Path,
    subset: str | None,
    annotation: Path | None,
    out: Path | None,
    engine: str,
    judge: str,
    settings: Settings,
    as_json: bool,
) -> None:
    from groundwatch.cli.valor import score_valor
    from groundwatch.extraction import engines as extraction
    from groundwatch.matching import engines as matching
    from groundwatch.protocols.valor.files import SUBSETS, subset_of

    if subset is None:
        raise UsageError(f"groundwatch score valor needs --subset: one of {SUBSETS}")
    extracting, comparing = settings.extraction, settings.matching
    if engine:
        extracting = extracting.model_copy(update={"engine": engine})
    if judge:
        comparing = comparing.model_copy(update={"engine": judge})
    with progress_bar() as bar:
        task = bar.add_task(f"judging with valor, {subset}", total=None)
        scored = score_valor(
            file,
            subset_of(subset),
            annotation,
            lambda: extraction.build(extracting),
            matching.build(comparing),
            out,
            lambda done, total: bar.update(task, completed=done, total=total),
        )
        result = run(scored)
    print_json(result) if as_json else render_numbers(result, Console())
