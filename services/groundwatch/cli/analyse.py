"""`groundwatch analyse`: where in judged answers the hallucinations are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from groundwatch.cli.options import JsonOption
from groundwatch.cli.output import print_json
from groundwatch.errors import UsageError
from groundwatch.evaluation.analysis import KINDS, TOKENS, analysed, read
from groundwatch.protocols.trihe.scoring import FREQUENT
from groundwatch.terminal import Console, Table, box, lines


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command("analyse")(analyse)


def analyse(
    protocol: Annotated[str, typer.Argument(help="tri-he.", show_default=False)],
    file: Annotated[
        Path,
        typer.Argument(
            help="Outcomes (JSON lines) of groundwatch score tri-he --out, or the works' result JSON.",
            show_default=False,
        ),
    ],
    share: Annotated[float, typer.Option(help="Which share of object pairs is frequent.")] = FREQUENT,
    tokens: Annotated[str, typer.Option(help="Values of K, with commas.")] = ",".join(map(str, TOKENS)),
    most: Annotated[int, typer.Option(min=0, help="Name so many of the frequent pairs.")] = 10,
    as_json: JsonOption = False,
) -> None:
    """Hallucination rates on frequent object pairs (table 4) and over the first K tokens (figure 4)."""
    if protocol != "tri-he":
        raise UsageError(f"groundwatch analyse knows no analysis of '{protocol}'; known is tri-he")
    if not 0 < share <= 1:
        raise UsageError(f"--share {share}: must lie above 0 and up to 1")
    questions, undecided_count = read(file)
    found = analysed(questions, share=share, ks=_numbers(tokens), most=most, undecided_count=undecided_count)
    if as_json:
        print_json(found)
    else:
        render_analysis(found, Console())


def _numbers(text: str) -> list[int]:
    try:
        found = sorted({int(one) for one in text.split(",")})
    except ValueError:
        found = [0]
    if found[0] < 1:
        raise UsageError(f"--tokens {text}: write numbers from 1 up with commas, such as 10,20,50")
    return found


def render_analysis(found: dict[str, Any], console: Console) -> None:
    pairs = found["pairs"]
    table = Table(
        title=f"{found['triplets']} triplets of {found['responses']} responses; "
        f"{pairs['frequent']} of {pairs['different']} object pairs are the frequent {pairs['share']:.0%}",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    table.add_column("triplets", no_wrap=True)
    for kind in KINDS:
        for rate in ("Hallu_I", "Hallu_Q"):
            table.add_column(lines(rate, kind or "overall"), justify="right")
    for name, rows in (
        ("all", found["overall"]),
        ("frequent pairs", pairs["on_frequent"]),
        ("other pairs", pairs["on_others"]),
    ):
        cells = [rows[kind or "overall"][rate] for kind in KINDS for rate in ("hallu_i", "hallu_q")]
        table.add_row(name, *map(_shown, cells))
    for one in found["by_tokens"] or ():
        table.add_row(f"first {one['k']} tokens", _shown(one["hallu_i"]), _shown(one["hallu_q"]))
    console.print(table)
    if found["by_tokens"] is None:
        console.print("How early a triplet is said is not known from this file.")
    named = ", ".join(f"{' – '.join(one['pair'])} ({one['said']})" for one in pairs["most_frequent"])
    if named:
        console.print(f"Most frequent pairs: {named}")


def _shown(rate: float | None) -> str:
    return "–" if rate is None else f"{rate:.3f}"
