"""VALOR's figures: over a file of matched features, and of a model that was asked VALOR-Bench's questions."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean

from groundwatch.errors import UsageError
from groundwatch.events import Reference, ResponseScored
from groundwatch.protocols import prompts
from groundwatch.protocols.features import written
from groundwatch.protocols.method import (
    CATEGORY,
    IMAGE,
    Images,
    Pair,
    Picture,
    Question,
    Result,
    Tally,
    TallyRequest,
)
from groundwatch.protocols.valor.protocol import COUNTED, Valor
from groundwatch.protocols.valor.scoring import NUMBERED, Counts, Matched, Subset, count, protocol_name
from groundwatch.statistics.intervals import RatioSums, cluster_rate
from groundwatch_benchmarks.methods.valor.files import SUBSETS, read_annotations, read_matched, subset_of


def _compute(request: TallyRequest) -> Result:
    subset = subset_of(request.subset or "")
    return {"subset": subset.value, **measure(list(read_matched(request.file, subset)), subset)}


TALLY = Tally(compute=_compute, needs={"subset": f"one of {SUBSETS}"})


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
        prompt = prompts.load(Valor.package, f"ask_{subset.value.replace('-', '_')}")
        for one in read_annotations(path, subset):
            objects = tuple(map(written, one.reference))
            picture = images.picture(one.image_id)
            yield (question(subset, one.image_id, prompt.user, objects, picture) if picture else None)


def question(
    subset: Subset, image: str, prompt: str, objects: tuple[str, ...], picture: Picture, name: str = ""
) -> Question:
    return Question(
        id=f"{subset.value}-{name or image}",
        protocol=protocol_name(subset),
        prompt=prompt,
        images=(picture,),
        reference=Reference(objects=objects),
        tags={CATEGORY: subset.value, IMAGE: image} | prompts.own_tags(prompt),
        unit=image,
    )


def pool(counts: Iterable[Counts]) -> dict[str, float | int | None]:
    """A corpus, in any order: both measures pooled (sums divided by sums) and averaged over responses.

    `unscored` counts responses without any feature, which have no faithfulness; their images' features
    still wait to be covered, so they count as 0 in the coverage. A number that does not exist is None.
    """
    each = list(counts)
    total = sum(each, Counts())
    faithful = [one.faithfulness for one in each if one.faithfulness is not None]
    covered = [one.coverage for one in each if one.coverage is not None]
    return {
        "faithfulness": total.faithfulness,
        "coverage": total.coverage,
        "faithfulness_mean": fmean(faithful) if faithful else None,
        "coverage_mean": fmean(covered) if covered else None,
        "responses": len(each),
        "unscored": len(each) - len(faithful),
        "stray": total.stray,
    }


def measure(responses: Sequence[Matched], subset: Subset, *, in_order: bool = False) -> dict[str, object]:
    """A corpus as `pool` has it, and beside it what its numbered features come to `in_order`."""
    found: dict[str, object] = dict(pool(count(one, subset, in_order=in_order) for one in responses))
    if subset in NUMBERED:
        held = pool(count(one, subset, in_order=True) for one in responses)
        found["in_order"] = {name: held[name] for name in ("faithfulness", "coverage")}
    return found


def figures(pairs: Sequence[Pair]) -> Result:
    result: Result = {}
    for subset in Subset:
        found = [pair for pair in pairs if pair[0].protocol == protocol_name(subset)]
        if found:
            result[subset.value] = _of_subset(found)
    return result


def _of_subset(pairs: Sequence[Pair]) -> Result:
    counts: list[Counts] = []
    unjudged: Counter[str] = Counter()
    faithful, covered = RatioSums(), RatioSums()
    for _, outcome in pairs:
        one = _counts(outcome)
        if one is None:
            unjudged[outcome.reason] += 1
            continue
        counts.append(one)
        faithful.add(one.faithful, one.generated)
        covered.add(one.covered, one.reference)
    return {
        **pool(counts),
        "unjudged": dict(sorted(unjudged.items())),
        "faithfulness_interval": cluster_rate(faithful),
        "coverage_interval": cluster_rate(covered),
    }


def _counts(outcome: ResponseScored) -> Counts | None:
    """None for an answer that was not judged; one without features still leaves all of them uncovered."""
    if not outcome.values:
        return None
    return Counts(**{name: int(outcome.values[name]) for name in COUNTED})
