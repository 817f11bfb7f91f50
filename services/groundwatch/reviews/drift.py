"""Whether people agree less with a set of first judges than they did.

κ is compared among answers that were drawn alike: one who reviews the doubtful answers after a random part
agrees less with the same judges.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from groundwatch.events import OpinionGiven
from groundwatch.reviews.queues import QueueSpec
from groundwatch.statistics.agreement import Table, cohen_kappa
from groundwatch.statistics.intervals import Interval

LATEST = 200
"""Answers that are compared with those before them; of fewer than twice as many, the later half."""

LEAST_REFUTED = 20
"""Facts that people or the judges refute, fewer of which tell no κ: where one of a thousand facts is wrong, a
single one that is missed makes it 0, and its interval knows of no other."""

RESAMPLES = 500

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
