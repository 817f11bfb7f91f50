"""VALOR-Bench's questions, and the figures of a model that answered them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from groundwatch.errors import UsageError
from groundwatch.events import OutcomeKind, Reference, ResponseScored
from groundwatch.protocols import prompts
from groundwatch.protocols.features import read_written, written
from groundwatch.protocols.suite import CATEGORY, IMAGE, Images, Pair, Question
from groundwatch.protocols.tally import Result
from groundwatch.protocols.valor.files import read_annotations
from groundwatch.protocols.valor.scoring import Counts, Matched, Subset, count, pool, protocol_name
from groundwatch.statistics.intervals import RatioSums, cluster_rate


def read_suite(folder: Path, images: Images) -> Iterator[Question | None]:
    """A file for each subset, such as object_existence.jsonl; those that are there are asked."""
    found = [
        (subset, path)
        for subset in Subset
        for path in sorted(folder.glob(f"{subset.value.replace('-', '_')}.json*"))
    ]
    if not found:
        raise UsageError(f"{folder}: holds none of VALOR-Bench's files, such as object_existence.jsonl")
    for subset, path in found:
        prompt = prompts.load(__package__, f"ask_{subset.value.replace('-', '_')}")
        for one in read_annotations(path, subset):
            picture = images.picture(one.image_id)
            yield (
                Question(
                    id=f"{subset.value}-{one.image_id}",
                    protocol=protocol_name(subset),
                    prompt=f"{prompt.user} {prompt.system}",
                    images=(picture,),
                    reference=Reference(objects=tuple(written(wordings) for wordings in one.reference)),
                    tags={CATEGORY: subset.value, IMAGE: one.image_id},
                    unit=one.image_id,
                )
                if picture
                else None
            )


def figures(pairs: Sequence[Pair]) -> Result:
    result: Result = {}
    for subset in Subset:
        found = [
            (question, outcome) for question, outcome in pairs if question.protocol == protocol_name(subset)
        ]
        if found:
            result[subset.value] = _of_subset(found, subset)
    return result


def _of_subset(pairs: Sequence[Pair], subset: Subset) -> Result:
    counts: list[Counts] = []
    unjudged: Counter[str] = Counter()
    faithful, covered = RatioSums(), RatioSums()
    for question, outcome in pairs:
        one = _counts(question, outcome, subset)
        if one is None:
            unjudged[outcome.reason] += 1
            continue
        counts.append(one)
        faithful.add(one.faithful, one.generated)
        covered.add(one.covered, one.reference)
    return {
        **msgspec.structs.asdict(pool(counts)),
        "unjudged": dict(sorted(unjudged.items())),
        "faithfulness_interval": cluster_rate(faithful),
        "coverage_interval": cluster_rate(covered),
    }


def _counts(question: Question, outcome: ResponseScored, subset: Subset) -> Counts | None:
    """None for an answer that was not judged; one without features still leaves all of them uncovered."""
    if outcome.outcome is OutcomeKind.SCORED:
        names = ("faithful", "generated", "covered", "reference")
        return Counts(**{name: int(outcome.values[name]) for name in names})
    if outcome.reason == "no_features":
        objects = question.reference.objects if question.reference else ()
        reference = tuple(read_written(text) for text in objects)
        return count(Matched(image_id=question.id, generated=(), reference=reference), subset)
    return None
