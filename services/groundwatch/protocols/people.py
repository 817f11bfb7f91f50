"""What people say of the same items: how far they agree with each other, and how far a judge does with them.

Annotators: one JSON object a line with `item`, `annotator`, `label`. Any question with a handful of answers
fits: is this fact in the image, is this sub-sentence descriptive, which object is the same.

Verdicts: one JSON object a line, the response by `id` (and `tenant`), the `protocol`, the `claim` as its text
or as its number from 0 among the outcome's claims, and `holds`: whether it is in the image.

Scores: one JSON object a line, the response by `id` (and `tenant`), with `scores` as people give them, each
under the name of the number that it is held against, and the objects that the answer names (`mentioned`),
those of them that are not in the image also in `hallucinated`. Tables 4 and 6 of VALOR-Eval, table 3 of
Tri-HE and tables 3 and 7 of FaithScore are made of such.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from groundwatch.errors import UsageError
from groundwatch.events import Decision, ResponseScored
from groundwatch.protocols.base import folded
from groundwatch.protocols.published import Place, read_lines
from groundwatch.statistics.agreement import correlations, fleiss_kappa, krippendorff_alpha
from groundwatch.statistics.intervals import Interval, RatioSums, bootstrap, cluster_rate

PEOPLE = (Decision.SUPPORTED.value, Decision.REFUTED.value)
JUDGE = tuple(decision.value for decision in Decision)


class _Row(msgspec.Struct):
    item: str | int
    annotator: str | int
    label: str | int | bool


class Annotation(msgspec.Struct, frozen=True):
    item: str
    annotator: str
    label: str


class AnnotatorAgreement(msgspec.Struct, frozen=True, kw_only=True):
    """What `groundwatch validate annotators` prints.

    Fleiss' κ wants the same number of labels on every item: it is over the `fleiss_items` items that have
    `fleiss_labels` labels each, the commonest number from two up. α is over every item with at least two.
    Either is None where it is undefined. `labels` counts how often each label was given.
    """

    fleiss_kappa: Interval | None
    krippendorff_alpha: Interval | None
    items: int
    annotators: int
    annotations: int
    labels: dict[str, int]
    fleiss_items: int
    fleiss_labels: int


def read_annotators(path: str | Path) -> list[Annotation]:
    found: list[Annotation] = []
    lines: dict[tuple[str, str], int] = {}
    for place, row in read_lines(Path(path), _Row):
        for key in ("item", "annotator"):
            if not str(getattr(row, key)).strip():
                raise place.wrong(f"key '{key}': is empty")
        label = str(row.label).lower() if isinstance(row.label, bool) else str(row.label)
        one = Annotation(str(row.item), str(row.annotator), label)
        before = lines.setdefault((one.item, one.annotator), place.line)
        if before != place.line:
            raise place.wrong(
                f"key 'annotator': '{one.annotator}' labelled item '{one.item}' in line {before} already"
            )
        found.append(one)
    return found


def annotator_agreement(
    annotations: Sequence[Annotation], *, seed: int = 0, resamples: int = 1000
) -> AnnotatorAgreement:
    """κ and α with bootstrap intervals over items. Raises `MissingExtraError` without statsmodels."""
    labels = Counter(one.label for one in annotations)
    by_item: dict[str, Counter[str]] = {}
    for one in annotations:
        by_item.setdefault(one.item, Counter())[one.label] += 1
    order = sorted(labels)
    items = [tuple(counts[label] for label in order) for counts in by_item.values()]
    sizes = Counter(size for counts in items if (size := sum(counts)) > 1)
    commonest = max(sizes, key=lambda size: (sizes[size], size), default=0)
    complete = [counts for counts in items if sum(counts) == commonest]
    return AnnotatorAgreement(
        fleiss_kappa=fleiss_kappa(complete, seed=seed, resamples=resamples),
        krippendorff_alpha=krippendorff_alpha(items, seed=seed, resamples=resamples),
        items=len(items),
        annotators=len({one.annotator for one in annotations}),
        annotations=len(annotations),
        labels={label: labels[label] for label in order},
        fleiss_items=len(complete),
        fleiss_labels=commonest,
    )


class PersonsVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What one person says of one claim: a line of the file."""

    id: str
    tenant: str = "default"
    protocol: str
    claim: str | int
    holds: bool


class VerdictAgreement(msgspec.Struct, frozen=True, kw_only=True):
    """What `groundwatch validate verdicts` prints for one protocol.

    `agreement` is over the claims that the judge decided, with whole responses as what is drawn; `kappa` is
    Cohen's (1960), None where one answer alone was given. `counts` has people's verdict, then the judge's.
    """

    agreement: Interval | None
    kappa: float | None
    verdicts: int
    undecided: int
    counts: dict[str, dict[str, int]]


def decision_on(verdict: PersonsVerdict, outcome: ResponseScored) -> Decision | None:
    """What the judge said of the same claim; None when the outcome has no such claim."""
    if isinstance(verdict.claim, int):
        inside = 0 <= verdict.claim < len(outcome.claims)
        return outcome.claims[verdict.claim].decision if inside else None
    return next((claim.decision for claim in outcome.claims if claim.text == verdict.claim), None)


def verdict_agreement(judged: Iterable[tuple[PersonsVerdict, Decision]]) -> dict[str, VerdictAgreement]:
    counts: dict[str, Counter[tuple[str, str]]] = {}
    responses: dict[str, dict[tuple[str, str], list[bool]]] = {}
    for verdict, decision in judged:
        people = PEOPLE[0] if verdict.holds else PEOPLE[1]
        counts.setdefault(verdict.protocol, Counter())[people, decision.value] += 1
        if decision is not Decision.UNDECIDED:
            of_protocol = responses.setdefault(verdict.protocol, {})
            of_protocol.setdefault((verdict.tenant, verdict.id), []).append(people == decision.value)
    return {
        protocol: _agreement(counts[protocol], responses.get(protocol, {}).values())
        for protocol in sorted(counts)
    }


def _agreement(counts: Counter[tuple[str, str]], responses: Iterable[list[bool]]) -> VerdictAgreement:
    sums = RatioSums()
    for same in responses:
        sums.add(sum(same), len(same))
    return VerdictAgreement(
        agreement=cluster_rate(sums),
        kappa=_kappa(counts),
        verdicts=counts.total(),
        undecided=sum(counts[people, Decision.UNDECIDED.value] for people in PEOPLE),
        counts={people: {judge: counts[people, judge] for judge in JUDGE} for people in PEOPLE},
    )


def _kappa(counts: Counter[tuple[str, str]]) -> float | None:
    total = sum(counts[people, judge] for people in PEOPLE for judge in PEOPLE)
    if not total:
        return None
    by_people = {one: sum(counts[one, judge] for judge in PEOPLE) / total for one in PEOPLE}
    by_judge = {one: sum(counts[people, one] for people in PEOPLE) / total for one in PEOPLE}
    by_chance = sum(by_people[one] * by_judge[one] for one in PEOPLE)
    if by_chance == 1:
        return None
    return (sum(counts[one, one] for one in PEOPLE) / total - by_chance) / (1 - by_chance)


class PersonsScores(msgspec.Struct, frozen=True, kw_only=True):
    """What people say of one whole answer: a line of the file."""

    id: str
    tenant: str = "default"
    scores: dict[str, float] = {}
    mentioned: tuple[str, ...] = ()
    hallucinated: tuple[str, ...] = ()


class FoundObjects(msgspec.Struct, frozen=True, kw_only=True):
    """The objects of one answer: `detected` by a metric, which `flagged` some, beside people's."""

    detected: frozenset[str]
    flagged: frozenset[str]
    mentioned: frozenset[str]
    hallucinated: frozenset[str]


class ScoreAgreement(msgspec.Struct, frozen=True, kw_only=True):
    """What `groundwatch validate scores` prints for one model under one protocol.

    `scores` has for each that people gave the coefficients of correlation with the outcomes' number of that
    name; None where fewer than three answers have both, or one side never varies. `accuracy_faithfulness`
    and `accuracy_coverage` are Acc (F) and Acc (C) of VALOR-Eval's table 6, over the answers whose objects
    people named.
    """

    protocol: str
    model: str
    answers: int
    scores: dict[str, dict[str, Interval | None]]
    accuracy_faithfulness: Interval | None
    accuracy_coverage: Interval | None


def score_agreement(
    people: Iterable[tuple[Place, PersonsScores]], outcomes: Iterable[ResponseScored]
) -> list[ScoreAgreement]:
    """By protocol and model; intervals draw answers.

    Raises `FileFormatError` for what people say twice, or of an answer that has no outcome; `UsageError`
    where a stage had different judges, whose scores never mix. `MissingExtraError` without scipy.
    """
    judged: dict[tuple[str, str], list[ResponseScored]] = {}
    for outcome in outcomes:
        judged.setdefault((outcome.tenant, outcome.id), []).append(outcome)
    seen: dict[tuple[str, str], int] = {}
    pairs: dict[tuple[str, str], list[tuple[PersonsScores, ResponseScored]]] = {}
    for place, said in people:
        key = said.tenant, said.id
        if key not in judged:
            raise place.wrong(f"key 'id': there is no outcome of response '{said.id}'")
        if seen.setdefault(key, place.line) != place.line:
            raise place.wrong(f"key 'id': response '{said.id}' is in line {seen[key]} already")
        for outcome in judged[key]:
            pairs.setdefault((outcome.protocol, outcome.model), []).append((said, outcome))
    return [_score_agreement(*whose, found) for whose, found in sorted(pairs.items())]


def _score_agreement(
    protocol: str, model: str, pairs: Sequence[tuple[PersonsScores, ResponseScored]]
) -> ScoreAgreement:
    judges = {(stage, judge) for _, outcome in pairs for stage, judge in outcome.judges.items()}
    for stage, number in Counter(stage for stage, _ in judges).items():
        if number > 1:
            raise UsageError(f"{protocol}: answers of {model} had different judges at {stage}; give one's")
    scores = {}
    for name in sorted({name for said, _ in pairs for name in said.scores}):
        both = [
            (said.scores[name], value)
            for said, outcome in pairs
            if name in said.scores
            and (value := outcome.score if name == "score" else outcome.values.get(name)) is not None
        ]
        scores[name] = correlations([first for first, _ in both], [second for _, second in both])
    # One without values was not judged; one without claims was, and nothing was found.
    objects = [_objects(said, outcome) for said, outcome in pairs if said.mentioned and outcome.values]
    return ScoreAgreement(
        protocol=protocol,
        model=model,
        answers=len(pairs),
        scores=scores,
        accuracy_faithfulness=bootstrap(objects, lambda drawn: object_accuracy(drawn)[0]),
        accuracy_coverage=bootstrap(objects, lambda drawn: object_accuracy(drawn)[1]),
    )


def _objects(said: PersonsScores, outcome: ResponseScored) -> FoundObjects:
    """A claim's object goes by people's name for it, where one is the claim's text or one of its parts."""
    hallucinated = frozenset(map(folded, said.hallucinated))
    mentioned = frozenset(map(folded, said.mentioned)) | hallucinated
    named = [
        (min(names & mentioned or names), claim.decision)
        for claim in outcome.claims
        if (names := {folded(text) for text in (claim.text, *claim.parts)})
    ]
    return FoundObjects(
        detected=frozenset(name for name, _ in named),
        flagged=frozenset(name for name, decision in named if decision is Decision.REFUTED),
        mentioned=mentioned,
        hallucinated=hallucinated,
    )


def object_accuracy(answers: Sequence[FoundObjects]) -> tuple[float | None, float | None]:
    """Acc (F) and Acc (C) of VALOR-Eval's section 5.3, in shares; None where people found nothing to detect.

    Acc (F): hallucinated objects that the metric flagged, less one for each object that it flagged wrongly,
    over all hallucinated ones; it may be negative. Acc (C): objects that the metric detected over the
    unique objects of the captions. Both are sums over the captions divided once, as the table's figures
    (11.11 of 9, 30.00 of 10, 5.88 of 17) show.
    """
    flagged = sum(
        len(one.flagged & one.hallucinated) - len(one.flagged - one.hallucinated) for one in answers
    )
    detected = sum(len(one.detected & one.mentioned) for one in answers)
    return (
        _share(flagged, sum(len(one.hallucinated) for one in answers)),
        _share(detected, sum(len(one.mentioned) for one in answers)),
    )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def likert(hallucinated: int, facts: int) -> int:
    """FaithScore's 1 to 5 (Appendix A) for an answer with `facts` facts of which some are hallucinated.

    The appendix' formulas leave out exactly half, which its words give to 3 ("half or fewer"). Raises
    `ValueError` without facts or with more hallucinated than there are.
    """
    if facts < 1 or not 0 <= hallucinated <= facts:
        raise ValueError(f"{hallucinated} hallucinated of {facts} facts")
    if hallucinated == 0:
        return 5
    if hallucinated == facts:
        return 1
    if 2 * hallucinated > facts:
        return 2
    return 3 if 3 * hallucinated >= facts else 4
