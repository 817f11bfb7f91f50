"""Does the monitor see the truth, where the truth is known exactly?

Every LVLM of the miniature world describes held-out scenes; the monitor's own engines judge the answers,
FaithScore without any reference; and what they say is held against what the world's grammar reads in the
same answers. The truth uses none of the monitor's parts.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec

from groundwatch.errors import GroundwatchError, Unscorable, UsageError
from groundwatch.events import ClaimsExtracted, Judge, Reference, ResponseRecorded, ResponseScored
from groundwatch.extraction.engines.linguistic.engine import LinguisticEngine
from groundwatch.generation.engines.base import cosine
from groundwatch.matching.engines.semantic import SemanticEngine
from groundwatch.miniature.language import PROMPTS
from groundwatch.miniature.questions import objects, triplets
from groundwatch.miniature.reading import Truth, truth
from groundwatch.miniature.world import Scene, missing_partners, png, scenes
from groundwatch.models.embeddings import SentenceEmbedder
from groundwatch.models.serving.images import GenerationRequest, Generator, ImageEncoder
from groundwatch.models.serving.lvlm import Answer, Lvlm, Question
from groundwatch.models.serving.parameters import Parameters, checkpoint_digest
from groundwatch.models.serving.verifier import EntailmentRequest, Verifier
from groundwatch.protocols.base import EvaluationProtocol, Stage
from groundwatch.protocols.genception.scoring import gc_at
from groundwatch.protocols.method import Progress
from groundwatch.replay.pipeline import Pipeline
from groundwatch.runtime.settings import Settings
from groundwatch.statistics import agreement
from groundwatch.statistics.intervals import bootstrap
from groundwatch.verification.engines.base import Verification
from groundwatch.verification.engines.looking import verdict
from groundwatch.verification.engines.similarity import SimilarityEngine

SEED = 2 * 10**9
"""Scenes from here on belong to no training and to no other measurement."""

BATCH = 96
GRADED = ("lvlm_good", "lvlm_poor", "lvlm_biased")
"""The LVLMs: the best first, and last the one that was trained on the biased split."""

CHAIN = 3
"""Steps of GenCeption's chains."""


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    shown: Scene
    response: ResponseRecorded
    truth: Truth


class WorldVerifier:
    """The verification engine that looks, in this process: the serving code without its server."""

    batch = 32

    def __init__(self, folder: Path, images: dict[str, bytes]) -> None:
        self._verifier = Verifier(Parameters(model_id=str(folder)))
        self._images = images
        self._version = checkpoint_digest(folder)[:12]

    def judge(self, protocol: EvaluationProtocol) -> Judge:
        return Judge(engine="in-process", model="verifier", version=self._version)

    async def verify(
        self, extracted: Sequence[ClaimsExtracted], protocol: EvaluationProtocol
    ) -> Sequence[Verification | GroundwatchError]:
        found = self._verifier.judge(
            [
                EntailmentRequest(
                    images=tuple(self._images[name] for name in event.response.images),
                    statements=tuple(claim.text for claim in event.claims),
                )
                for event in extracted
            ]
        )
        return [
            Unscorable("verifier_failed", str(one))
            if isinstance(one, Exception)
            else Verification(verdicts=tuple(verdict(chance, 0.5) for chance in one.probabilities))
            for one in found
        ]

    async def close(self) -> None:
        """Nothing is held."""


def answered(folder: Path, name: str, number: int, images: dict[str, bytes]) -> Iterator[Answered]:
    """A model's answers about the first `number` held-out scenes, prompts in turn; fills `images`."""
    model = Lvlm(Parameters(model_id=str(folder / name)))
    waiting = enumerate(islice(scenes(SEED), number))
    while batch := list(islice(waiting, BATCH)):
        pictures = [png(shown) for _, shown in batch]
        prompts = [_prompt(at) for at, _ in batch]
        found = model.answer(
            [
                Question(prompt=prompt, images=(picture,), max_tokens=128)
                for prompt, picture in zip(prompts, pictures, strict=True)
            ]
        )
        for (at, shown), prompt, picture, said in zip(batch, prompts, pictures, found, strict=True):
            if not isinstance(said, Answer):
                raise UsageError(f"{name} could not answer about scene {at}: {said}")
            digest = hashlib.sha256(picture).hexdigest()
            images[digest] = picture
            yield Answered(
                shown=shown,
                response=ResponseRecorded(
                    id=f"{name}-{at}",
                    model=name,
                    prompt=prompt,
                    answer=said.text.strip(),
                    images=(digest,),
                ),
                truth=truth(said.text, shown),
            )


def _prompt(at: int) -> str:
    manner = PROMPTS[at % len(PROMPTS)]
    return manner[at // len(PROMPTS) % len(manner)]


REFERENCES: dict[str, Callable[[Scene], Reference]] = {
    "valor-object-existence": lambda shown: Reference(objects=objects(shown)),
    "tri-he": lambda shown: Reference(triplets=triplets(shown), objects=objects(shown)),
}
"""What VALOR's object existence and Tri-HE are given of a scene, as their benchmarks annotate it."""


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    answers: list[Answered]
    by_protocol: dict[str, list[ResponseScored]]

    def judged(self, protocol: str) -> Iterator[tuple[Answered, ResponseScored]]:
        return zip(self.answers, self.by_protocol[protocol], strict=True)


async def judge_models(
    folder: Path, number: int, progress: Progress, names: Sequence[str] = GRADED
) -> list[Judged]:
    """Let every model answer and every protocol judge. Raises `UsageError` for a missing checkpoint."""
    images: dict[str, bytes] = {}
    embedder = SentenceEmbedder(cached=50_000)
    linguistic = LinguisticEngine(embedder)
    judges: dict[str, tuple[Stage, Any]] = {
        "faithscore": (Stage.VERIFICATION, WorldVerifier(folder / "verifier", images)),
        "valor-object-existence": (Stage.MATCHING, SemanticEngine(embedder)),
        "tri-he": (Stage.VERIFICATION, SimilarityEngine(embedder)),
    }
    models = []
    for name in names:
        answers = []
        for one in answered(folder, name, number, images):
            answers.append(one)
            progress(f"{name} answers", len(answers), number)
        by_protocol: dict[str, list[ResponseScored]] = {}
        for protocol, (stage, judge) in judges.items():
            pipeline = Pipeline(Settings(), engines={Stage.EXTRACTION: linguistic, stage: judge})
            make = REFERENCES.get(protocol, lambda shown: None)
            responses = [msgspec.structs.replace(one.response, reference=make(one.shown)) for one in answers]
            done = by_protocol[protocol] = []
            async for outcome in pipeline.outcomes(protocol, responses):
                done.append(outcome)
                progress(f"{name} {protocol}", len(done), number)
        models.append(Judged(name=name, answers=answers, by_protocol=by_protocol))
    return models


def faithscore_agreement(models: Sequence[Judged]) -> dict[str, Any]:
    """Per response and per model: FaithScore against the true share of facts that hold."""
    pairs = {
        model.name: [
            (outcome.score, 1.0 - one.truth.rate)
            for one, outcome in model.judged("faithscore")
            if outcome.score is not None and one.truth.rate is not None
        ]
        for model in models
    }
    return {
        "per_response": _correlations([pair for found in pairs.values() for pair in found]),
        "by_model": {
            model.name: {"pearson": _correlations(pairs[model.name])["pearson"], **rate_errors(model)}
            for model in models
        },
    }


def rate_errors(model: Judged) -> dict[str, Any]:
    """Estimated and true rate of facts not in the image, and the error with its interval over responses."""
    sums = [
        (outcome.values["refuted"], outcome.values["decided"], one.truth.false_facts, one.truth.facts)
        for one, outcome in model.judged("faithscore")
        if outcome.score is not None
    ]

    def error(drawn: Sequence[tuple[float, ...]]) -> float | None:
        refuted, decided, false, facts = (sum(column) for column in zip(*drawn, strict=True))
        return refuted / decided - false / facts if decided and facts else None

    refuted, decided, false, facts = (sum(column) for column in zip(*sums, strict=True))
    return {
        "estimated": refuted / decided,
        "true": false / facts,
        "error": msgspec.to_builtins(bootstrap(sums, error, resamples=500)),
        "scored": len(sums),
        "responses": len(model.answers),
    }


def valor_agreement(models: Sequence[Judged]) -> dict[str, Any]:
    """Faithfulness and coverage of object existence against the kinds that are named and are there."""
    faithful, covered = [], []
    for model in models:
        for one, outcome in model.judged("valor-object-existence"):
            named = one.truth.kinds_named
            there = {thing.kind for thing in one.shown.things}
            if outcome.score is None or not named:
                continue
            faithful.append((outcome.values["faithfulness"], len(named & there) / len(named)))
            covered.append((outcome.values["coverage"], len(named & there) / len(there)))
    return {"faithfulness": _correlations(faithful), "coverage": _correlations(covered)}


def tri_he_agreement(models: Sequence[Judged]) -> dict[str, Any]:
    """The share of hallucinated triplets against the true share of false facts; rates by model."""
    pairs = []
    by_model = {}
    for model in models:
        own = [
            (outcome.values["hallu"], one.truth.rate)
            for one, outcome in model.judged("tri-he")
            if outcome.score is not None and one.truth.rate is not None
        ]
        pairs += own
        by_model[model.name] = {
            "hallu_i": fmean(hallu for hallu, _ in own),
            "true": fmean(true for _, true in own),
            "scored": len(own),
        }
    return {"per_response": _correlations(pairs), "by_model": by_model}


def biased_agreement(model: Judged) -> dict[str, Any]:
    """How often the biased model names the partner that is not there, among scenes that tempt it."""
    tempted = [one for one in model.answers if missing_partners(one.shown)]
    fell = sum(bool(set(missing_partners(one.shown)) & set(one.truth.false_kinds)) for one in tempted)
    return {"scenes": len(tempted), "partner_named": fell / len(tempted) if tempted else None}


def chains(folder: Path, names: Sequence[str], number: int, progress: Progress) -> dict[str, Any]:
    """GC@3 of every model over `number` seed images: describe, generate, compare with the seed, again."""
    generator = Generator(Parameters(model_id=str(folder / "generator")))
    encoder = ImageEncoder(Parameters(model_id=str(folder / "image_encoder")))
    seeds = [png(shown) for shown in islice(scenes(SEED + 1), number)]
    vectors = _all(encoder.encode(seeds))
    told: dict[str, Any] = {}
    for name in names:
        model = Lvlm(Parameters(model_id=str(folder / name)))
        pictures: list[bytes] = seeds
        found: list[list[float]] = [[1.0] for _ in seeds]
        for step in range(CHAIN):
            progress(f"{name} chains", step, CHAIN)
            said = _all(
                model.answer(
                    [Question(prompt=PROMPTS[0][0], images=(one,), max_tokens=128) for one in pictures]
                )
            )
            drawn = generator.draw(
                [GenerationRequest(prompt=one.text, seed=at) for at, one in enumerate(said)]
            )
            pictures = _all(drawn)
            for at, vector in enumerate(_all(encoder.encode(pictures))):
                found[at].append(cosine(vectors[at], vector))
        scores = [score for one in found if (score := gc_at(one, CHAIN)) is not None]
        told[name] = fmean(scores)
    return told


def _all(found: Sequence[Any]) -> list[Any]:
    for one in found:
        if isinstance(one, Exception):
            raise one
    return list(found)


def _correlations(pairs: Sequence[tuple[float, float]]) -> dict[str, Any]:
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    found = agreement.correlations(first, second, resamples=200)
    return {"n": len(pairs), **{name: msgspec.to_builtins(value) for name, value in found.items()}}
