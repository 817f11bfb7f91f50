"""`groundwatch score`: a file judged or, with recorded judgements, only counted; no server is needed."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from groundwatch.cli.options import ConfigOption, JsonOption
from groundwatch.cli.output import bars, print_json, render_numbers, show_published
from groundwatch.errors import UsageError
from groundwatch.evaluation.judging import judge_file, read_responses
from groundwatch.probing.probe import with_engines
from groundwatch.protocols import registry
from groundwatch.protocols.base import load
from groundwatch.protocols.method import TallyRequest
from groundwatch.reporting import PublishedComparison, Report, render
from groundwatch.runtime.delivery.outcomes import limits
from groundwatch.system.connecting import prepare, run
from groundwatch.terminal import Console


def score(
    protocol: Annotated[str, typer.Argument(help="The protocol, such as faithscore.")],
    file: Annotated[
        Path,
        typer.Argument(
            help="Recorded responses (JSON lines: id, model, prompt, answer, images, reference, tags) or "
            "FaithScore's annotations, whose facts are then the reference. With --recorded: judgements, in "
            "the format that the work published."
        ),
    ],
    recorded: Annotated[
        bool, typer.Option("--recorded", help="Judge nothing: only the arithmetic over recorded judgements.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Write one outcome a line here, with every fact and verdict.")
    ] = None,
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
    annotation: Annotated[
        Path | None, typer.Option(help="valor, tri-he, pope: the benchmark's own annotation of the images.")
    ] = None,
    published: Annotated[
        bool, typer.Option("--published", help="Put the models into the tables that the paper published.")
    ] = False,
    by: Annotated[
        str,
        typer.Option(
            metavar="TAG", help="Tell apart responses with different values of this tag, such as strategy."
        ),
    ] = "",
    subset: Annotated[
        str | None, typer.Option(help="valor: the benchmark's subset, such as object-existence.")
    ] = None,
    t: Annotated[
        int | None, typer.Option("--t", min=1, help="genception, recorded: the chains' length T.")
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(help="pope, recorded: the file of labels beside the answers.")
    ] = None,
    share: Annotated[
        float | None,
        typer.Option(
            help="tri-he, recorded: rates on this share of object pairs, the most frequent, and on others."
        ),
    ] = None,
    tokens: Annotated[
        str,
        typer.Option(
            metavar="K,…", help="tri-he, recorded: rates over the first K tokens, such as 10,20,50."
        ),
    ] = "",
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Judge a file with the engines of the running system, or count what was judged; needs no server."""
    judging: dict[str, object] = {
        "--out": out,
        "--engine": engine,
        "--judge": judge,
        "--images": images,
        "--annotation": annotation,
        "--published": published,
        "--by": by,
        "--config": config,
    }
    arithmetic: dict[str, object] = {"--t": t, "--labels": labels, "--share": share, "--tokens": tokens}
    for option, given in (judging if recorded else arithmetic).items():
        if given not in (None, "", False):
            raise UsageError(f"{option} {'does not go with' if recorded else 'goes with'} --recorded")
    if recorded:
        request = TallyRequest(
            file=file, subset=subset, t=t, labels=labels, share=share, tokens=_numbers(tokens)
        )
        _count(protocol, request, as_json)
        return
    engines = {"extraction": engine, "verification": judge, "matching": judge}
    settings = with_engines(prepare(config), engines, protocol)
    registry.configure(settings.protocols)
    if published and by:
        raise UsageError("--published and --by do not go together")
    beside = PublishedComparison(protocol) if published else None
    method = registry.methods().get(protocol)
    if method is not None and method.file_judge:
        if by or published:
            option, one = "--by" if by else "--published", method.protocols[0].name
            raise UsageError(f"{option} needs one of the protocols of {protocol}, such as {one}")
        judge_files = load(method.file_judge)
        with bars() as tell:
            result = run(
                judge_files(
                    file, subset=subset, annotation=annotation, out=out, settings=settings, progress=tell
                )
            )
        print_json(result) if as_json else render_numbers(result, Console())
        return
    found = registry.get(protocol)
    responses = read_responses(found.name, file, annotation, limits(settings.gateway.intake))
    report = Report(by=by)
    with bars() as tell:
        progress = partial(tell, f"judging with {found.name}")
        run(judge_file(found, responses, settings, images, out, (beside or report).add, progress))
    if beside is not None:
        show_published(beside, as_json)
    elif as_json:
        print_json({"protocol": found.name, **report.to_dict()})
    else:
        render(report, Console())


def _count(protocol: str, request: TallyRequest, as_json: bool) -> None:
    tally = registry.method(protocol, "tally", "recorded judgements of").tally
    assert tally is not None
    result = tally.run(protocol, request)
    if as_json:
        print_json(result)
        return
    shown = tally.tell(result) if tally.tell is not None else None
    if shown is not None:
        Console().print(shown)
    else:
        render_numbers(result, Console())


def _numbers(text: str) -> tuple[int, ...] | None:
    if not text:
        return None
    try:
        found = sorted({int(one) for one in text.split(",")})
    except ValueError:
        found = [0]
    if found[0] < 1:
        raise UsageError(f"--tokens {text}: write numbers from 1 up with commas, such as 10,20,50")
    return tuple(found)
