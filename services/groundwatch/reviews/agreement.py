"""How far first judges agree with people, and people with each other, fact by fact, as opinions come in."""

import asyncio
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from groundwatch.errors import MissingExtraError
from groundwatch.events import Decision, OpinionGiven, ResponseScored
from groundwatch.reviews.opinions import Opinions
from groundwatch.reviews.queues import Queues, QueueSpec
from groundwatch.runtime.delivery.bus import ENCODER, Bus
from groundwatch.runtime.delivery.streams import decoded
from groundwatch.runtime.stores.buckets import Bucket
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.statistics.agreement import Table, cohen_kappa, fleiss_kappa, krippendorff_alpha
from groundwatch.statistics.alarm import ALL
from groundwatch.statistics.intervals import Interval, RatioSums, cluster_rate, student
from groundwatch.topology import OUTCOMES, QUEUES_BUCKET, subject_of

LATEST = 200
"""Answers that are compared with those before them; of fewer than twice as many, the later half."""

LEAST_REFUTED = 20
"""Facts that people or the judges refute, fewer of which tell no κ: where one of a thousand facts is wrong, a
single one that is missed makes it 0, and its interval knows of no other."""


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


Pairs = Counter[tuple[bool, bool]]
"""Of an answer's facts, how often people say that one does not hold, and how often the judges do."""


class JudgeDrift(msgspec.Struct, frozen=True, kw_only=True):
    """κ of a set of first judges and people, over the answers that were recorded last and over those before.

    They are of all queues that were drawn alike; `queue` is the newest of these. None where too few facts are
    refuted.
    """

    protocol: str
    fingerprint: str
    queue: str
    before: Interval | None
    latest: Interval | None


class JudgedAnswer(msgspec.Struct, frozen=True):
    """What people and the first judges say of an answer; `recorded_at` is in seconds since the epoch."""

    fingerprint: str
    recorded_at: float
    pairs: Pairs


def drifts_of(
    specs: Iterable[QueueSpec], opinions: Iterable[OpinionGiven], pairs_of: Mapping[tuple[str, str], Pairs]
) -> tuple[JudgeDrift, ...]:
    """By protocol, set of judges and way of drawing; `pairs_of` has the answers' by protocol and key.

    An opinion that no rule drew says nothing here, nor one on an alarm's answers, which are not as others.
    """
    known = {spec.name: spec for spec in specs if spec.rule != "alarm"}
    groups: dict[tuple[object, ...], dict[str, JudgedAnswer]] = defaultdict(dict)
    newest: dict[tuple[object, ...], QueueSpec] = {}
    for opinion in opinions:
        spec = known.get(opinion.queue)
        pairs = pairs_of.get((opinion.protocol, opinion.key))
        if spec is None or not spec.has(opinion) or not pairs or opinion.probability <= 0:
            continue
        group = (opinion.protocol, opinion.fingerprint, *_drawing(spec))
        groups[group][opinion.key] = JudgedAnswer(opinion.fingerprint, opinion.recorded_at, pairs)
        newest[group] = max(newest.get(group, spec), spec, key=lambda one: (one.created_at, one.name))
    found = (
        _drift(newest[group], sorted(answers.values(), key=lambda one: one.recorded_at))
        for group, answers in groups.items()
    )
    return tuple(sorted(found, key=lambda one: (one.protocol, one.fingerprint, one.queue)))


def _drawing(spec: QueueSpec) -> tuple[object, ...]:
    """What two queues have in common of which either could have drawn the other's answers."""
    rule = "random" if spec.rule == "all" else spec.rule
    return rule, spec.model, spec.tenant, spec.version, spec.tag, spec.category, spec.verdict


def _drift(spec: QueueSpec, answers: Sequence[JudgedAnswer]) -> JudgeDrift:
    at = len(answers) - min(LATEST, len(answers) // 2)
    return JudgeDrift(
        protocol=spec.protocol,
        fingerprint=answers[0].fingerprint,
        queue=spec.name,
        before=_kappa(answers[:at]),
        latest=_kappa(answers[at:]),
    )


def _kappa(answers: Sequence[JudgedAnswer]) -> Interval | None:
    tables = [table_of(one.pairs) for one in answers]
    if sum(both + people + judges for both, people, judges, _ in tables) < LEAST_REFUTED:
        return None
    return cohen_kappa(tables, resamples=RESAMPLES)


def table_of(pairs: Pairs) -> Table:
    return pairs[True, True], pairs[True, False], pairs[False, True], pairs[False, False]


KEY = "agreement"
REMEMBERED = 100_000
OF_MODELS = 10_000
"""The latest opinions of models, which come by themselves: of each the outcome is looked up."""

RESAMPLES = 500
NUMBERS = ("value", "low", "high", "n")
"""Of an interval, what metrics show."""

_SCORED = msgspec.json.Decoder(ResponseScored)

Verdicts = tuple[tuple[Decision, int], ...]
"""Of an outcome's claims, in their order, with a hash of the text."""


class JudgeAgreement(msgspec.Struct, frozen=True, kw_only=True):
    """A set of first judges against people, over facts that both decided; what a fact that does not hold is
    called, is counted: `precision` of those that the judges refuted, `recall` of those that people did.

    In the category `mark` people's marks of whole answers, 1 to 5, are held against the judges' rates on the
    same scale: `facts` counts marks, and `kappa` is Fleiss' of two labels each.
    """

    protocol: str
    fingerprint: str
    category: str
    answers: int
    facts: int
    kappa: Interval | None
    f1: Interval | None
    precision: Interval | None
    recall: Interval | None


class ReviewerAgreement(msgspec.Struct, frozen=True, kw_only=True):
    """People against each other, over facts that at least two decided; in the category `mark`, answers.

    `fleiss` is over those with as many reviewers as most have.
    """

    protocol: str
    category: str
    facts: int
    reviewers: int
    fleiss: Interval | None
    alpha: Interval | None


class JudgeBias(msgspec.Struct, frozen=True, kw_only=True):
    """How much more of the facts in a `part` the first judges refute than second opinions do, as a share.

    A part is a third of the answer's facts, in their order, or a family of models under test. Opinions are
    those that a rule drew, weighted so that they stand for all answers; `by` people or a model.
    """

    protocol: str
    fingerprint: str
    by: str
    part: str
    answers: int
    facts: int
    bias: Interval


THIRDS = ("first third", "second third", "last third")

MARK = "mark"
MARKS = range(1, 6)


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    at: float = 0.0
    judges: tuple[JudgeAgreement, ...] = ()
    reviewers: tuple[ReviewerAgreement, ...] = ()
    drift: tuple[JudgeDrift, ...] = ()
    bias: tuple[JudgeBias, ...] = ()


async def read_agreement(bus: Bus) -> Agreement:
    """What the annotation service wrote down last. Raises `Unavailable`."""
    return await Bucket(bus, QUEUES_BUCKET).read_as(KEY, Agreement) or Agreement()


async def write_agreement(bus: Bus, agreement: Agreement) -> None:
    await Bucket(bus, QUEUES_BUCKET).replace(KEY, ENCODER.encode(agreement))


class AgreementReader:
    """Remembers what judges said of the answers that have opinions."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.unreadable = 0
        self._known: dict[tuple[str, str, str], Verdicts] = {}

    async def compute(self, at: float) -> Agreement:
        """Over all opinions that are kept but objections, and the latest of models, for the bias alone;
        `unreadable` ones are skipped. Raises `Unavailable`."""
        reading = Opinions(self._bus)
        told = [one for one in await reading.latest() if not one.objection and (one.facts or one.mark)]
        self.unreadable = reading.unreadable
        models = sorted((one for one in told if one.judge is not None), key=lambda one: one.given_at)
        opinions = [*(one for one in told if one.judge is None), *models[-OF_MODELS:]]
        places = list(dict.fromkeys(map(_place, opinions)))[:REMEMBERED]
        for place in places:
            if place not in self._known:
                self._known[place] = await self._verdicts(*place)
        self._known = {place: self._known[place] for place in places}
        specs = await Queues(self._bus).list()
        return await asyncio.to_thread(agreement_of, opinions, self._known, at, specs)

    async def _verdicts(self, run: str, protocol: str, key: str) -> Verdicts:
        """None of an answer that is kept no longer."""
        subject = subject_of("outcome", run, protocol, key)
        found = await self._bus.history.last(OUTCOMES, subject)
        outcome = decoded(_SCORED, found) if found is not None else None
        return verdicts_of(outcome) if outcome is not None else ()


def verdicts_of(outcome: ResponseScored) -> Verdicts:
    return tuple((one.decision, hash(one.text)) for one in outcome.claims)


def agreement_of(
    opinions: Sequence[OpinionGiven],
    verdicts: Mapping[tuple[str, str, str], Verdicts],
    at: float = 0.0,
    specs: Iterable[QueueSpec] = (),
) -> Agreement:
    """By protocol and category, and of first judges by their set; drift in the queues of `specs`. Facts that
    a reviewer added, removed or wrote anew have no verdict to be held against."""
    specs = list(specs)
    bias = biases_of(specs, opinions, verdicts)
    opinions = [one for one in opinions if one.judge is None]
    judged: dict[tuple[str, str, str], dict[str, Pairs]] = defaultdict(dict)
    labels: dict[tuple[str, str], dict[tuple[str, int], Counter[bool]]] = defaultdict(dict)
    for opinion in opinions:
        claims = verdicts.get(_place(opinion), ())
        for fact in opinion.facts:
            if fact.claim is None or fact.removed or fact.decision is Decision.UNDECIDED:
                continue
            wrong = fact.decision is Decision.REFUTED
            judge, text = claims[fact.claim] if fact.claim < len(claims) else (Decision.UNDECIDED, 0)
            if claims and text != hash(fact.text):
                continue
            for category in (ALL, fact.category):
                of_fact = labels[opinion.protocol, category].setdefault((opinion.key, fact.claim), Counter())
                of_fact[wrong] += 1
                if judge is not Decision.UNDECIDED:
                    pair = (wrong, judge is Decision.REFUTED)
                    group = judged[opinion.protocol, opinion.fingerprint, category]
                    group.setdefault(opinion.key, Counter())[pair] += 1
    by_rate, among = _marks(opinions)
    pairs_of = {
        (protocol, key): pairs
        for (protocol, _, category), answers in judged.items()
        if category == ALL
        for key, pairs in answers.items()
    }
    return Agreement(
        at=at,
        judges=(*(_judges(*name, found) for name, found in sorted(judged.items())), *by_rate),
        reviewers=(
            *(
                row
                for name, facts in sorted(labels.items())
                if (row := _among(*name, facts.values(), (True, False))) is not None
            ),
            *among,
        ),
        drift=drifts_of(specs, opinions, pairs_of),
        bias=bias,
    )


def biases_of(
    specs: Iterable[QueueSpec],
    opinions: Iterable[OpinionGiven],
    verdicts: Mapping[tuple[str, str, str], Verdicts],
) -> tuple[JudgeBias, ...]:
    """By protocol, set of judges, who gave the opinion, and part; none of a part of one answer alone.

    Queues whose answers were chosen by what the first judges said of them say nothing here.
    """
    chosen = {spec.name for spec in specs if spec.rule == "alarm" or spec.verdict is not None}
    counting = [one for one in opinions if one.probability > 0 and one.queue not in chosen and one.facts]
    several = Counter((_place(one), one.judge is None) for one in counting)
    groups: dict[tuple[str, str, str, str], dict[str, list[float]]] = defaultdict(dict)
    facts = Counter[tuple[str, str, str, str]]()
    for one in counting:
        claims, by = verdicts.get(_place(one), ()), "people" if one.judge is None else "model"
        # Several of one answer count as one, their mean.
        weight = one.weight / one.probability / several[_place(one), one.judge is None]
        for fact in one.facts:
            if fact.claim is None or fact.claim >= len(claims) or fact.removed:
                continue
            judged, text = claims[fact.claim]
            if text != hash(fact.text) or Decision.UNDECIDED in (judged, fact.decision):
                continue
            more = (judged is Decision.REFUTED) - (fact.decision is Decision.REFUTED)
            for part in (THIRDS[3 * fact.claim // len(claims)], f"family {family(one.model)}"):
                group = (one.protocol, one.fingerprint, by, part)
                sums = groups[group].setdefault(one.key, [0.0, 0.0])
                sums[0] += weight * more
                sums[1] += weight
                facts[group] += 1
    return tuple(
        JudgeBias(
            protocol=group[0],
            fingerprint=group[1],
            by=group[2],
            part=group[3],
            answers=len(answers),
            facts=facts[group],
            bias=_ratio([*answers.values()]),
        )
        for group, answers in sorted(groups.items())
        if len(answers) > 1
    )


def family(model: str) -> str:
    """The first word of a model's name: `qwen` of Qwen/Qwen3-VL-8B."""
    found = re.search(r"[^\W\d_]+", model.rpartition("/")[2])
    return found[0].lower() if found else "other"


def _ratio(sums: Sequence[Sequence[float]]) -> Interval:
    """Σ x / Σ y of at least two answers with its 95 % interval, linearised; it may be below 0."""
    n, whole = len(sums), sum(y for _, y in sums)
    value = sum(x for x, _ in sums) / whole
    variance = n / (n - 1) * sum((x - value * y) ** 2 for x, y in sums) / whole**2
    reach = student(n - 1) * math.sqrt(variance)
    return Interval(value, max(-1.0, value - reach), min(1.0, value + reach), n)


def _judges(protocol: str, fingerprint: str, category: str, answers: Mapping[str, Pairs]) -> JudgeAgreement:
    tables = [table_of(one) for one in answers.values()]
    precision, recall, f1 = RatioSums(), RatioSums(), RatioSums()
    for both, people, judge, _ in tables:
        precision.add(both, both + judge)
        recall.add(both, both + people)
        f1.add(2 * both, 2 * both + people + judge)
    return JudgeAgreement(
        protocol=protocol,
        fingerprint=fingerprint,
        category=category,
        answers=len(tables),
        facts=sum(map(sum, tables)),
        kappa=cohen_kappa(tables, resamples=RESAMPLES),
        f1=cluster_rate(f1),
        precision=cluster_rate(precision),
        recall=cluster_rate(recall),
    )


def _marks(opinions: Iterable[OpinionGiven]) -> tuple[list[JudgeAgreement], list[ReviewerAgreement]]:
    """Five-point marks against what judges made of the same answers, and among reviewers."""
    against: dict[tuple[str, str], list[Sequence[int]]] = defaultdict(list)
    answers: dict[tuple[str, str], set[str]] = defaultdict(set)
    given: dict[str, dict[str, Counter[int]]] = defaultdict(dict)
    for one in opinions:
        if one.mark is None:
            continue
        given[one.protocol].setdefault(one.key, Counter())[one.mark] += 1
        refuted, decided = one.judged.get(ALL, (0, 0))
        if decided:
            both = Counter((one.mark, likert(refuted, decided)))
            against[one.protocol, one.fingerprint].append([both[mark] for mark in MARKS])
            answers[one.protocol, one.fingerprint].add(one.key)
    judges = [
        JudgeAgreement(
            protocol=protocol,
            fingerprint=fingerprint,
            category=MARK,
            answers=len(answers[protocol, fingerprint]),
            facts=len(pairs),
            kappa=_fleiss(pairs),
            f1=None,
            precision=None,
            recall=None,
        )
        for (protocol, fingerprint), pairs in sorted(against.items())
    ]
    rows = (_among(protocol, MARK, marks.values(), MARKS) for protocol, marks in sorted(given.items()))
    return judges, [row for row in rows if row is not None]


def _fleiss(items: Sequence[Sequence[int]]) -> Interval | None:
    try:
        return fleiss_kappa(items, resamples=RESAMPLES)
    except MissingExtraError:
        return None


def _among(
    protocol: str, category: str, given: Iterable[Counter[Any]], labels: Sequence[Any]
) -> ReviewerAgreement | None:
    items = [[one[label] for label in labels] for one in given if one.total() > 1]
    if not items:
        return None
    most = Counter(map(sum, items)).most_common(1)[0][0]
    fleiss = _fleiss([one for one in items if sum(one) == most])
    return ReviewerAgreement(
        protocol=protocol,
        category=category,
        facts=len(items),
        reviewers=most,
        fleiss=fleiss,
        alpha=krippendorff_alpha(items, resamples=RESAMPLES),
    )


def agreement_metrics(metrics: Metrics, agreement: Agreement) -> None:
    """κ, F1, precision, recall and α with their limits, and drift; what is undefined is not shown."""
    metrics.agreement.clear()
    rows = [
        (one.protocol, one.fingerprint, one.category, name, getattr(one, name))
        for one in agreement.judges
        for name in ("kappa", "f1", "precision", "recall")
    ]
    rows += [
        (one.protocol, "", one.category, name, getattr(one, name))
        for one in agreement.reviewers
        for name in ("fleiss", "alpha")
    ]
    for protocol, judges, category, measure, found in rows:
        if found is not None:
            for number in NUMBERS:
                shown = metrics.agreement.labels(protocol, judges, category[:128], measure, number)
                shown.set(getattr(found, number))
    metrics.judge_drift.clear()
    for drift in agreement.drift:
        for answers, kappa in (("before", drift.before), ("latest", drift.latest)):
            for number in NUMBERS if kappa is not None else ():
                labels = (drift.protocol, drift.fingerprint, drift.queue, answers, number)
                metrics.judge_drift.labels(*labels).set(getattr(kappa, number))


def _place(opinion: OpinionGiven) -> tuple[str, str, str]:
    return opinion.run, opinion.protocol, opinion.key
