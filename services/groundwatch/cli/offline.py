"""The commands that judge and count without a server: `score` and `tally`.

Standard output holds the result and nothing else; progress goes to standard error.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from groundwatch.cli.options import ByOption, ConfigOption, JsonOption
from groundwatch.cli.output import Bars, print_json, render_numbers, show_beside
from groundwatch.errors import UsageError
from groundwatch.evaluation.judging import judge_file, read_responses, with_engines
from groundwatch.protocols import registry
from groundwatch.protocols.faithscore.protocol import FaithScore
from groundwatch.protocols.tally import TallyRequest
from groundwatch.reporting import Beside, Report, render
from groundwatch.runtime.delivery.recording import limits
from groundwatch.runtime.settings import Settings
from groundwatch.system.connecting import prepare, run
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
    settings = with_engines(prepare(config), engine, judge)
    if beside and by:
        raise UsageError("--beside and --by do not go together")
    published = Beside(protocol) if beside else None
    if protocol == "valor":
        if by:
            raise UsageError("--by needs one of VALOR's protocols, such as valor-object-existence")
        if beside:
            raise UsageError("--beside needs one of VALOR's protocols, such as valor-object-existence")
        _score_valor(file, subset, annotation, out, settings, as_json)
        return
    if settings.faithscore.weights:
        registry.configure(FaithScore(settings.faithscore.weights))
    found = registry.get(protocol)
    responses = read_responses(found.name, file, annotation, limits(settings.gateway.intake))
    report = Report(by=by)
    with Bars() as bars:
        tell = partial(bars.tell, f"judging with {found.name}")
        run(judge_file(found, responses, settings, images, out, (published or report).add, tell))
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


def _score_valor(
    file: Path,
    subset: str | None,
    annotation: Path | None,
    out: Path | None,
    settings: Settings,
    as_json: bool,
) -> None:
    from groundwatch.evaluation.valor import score_valor
    from groundwatch.extraction import engines as extraction
    from groundwatch.matching import engines as matching
    from groundwatch.protocols.valor.files import SUBSETS, subset_of

    if subset is None:
        raise UsageError(f"groundwatch score valor needs --subset: one of {SUBSETS}")
    with Bars() as bars:
        scored = score_valor(
            file,
            subset_of(subset),
            annotation,
            lambda: extraction.build(settings.extraction),
            matching.build(settings.matching),
            out,
            partial(bars.tell, f"judging with valor, {subset}"),
        )
        result = run(scored)
    print_json(result) if as_json else render_numbers(result, Console())
