"""What each queue tells of rates: the first judges' sums over all that it was drawn from, and those
answers that have a second opinion."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from groundwatch.events import Decision, OpinionGiven
from groundwatch.reporting.corrected import EVERY_VERSION, By
from groundwatch.reviews.frames import Frame, Frames, Group
from groundwatch.reviews.opinions import Opinions
from groundwatch.reviews.queues import Queues, QueueSpec
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.statistics.alarm import ALL
from groundwatch.statistics.prediction_powered import Labelled, Sample
from groundwatch.statistics.sampling import WeightedSums

VersionOf = Callable[[Mapping[str, str]], str]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that was drawn and has opinions: by category, and of `all`, how many facts are (refuted,
    decided) in their mean, and of these claims by the first judges."""

    key: str
    version: str
    recorded_at: float
    weight: float
    probability: float
    facts: dict[str, tuple[float, float]]
    judged: dict[str, tuple[int, int]]


class QueueSamples:
    """The samples of one queue, by model, version and set of judges, and for `*` of all versions together.

    An opinion that no rule drew counts nowhere. Several of one answer count as one, their mean. Of those that
    were drawn only some may have an opinion yet: then each was less likely to have one, all alike.
    """

    def __init__(
        self, spec: QueueSpec, frame: Frame, opinions: Iterable[OpinionGiven], version_of: VersionOf
    ) -> None:
        self.spec = spec
        self.populations: dict[Group, WeightedSums] = {}
        for (model, version, protocol, judges, category), sums in frame.sums.items():
            for name in (version, EVERY_VERSION):
                group = (model, name, protocol, judges, category)
                self.populations.setdefault(group, WeightedSums()).merge(_copied(sums))
        given: dict[By, dict[tuple[str, str], list[OpinionGiven]]] = {"people": {}, "model": {}}
        for opinion in opinions:
            if opinion.probability > 0 and (opinion.facts or not opinion.judged.get(ALL, (0, 0))[1]):
                by: By = "model" if opinion.judge is not None else "people"
                given[by].setdefault((opinion.key, opinion.fingerprint), []).append(opinion)
        self._answers: dict[tuple[By, str, str, str], list[Answer]] = defaultdict(list)
        self._done: dict[By, float] = {}
        for by, answers in given.items():
            self._done[by] = min(1.0, len(answers) / frame.drawn) if frame.drawn else 1.0
            for (_, judges), several in answers.items():
                place = (by, several[0].model, several[0].protocol, judges)
                self._answers[place].append(_answer(several, version_of))

    def sample(self, by: By, group: Group) -> Sample:
        """Everything that the queue was drawn from in this group, with those that have an opinion."""
        version = group[1]
        labelled = self.labelled(by, group, lambda one: version in (EVERY_VERSION, one.version))
        return Sample(self.populations.get(group, WeightedSums()), labelled)

    def labelled(self, by: By, group: Group, wanted: Callable[[Answer], bool]) -> list[Labelled]:
        """Answers with an opinion, of any version, that are `wanted`."""
        model, _, protocol, judges, category = group
        nothing = (0, 0)
        return [
            Labelled(
                wrong=one.facts.get(category, nothing)[0],
                known=one.facts.get(category, nothing)[1],
                judged_wrong=one.judged.get(category, nothing)[0],
                judged_known=one.judged.get(category, nothing)[1],
                weight=one.weight,
                probability=one.probability * self._done[by],
                key=one.key,
            )
            for one in self._answers.get((by, model, protocol, judges), ())
            if wanted(one)
        ]


async def read_samples(bus: Bus, version_of: VersionOf) -> tuple[QueueSamples, ...]:
    """Of every queue, in the order of making. Raises `Unavailable`."""
    specs = await Queues(bus).list()
    if not specs:
        return ()
    by_queue: dict[str, list[OpinionGiven]] = defaultdict(list)
    for opinion in await Opinions(bus).latest():
        by_queue[opinion.queue].append(opinion)
    found = []
    for spec in specs:
        frame, _ = await Frames(bus).load(spec.name)
        opinions = [one for one in by_queue[spec.name] if spec.has(one)]
        found.append(QueueSamples(spec, frame, opinions, version_of))
    return tuple(found)


def counted(labelled: Iterable[Labelled]) -> list[Labelled]:
    """Those of which either judge decided a fact."""
    return [one for one in labelled if one.known or one.judged_known]


def _answer(opinions: Sequence[OpinionGiven], version_of: VersionOf) -> Answer:
    """What the reviewers of one answer say of it on average."""
    first = opinions[0]
    sums: dict[str, list[int]] = {}
    for opinion in opinions:
        for fact in opinion.facts:
            if fact.removed or fact.decision is Decision.UNDECIDED:
                continue
            for category in {ALL, fact.category}:
                both = sums.setdefault(category, [0, 0])
                both[0] += fact.decision is Decision.REFUTED
                both[1] += 1
    return Answer(
        key=first.key,
        version=version_of(first.tags),
        recorded_at=first.recorded_at,
        weight=first.weight,
        probability=first.probability,
        facts={name: (wrong / len(opinions), known / len(opinions)) for name, (wrong, known) in sums.items()},
        judged=first.judged,
    )


def _copied(sums: WeightedSums) -> WeightedSums:
    return msgspec.convert(msgspec.to_builtins(sums), WeightedSums)
