"""How many planted hallucinations the embedded engines find, and at what cost.

Planted are errors in true sentences of the hand-written scenes. Their references are complete, without the
false facts that the scenes also list, which would tell the judge what to look for.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from groundwatch.cli.output import table_of
from groundwatch.errors import UsageError
from groundwatch.events import Decision, Reference, ResponseRecorded, ResponseScored
from groundwatch.language.subsentences import Span, split
from groundwatch.language.tokens import NUMBER_WORDS
from groundwatch.protocols import registry
from groundwatch.protocols.base import EvaluationProtocol, MatchedProtocol
from groundwatch.protocols.features import pair_text
from groundwatch.protocols.method import CommandResult, Progress
from groundwatch.protocols.planted import Kind
from groundwatch.replay.pipeline import Pipeline
from groundwatch.runtime.settings import ExtractionSettings, Settings, StageSettings
from groundwatch.statistics.intervals import Interval, wilson
from groundwatch.terminal import Group, RenderableType
from groundwatch_benchmarks.planting import Caption, PlantedAnswer, Ranking, any_of, comparable, plant, rank
from groundwatch_benchmarks.scenes import Scene, load_scenes

SEED = 7
ANSWERS = 136
DETAILS = (2, 3, 4)
"""How many sentences may follow a caption's first one."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """One protocol and kind; both are shares with Wilson's 95 % intervals, None without anything to count.

    Of comparisons whole answers are counted: found is one whose faithfulness is below 1.

    `recall`: planted ones whose sub-sentence has a refuted or unmatched claim. `false_alarms`: sub-sentences
    without anything planted that have one of this kind's category.
    """

    protocol: str
    kind: Kind
    recall: Interval | None
    false_alarms: Interval | None


def planted_answers(count: int, seed: int = SEED) -> list[PlantedAnswer]:
    """Captions from the demo's scenes in turn, with hallucinations; the same seed gives the same."""
    random = Random(seed)
    scenes = load_scenes()
    return [plant(_caption(scenes[number % len(scenes)], random), random) for number in range(count)]


def chosen(protocol: str = "") -> list[str]:
    """The protocols to look at; `UsageError` for one that claims to see nothing that is planted."""
    known = [name for name in registry.names() if registry.get(name).sees]
    if not protocol:
        return known
    found = registry.get(protocol).name
    if found not in known:
        raise UsageError(f"nothing is planted that '{found}' claims to see; it is for {', '.join(known)}")
    return [found]


async def judge_planted(
    answers: Sequence[PlantedAnswer], protocols: Sequence[str], progress: Callable[[], None]
) -> list[Found]:
    """Judge the answers by each protocol's embedded engines. `progress` is called after each answer."""
    # One for all protocols: their models take seconds to load.
    pipeline = Pipeline(
        Settings(
            extraction=ExtractionSettings(engine="reader"),
            matching=StageSettings(engine="semantic"),
            verification=StageSettings(engine="embedded"),
        )
    )
    found: list[Found] = []
    for name in protocols:
        protocol = registry.get(name)
        if Kind.COMPARISON in protocol.sees:
            rankings = planted_rankings(len(answers))
            told = [(one.answer, Reference(objects=one.things, complete=True)) for one in rankings]
            found.append(_ranked(name, rankings, await _outcomes(told, name, pipeline, progress)))
            continue
        told = [(one.answer, reference_for(protocol, one.reference)) for one in answers]
        outcomes = await _outcomes(told, name, pipeline, progress)
        found += [_found(name, kind, answers, outcomes) for kind in protocol.sees]
    return found


def reference_for(protocol: EvaluationProtocol, reference: Reference) -> Reference:
    """What the complete reference of a caption reads like for a protocol: one that matches features is given
    those of the kinds that it sees."""
    if not isinstance(protocol, MatchedProtocol):
        return reference
    kinds = protocol.sees.keys()
    related = [triplet for triplet in reference.triplets if triplet[1] not in ("is", "count")]
    if Kind.POSITION in kinds:
        texts = [_sentence(*triplet) for triplet in related]
    elif kinds & {Kind.COLOR, Kind.CLOTHING}:
        return Reference(objects=tuple(_pairs(reference)), complete=True)
    else:
        texts = [*reference.objects, *(end for subject, _, thing in related for end in (subject, thing))]
    return Reference(objects=tuple(dict.fromkeys(texts)), complete=True)


def _pairs(reference: Reference) -> list[str]:
    counts = {
        subject: NUMBER_WORDS[number]
        for subject, relation, number in reference.triplets
        if relation == "count" and number in NUMBER_WORDS
    }
    return [
        pair_text(value, subject)
        for subject, relation, value in reference.triplets
        if relation == "is"
        for _ in range(counts.get(subject, 1))
    ]


def _sentence(subject: str, relation: str, thing: str) -> str:
    finite = relation.split()[0].endswith("s") and relation.split()[0] not in ("across",)
    return f"{subject} {relation} {thing}" if finite else f"{subject} is {relation} {thing}"


def planted_rankings(count: int, seed: int = SEED) -> list[Ranking]:
    """Comparisons of what the demo's scenes show, each second one with two things exchanged."""
    random = Random(seed)
    scenes = [
        things for scene in load_scenes() if (things := comparable(scene.reference.objects, Random(seed)))
    ]
    return [rank(scenes[number // 2 % len(scenes)], random, wrong=number % 2 == 1) for number in range(count)]


async def validate(
    *,
    protocol: Annotated[str, Meta(description="Only this protocol.")] = "",
    answers: Annotated[int, Meta(ge=1, description="How many answers.")] = ANSWERS,
    progress: Progress,
) -> CommandResult:
    """How many planted hallucinations the embedded engines find, and how many false alarms they raise."""
    protocols, made = chosen(protocol), planted_answers(answers)
    judged = itertools.count(1)
    total = answers * len(protocols)
    found = await judge_planted(
        made, protocols, lambda: progress("looking for what was planted", next(judged), total)
    )
    numbers = {
        "answers": answers,
        "planted": dict(Counter(one.kind.value for answer in made for one in answer.planted)),
        "untouched": sum(len(_untouched(answer)) for answer in made),
        "found": msgspec.to_builtins(found),
    }
    return CommandResult(numbers=numbers, table=_table(numbers, found))


def _table(numbers: Mapping[str, Any], found: Sequence[Found]) -> RenderableType:
    title = f"Planted into {numbers['answers']} answers; {numbers['untouched']} sub-sentences untouched"
    table = table_of(title, "protocol", "planted", "number", "recall", "false alarms", left=2)
    for one in found:
        number = str(one.recall.n if one.recall else 0)
        table.add_row(one.protocol, one.kind.value, number, _share(one.recall), _share(one.false_alarms))
    return Group(table, "Intervals are Wilson's, 95 %.")


def _share(interval: Interval | None) -> str:
    return f"{interval.value:.3f} ({interval.low:.3f} to {interval.high:.3f})" if interval else "–"


async def _outcomes(
    told: Sequence[tuple[str, Reference]], name: str, pipeline: Pipeline, progress: Callable[[], None]
) -> list[ResponseScored]:
    responses = [
        ResponseRecorded(id=str(number), model="planted", answer=answer, reference=reference)
        for number, (answer, reference) in enumerate(told)
    ]
    outcomes = []
    async for outcome in pipeline.outcomes(name, responses):
        outcomes.append(outcome)
        progress()
    return outcomes


def _found(
    protocol: str, kind: Kind, answers: Sequence[PlantedAnswer], outcomes: Sequence[ResponseScored]
) -> Found:
    hits = alarms = total = untouched = 0
    for answer, outcome in zip(answers, outcomes, strict=True):
        spans = split(answer.answer)
        refuted = [claim for claim in outcome.claims if claim.decision is Decision.REFUTED]
        flagged = _units(spans, [outcome.units[claim.unit] for claim in refuted])
        own = registry.get(protocol).sees[kind]
        speaking = [claim for claim in refuted if not own or claim.category in own]
        wrong = _units(spans, [outcome.units[claim.unit] for claim in speaking])
        mine = [one.unit for one in answer.planted if one.kind is kind]
        clean = _untouched(answer)
        total += len(mine)
        hits += sum(unit in flagged for unit in mine)
        untouched += len(clean)
        alarms += len(clean & wrong)
    return _shares(protocol, kind, (hits, total), (alarms, untouched))


def _shares(protocol: str, kind: Kind, found: tuple[int, int], false: tuple[int, int]) -> Found:
    recall, alarms = (wilson(part, whole) if whole else None for part, whole in (found, false))
    return Found(protocol=protocol, kind=kind, recall=recall, false_alarms=alarms)


def _ranked(protocol: str, rankings: Sequence[Ranking], outcomes: Sequence[ResponseScored]) -> Found:
    """Out of order is what keeps faithfulness (6) below 1; no claim of its own is refuted for it."""
    flagged = {True: 0, False: 0}
    for ranking, outcome in zip(rankings, outcomes, strict=True):
        flagged[ranking.exchanged is not None] += outcome.values.get("faithfulness", 1.0) < 1.0
    wrong = sum(one.exchanged is not None for one in rankings)
    right = len(rankings) - wrong
    return _shares(protocol, Kind.COMPARISON, (flagged[True], wrong), (flagged[False], right))


def _units(spans: Sequence[Span], units: Sequence[Any]) -> set[int]:
    """The sub-sentences that a protocol's own units overlap."""
    return {
        index
        for index, span in enumerate(spans)
        for unit in units
        if unit.start < span.end and span.start < unit.end
    }


def _untouched(answer: PlantedAnswer) -> set[int]:
    return set(range(len(split(answer.answer)))) - {one.unit for one in answer.planted}


def _caption(scene: Scene, random: Random) -> Caption:
    """An opening and details that hold, none about the same thing as another."""
    taken = [any_of([piece for piece in scene.openings if piece.holds], random)]
    wanted = 1 + any_of(DETAILS, random)
    while len(taken) < wanted:
        about = {word for piece in taken for word in piece.about}
        free = [piece for piece in scene.details if piece.holds and about.isdisjoint(piece.about)]
        if not free:
            break
        taken.append(any_of(free, random))
    known = scene.reference
    reference = msgspec.structs.replace(known, facts=tuple(fact for fact in known.facts if fact.holds))
    return Caption(tuple(piece.text for piece in taken), reference)
