"""What the LVLMs of the miniature world answer about held-out scenes, with the truth, and who judges it."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from groundwatch.errors import GroundwatchError, Unscorable, UsageError
from groundwatch.events import (
    ClaimsExtracted,
    Decision,
    Judge,
    Reference,
    ResponseRecorded,
    ResponseScored,
    Verdict,
)
from groundwatch.extraction.engines.reader import ReaderEngine
from groundwatch.matching.engines import SemanticEngine
from groundwatch.miniature.language import PROMPTS, Truth, truth
from groundwatch.miniature.world import Scene, png, scenes
from groundwatch.models.embeddings import SentenceEmbedder
from groundwatch.models.serving.lvlm import Answer, Lvlm, Question
from groundwatch.models.serving.parameters import Parameters, checkpoint_digest
from groundwatch.models.serving.verifier import EntailmentRequest, EntailmentResult, Verifier
from groundwatch.protocols.base import EvaluationProtocol, Stage
from groundwatch.protocols.method import Progress
from groundwatch.replay.pipeline import Pipeline
from groundwatch.runtime.settings import Settings
from groundwatch.verification.engines.base import Verification
from groundwatch.verification.engines.looking import verdict
from groundwatch.verification.engines.similarity import CalibratedEngine
from groundwatch_benchmarks.miniature_facts import objects, triplets

SEED = 2 * 10**9
"""Scenes from here on belong to no training and to no other measurement."""

BATCH = 96
GRADED = ("lvlm_good", "lvlm_poor", "lvlm_biased")
"""The LVLMs: the best first, and last the one that was trained on the biased split."""


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
        known = [
            [claim.text for claim in event.claims if not self._verifier.unknown(claim.text)]
            for event in extracted
        ]
        found = self._verifier.judge(
            [
                EntailmentRequest(
                    images=tuple(self._images[name] for name in event.response.images),
                    statements=tuple(dict.fromkeys(statements)),
                )
                for event, statements in zip(extracted, known, strict=True)
                if statements
            ]
        )
        answers = iter(found)
        return [
            _verification(event, dict.fromkeys(statements), next(answers) if statements else None)
            for event, statements in zip(extracted, known, strict=True)
        ]

    async def close(self) -> None:
        """Nothing is held."""


def _verification(
    event: ClaimsExtracted, statements: Iterable[str], found: EntailmentResult | Exception | None
) -> Verification | GroundwatchError:
    if isinstance(found, Exception):
        return Unscorable("verifier_failed", str(found))
    said = dict(zip(statements, found.probabilities if found else (), strict=True))
    return Verification(
        verdicts=tuple(
            verdict(said[claim.text], 0.5)
            if claim.text in said
            else Verdict(decision=Decision.UNDECIDED, evidence="in words that the verifier was not taught")
            for claim in event.claims
        )
    )


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
                    id=f"{name}-{at}", model=name, prompt=prompt, answer=said.text.strip(), images=(digest,)
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
    extractor = ReaderEngine()
    judges: dict[str, tuple[Stage, Any]] = {
        "faithscore": (Stage.VERIFICATION, WorldVerifier(folder / "verifier", images)),
        "valor-object-existence": (Stage.MATCHING, SemanticEngine(embedder)),
        "tri-he": (Stage.VERIFICATION, CalibratedEngine(embedder)),
    }
    models = []
    for name in names:
        answers = []
        for one in answered(folder, name, number, images):
            answers.append(one)
            progress(f"{name} answers", len(answers), number)
        by_protocol: dict[str, list[ResponseScored]] = {}
        for protocol, (stage, judge) in judges.items():
            pipeline = Pipeline(Settings(), engines={Stage.EXTRACTION: extractor, stage: judge})
            make = REFERENCES.get(protocol, lambda shown: None)
            responses = [msgspec.structs.replace(one.response, reference=make(one.shown)) for one in answers]
            done = by_protocol[protocol] = []
            async for outcome in pipeline.outcomes(protocol, responses):
                done.append(outcome)
                progress(f"{name} {protocol}", len(done), number)
        models.append(Judged(name=name, answers=answers, by_protocol=by_protocol))
    return models
