"""What protocols add to the page of an answer: triplets against a scene graph, matches, a chain's rounds."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from markupsafe import Markup

from groundwatch.events import (
    ChainAdvanced,
    ClaimsMatched,
    Decision,
    JudgedClaim,
    Reference,
    ResponseScored,
)
from groundwatch.protocols.triplets import SceneGraph, blamed, triplet_of

MANY = 200
"""Facts, rounds and names that are shown of an answer."""


class TripletRow(msgspec.Struct, frozen=True, kw_only=True):
    parts: tuple[str, str, str]
    decision: Decision
    wrong: str
    graph: str


class MatchRow(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    reference: str
    kind: str


class StepRow(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    description: str
    image: str
    similarity: float | None
    gc: float | None


def triplet_rows(claims: Sequence[JudgedClaim], reference: Reference | None) -> list[TripletRow]:
    """Tri-HE's triplets, with what the scene graph makes of each where there is one."""
    graph = SceneGraph(reference.triplets, reference.objects) if reference and reference.triplets else None
    found = []
    for claim in claims:
        if (parts := triplet_of(claim)) is not None:
            found.append(
                TripletRow(
                    parts=parts,
                    decision=claim.decision,
                    wrong=blamed(claim) or "",
                    graph=graph.judge(parts).value if graph is not None else "",
                )
            )
    return found


def match_rows(judged: ClaimsMatched, reference: Reference | None) -> tuple[list[MatchRow], list[str]]:
    """What each generated feature was matched with, and objects of the reference that nothing was."""
    by_claim = {match.claim: match for match in judged.matches}
    rows = []
    for at, claim in enumerate(judged.extracted.claims[:MANY]):
        match = by_claim.get(at)
        rows.append(
            MatchRow(
                text=claim.text,
                reference=match.reference if match is not None else "",
                kind=match.kind if match is not None else "",
            )
        )
    covered = {match.reference.casefold() for match in judged.matches}
    named = reference.objects if reference is not None else ()
    return rows, [name for name in named if name.casefold() not in covered][:MANY]


def step_rows(chain: ChainAdvanced, outcome: ResponseScored | None) -> list[StepRow]:
    """A chain round by round; `gc` is GC@t where there is an outcome."""
    values = outcome.values if outcome is not None else {}
    return [
        StepRow(
            number=at,
            description=step.description,
            image=step.image,
            similarity=step.similarity,
            gc=values.get(f"gc{at}"),
        )
        for at, step in enumerate(chain.steps[:MANY], 1)
    ]


def curve(steps: Sequence[StepRow], width: int = 520, height: int = 150) -> Markup:
    """Similarity and GC@t over the rounds, drawn by the server."""
    lines = [
        (name, [(step.number, value) for step in steps if (value := getattr(step, of)) is not None])
        for name, of in (("similarity", "similarity"), ("gc", "gc"))
    ]
    if not any(len(points) > 1 for _, points in lines):
        return Markup("")
    last = max(step.number for step in steps)
    low = min(0.0, *(value for _, points in lines for _, value in points))

    def at(number: int, value: float) -> tuple[float, float]:
        x = 34 + (width - 44) * (number - 1) / max(1, last - 1)
        return x, 10 + (height - 34) * (1 - value) / (1 - low)

    drawn = []
    for level in (1.0, 0.5, 0.0):
        y = at(1, level)[1]
        drawn.append(
            Markup('<line class="rule" x1="34" x2="{}" y1="{:.1f}" y2="{:.1f}"/>').format(width - 10, y, y)
            + Markup('<text x="28" y="{:.1f}" text-anchor="end">{}</text>').format(y + 4, level)
        )
    for name, points in lines:
        placed_points = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(*point) for point in points))
        drawn.append(Markup('<g class="{}"><polyline class="line" points="{}"/>').format(name, placed_points))
        drawn += [
            Markup(
                '<circle class="point" cx="{:.1f}" cy="{:.1f}" r="3"><title>{}: {:.3f}</title></circle>'
            ).format(*at(number, value), number, value)
            for number, value in points
        ]
        drawn.append(Markup("</g>"))
    drawn += [
        Markup('<text x="{:.1f}" y="{}" text-anchor="middle">{}</text>').format(
            at(step.number, 0)[0], height - 4, step.number
        )
        for step in steps
        if last <= 12 or step.number % (last // 10) == 0
    ]
    told = ", ".join(f"{step.similarity:.2f}" for step in steps if step.similarity is not None)
    return Markup(
        '<svg class="chart curve" role="img" viewBox="0 0 {} {}" aria-label="Similarity to the first image '
        'by round: {}">{}</svg>'
    ).format(width, height, told, Markup("").join(drawn))
