"""What the similarity judge makes of triplets whose truth is known, and all of Tri-HE of whole answers.

For each image of the benchmark, its own triplets are reworded by rule and must hold; triplets of other
images, and its own with one part exchanged, must not. The synonyms are this measure's own and not the
engines' lexicon: no engine is tested on its own words.

Whole answers are the benchmark's reference answers, each held against its own scene graph, and for each one
an answer borrowed from another image, with its question, held against the same graph.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from groundwatch.errors import MissingExtraError, UsageError
from groundwatch.events import Decision, ResponseRecorded, ResponseScored
from groundwatch.judging.files import with_engines
from groundwatch.models.embeddings import SentenceEmbedder, embedder
from groundwatch.protocols.base import Stage, folded
from groundwatch.protocols.method import Progress, Result
from groundwatch.protocols.trihe.protocol import TriHe
from groundwatch.protocols.triplets import Part, SceneGraph, Triplet
from groundwatch.runtime.settings import Settings
from groundwatch.statistics.intervals import bootstrap
from groundwatch.verification.engines.similarity import PAPER, PUBLISHED_CODE, similarities, wrong_part
from groundwatch_benchmarks.agreement.judging import EMBEDDING_MODEL, JUDGE, judged
from groundwatch_benchmarks.coefficients import roc_auc
from groundwatch_benchmarks.methods.trihe.files import AnnotatedImage, read_benchmark

Reword = Callable[[Triplet], Triplet | None]

SYNONYMS: Mapping[str, str] = msgspec.json.decode(
    resources.files(__package__).joinpath("synonyms.json").read_bytes()
)
_DOING = re.compile(r"\w+ing")
_NUMBER = {"is": "are", "are": "is", "has": "have", "have": "has"}


def synonyms(triplet: Triplet) -> Triplet | None:
    """Every part, or else each of its words, by a synonym; None where none is known."""
    found = [
        SYNONYMS.get(part) or " ".join(SYNONYMS.get(word, word) for word in part.split())
        for part in map(str.casefold, triplet)
    ]
    return _changed(triplet, (found[0], found[1], found[2]))


def passive(triplet: Triplet) -> Triplet | None:
    """(man, riding, horse) as (horse, being ridden by, man); None where no verb takes an object."""
    inflect, lemma = _inflector()
    words = triplet[1].casefold().split()
    if not 0 < len(words) <= 2 or not _DOING.fullmatch(words[0]):
        return None
    forms = inflect(lemma(words[0], "VERB")[0], "VBN")
    if not forms:
        return None
    return triplet[2], " ".join(["being", forms[0], *words[1:], "by"]), triplet[0]


def number(triplet: Triplet) -> Triplet | None:
    """Singular to plural and the other way round, in both objects; a quality stays as it is."""
    first, relation, second = triplet
    other = second if relation.casefold() in ("is", "are") else _other_number(second)
    return _changed(triplet, (_other_number(first), _NUMBER.get(relation, relation), other))


REWORDINGS: Mapping[str, Reword] = {"synonyms": synonyms, "passive": passive, "number": number}


def _other_number(name: str) -> str:
    inflect, lemma = _inflector()
    words = name.casefold().split()
    if not words:
        return name
    base = lemma(words[-1], "NOUN")[0]
    forms = inflect(base, "NNS")
    words[-1] = base if base != words[-1] else (forms[0] if forms else words[-1])
    return " ".join(words)


def _changed(before: Triplet, after: Triplet) -> Triplet | None:
    same = all(a.casefold() == b.casefold() for a, b in zip(before, after, strict=True))
    return None if same else after


def _inflector() -> tuple[Callable[[str, str], tuple[str, ...]], Callable[[str, str], tuple[str, ...]]]:
    try:
        from lemminflect import getInflection, getLemma
    except ImportError:
        raise MissingExtraError("lemminflect", "embedded") from None
    return getInflection, getLemma


PER_IMAGE = 6
"""Triplets of each image that are reworded, and as many that are borrowed."""

BORROWED = "borrowed"
Judged = tuple[ResponseScored, ResponseScored]
"""What became of a reference answer, and of the one borrowed for the same scene graph."""

PARTS: tuple[Part, ...] = ("object1", "relation", "object2")


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """A claim: how it was made, its similarity (`maximum`: the published code's), what is blamed for it."""

    image: str
    made: str
    score: float
    maximum: float
    blamed: Part


async def validate(
    file: Annotated[Path, Meta(description="Tri-HE's benchmark (JSON).")],
    *,
    answers: Annotated[bool, Meta(description="Judge its reference answers and borrowed ones.")] = False,
    judge: Annotated[str, Meta(description=f"{JUDGE} Of answers; triplets are for similarity.")] = "",
    embedding_model: Annotated[str, Meta(description=EMBEDDING_MODEL)] = "",
    settings: Settings,
    progress: Progress,
) -> Result:
    """Tri-HE's judges on its benchmark: answers, or reworded, borrowed and planted triplets."""
    if answers:
        chosen = with_engines(settings, {Stage.VERIFICATION.value: judge}, TriHe.name)
        return await answers_agreement(file, with_embedding_model(chosen, embedding_model), progress)
    if judge:
        raise UsageError("the judge of triplets is similarity: others judge answers", "answers")
    return agreement(file, embedder(embedding_model, cached=20_000), progress)


def with_embedding_model(settings: Settings, folder: str) -> Settings:
    """The settings with this embedding model for Tri-HE's judge, if there is one."""
    if not folder:
        return settings
    stage = settings.verification
    own = stage.of(TriHe()).model_copy(update={"embedding_model": folder})
    changed = stage.model_copy(update={"protocols": {**stage.protocols, TriHe.name: own}})
    return settings.model_copy(update={"verification": changed})


async def answers_agreement(file: Path, settings: Settings, progress: Progress) -> Result:
    """Reference answers against borrowed ones, by the judges of the settings, as live traffic has them.

    The numbers of the similarity judge were fitted and chosen on the images `fitted_on`, every second one
    from the first; on those `held_out` nothing was. Raises `UsageError` for a benchmark of fewer than two
    images, and for a judge that is away.
    """
    images = read_benchmark(file)
    asked = [(image, one) for image in images for one in image.questions]
    if len(images) < 2:
        raise UsageError(f"{file}: answers cannot be borrowed from other images where there is only one")
    random = Random(0)
    responses: list[ResponseRecorded] = []
    for image, own in asked:
        borrowed = random.choice([one for other, one in asked if other is not image])
        for one in (own, borrowed):
            told = ResponseRecorded(id=str(len(responses)), model=BORROWED, answer=one.answer)
            responses.append(msgspec.structs.replace(told, prompt=one.question, reference=image.graph))
    found = await judged(responses, TriHe.name, settings, None, None, progress)
    by_image: dict[str, list[Judged]] = {image.image: [] for image in images}
    for (image, _), *pair in zip(asked, found[::2], found[1::2], strict=True):
        by_image[image.image].append((pair[0], pair[1]))
    units = list(by_image.values())
    halves = {"fitted_on": summarise_answers(units[::2]), "held_out": summarise_answers(units[1::2])}
    return summarise_answers(units) | halves


def summarise_answers(images: Sequence[Sequence[Judged]]) -> Result:
    """The shares of answers unscored and of triplets undecided, Hallu_Q, and the AUC with its interval."""
    result: Result = {"auc": msgspec.to_builtins(bootstrap(images, answers_auc, resamples=200))}
    for kind, at in (("", 0), ("borrowed.", 1)):
        outcomes = [judged[at] for several in images for judged in several]
        rates = [1.0 - one.score for one in outcomes if one.score is not None]
        claims = [claim for one in outcomes for claim in one.claims]
        undecided = sum(claim.decision is Decision.UNDECIDED for claim in claims)
        result |= {
            f"{kind}unscored_share": 1.0 - len(rates) / len(outcomes) if outcomes else None,
            f"{kind}rate": fmean(rates) if rates else None,
            f"{kind}undecided_share": undecided / len(claims) if claims else None,
        }
    return result | {"answers": sum(map(len, images))}


def answers_auc(images: Sequence[Sequence[Judged]]) -> float | None:
    """The chance that a reference answer's mean probability is above a borrowed one's.

    A pair with an answer that has no score counts a half: nothing is gained by leaving hard ones out.
    """
    answers = [pair for several in images for pair in several]
    own, borrowed = ([found for pair in answers if (found := _grade(pair[at])) is not None] for at in (0, 1))
    if not answers:
        return None
    graded = len(own) * len(borrowed) / len(answers) ** 2
    return graded * (roc_auc(own, borrowed) or 0.0) + (1 - graded) / 2


CHANCE = {Decision.SUPPORTED: 1.0, Decision.UNDECIDED: 0.5, Decision.REFUTED: 0.0}
"""What stands for the probability of a judge that gives none."""


def _grade(outcome: ResponseScored) -> float | None:
    if outcome.score is None:
        return None
    return fmean(
        CHANCE[one.decision] if one.probability is None else one.probability for one in outcome.claims
    )


def agreement(
    file: Path, encoder: SentenceEmbedder, progress: Progress, *, per_image: int = PER_IMAGE
) -> Result:
    """ROC AUC of reworded against borrowed triplets, and rates at the paper's threshold.

    `recall` is the share of false claims that are refuted, `false_alarm` that of true ones. Raises
    `UsageError` for a benchmark of fewer than two images.
    """
    images = read_benchmark(file)
    if len(images) < 2:
        raise UsageError(f"{file}: triplets cannot be borrowed from other images where there is only one")
    random = Random(0)
    trials: list[Trial] = []
    for at, image in enumerate(images):
        trials += _try(image, images, encoder, random, per_image)
        progress("comparing triplets", at + 1, len(images))
    return {"encoder": encoder.name, **summarise(trials)}


def summarise(trials: Sequence[Trial]) -> dict[str, Any]:
    """The numbers over trials, with 95 % bootstrap intervals that draw images."""
    true = [one for one in trials if one.made in REWORDINGS]
    borrowed = [one for one in trials if one.made == BORROWED]
    by_image: dict[str, list[Trial]] = {}
    for one in (*true, *borrowed):
        by_image.setdefault(one.image, []).append(one)
    # The published code takes the larger of the similarities to the kept and to the three most similar ones.
    larger, larger_borrowed = (
        [msgspec.structs.replace(one, score=one.maximum) for one in several] for several in (true, borrowed)
    )
    return {
        "roc_auc": msgspec.to_builtins(
            bootstrap(
                list(by_image.values()),
                lambda drawn: _auc([one for several in drawn for one in several]),
                resamples=200,
            )
        ),
        "roc_auc_by_rewording": {
            made: _auc([*(one for one in true if one.made == made), *borrowed]) for made in REWORDINGS
        },
        "threshold": PAPER.holds,
        "true_positive_rate": _refuted(true, held=True),
        "false_positive_rate": _refuted(borrowed, held=True),
        "false_alarm_by_rewording": {
            made: _refuted([one for one in true if one.made == made]) for made in REWORDINGS
        },
        "published_code": {
            "roc_auc": _auc([*larger, *larger_borrowed]),
            "true_positive_rate": _refuted(larger, held=True),
            "false_positive_rate": _refuted(larger_borrowed, held=True),
        },
        "planted": {part: _planted([one for one in trials if one.made == part], part) for part in PARTS},
        "images": len({one.image for one in trials}),
        "reworded": len(true),
        "borrowed": len(borrowed),
    }


def _try(
    image: AnnotatedImage,
    images: Sequence[AnnotatedImage],
    encoder: SentenceEmbedder,
    random: Random,
    per_image: int,
) -> list[Trial]:
    if not image.triplets:
        return []
    claims = [
        *(
            (made, said)
            for triplet in random.sample(image.triplets, min(per_image, len(image.triplets)))
            for made, reword in REWORDINGS.items()
            if (said := reword(triplet)) is not None
        ),
        *_borrowed(image, images, random, per_image),
        *_exchanged(image, images, random, per_image),
    ]
    graph = SceneGraph(image.triplets, image.objects)
    known = [" ".join(triplet) for triplet in image.triplets]
    texts = [" ".join(triplet) for _, triplet in claims]
    found = similarities(texts, known, encoder)
    larger = similarities(texts, known, encoder, PUBLISHED_CODE)
    return [
        Trial(
            image=image.image,
            made=made,
            score=one.score,
            maximum=highest.score,
            blamed=wrong_part(triplet, graph.objects, encoder),
        )
        for (made, triplet), one, highest in zip(claims, found, larger, strict=True)
    ]


def _borrowed(
    image: AnnotatedImage, images: Sequence[AnnotatedImage], random: Random, wanted: int
) -> list[tuple[str, Triplet]]:
    own = {tuple(map(folded, triplet)) for triplet in image.triplets}
    others = [other for other in images if other is not image]
    found: list[tuple[str, Triplet]] = []
    for _ in range(20 * wanted):
        other = random.choice(others)
        if len(found) < wanted and other.triplets:
            triplet = random.choice(other.triplets)
            if tuple(map(folded, triplet)) not in own:
                found.append((BORROWED, triplet))
    return found


def _exchanged(
    image: AnnotatedImage, images: Sequence[AnnotatedImage], random: Random, wanted: int
) -> list[tuple[str, Triplet]]:
    """Own relations, reworded, with one part from another image that this one has not."""
    graph = SceneGraph(image.triplets, image.objects)
    names = {name.casefold() for name in graph.objects}
    relations = {relation.casefold() for relation in graph.relations}
    others = [triplet for other in images if other is not image for triplet in other.triplets]
    foreign = {
        "object": [t[0] for t in others if t[0].casefold() not in names],
        "relation": [t[1] for t in others if t[1].casefold() not in relations],
    }
    if not foreign["object"] or not foreign["relation"]:
        return []
    own = [triplet for triplet in image.triplets if triplet[1].casefold() not in ("is", "are")]
    found: list[tuple[str, Triplet]] = []
    for triplet in random.sample(own, min(wanted, len(own))):
        said = list(random.choice((synonyms, number))(triplet) or triplet)
        for at, part in enumerate(PARTS):
            kind = "relation" if part == "relation" else "object"
            changed = [*said[:at], random.choice(foreign[kind]), *said[at + 1 :]]
            found.append((part, (changed[0], changed[1], changed[2])))
    return found


def _planted(trials: Sequence[Trial], part: Part) -> dict[str, Any]:
    refuted = [one for one in trials if one.score < PAPER.holds]
    return {
        "recall": len(refuted) / len(trials) if trials else None,
        "blamed": sum(one.blamed == part for one in refuted) / len(refuted) if refuted else None,
        "n": len(trials),
    }


def _refuted(trials: Sequence[Trial], *, held: bool = False) -> float | None:
    if not trials:
        return None
    return sum((one.score >= PAPER.holds) is held for one in trials) / len(trials)


def _auc(trials: Sequence[Trial]) -> float | None:
    """The chance that a true claim scores above a false one."""
    true = [one.score for one in trials if one.made in REWORDINGS]
    false = [one.score for one in trials if one.made == BORROWED]
    return roc_auc(true, false)
