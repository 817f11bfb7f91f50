"""Matching engines; a protocol that brings a list of its own is matched by that, before any engine.

`lexical` is CHAIR's synonym match, by the shared lexicon and without a model: two names match when their
heads name the same concept, and a claim is *broader* when its concept lies above the object's ("animal" for
"dog").

`semantic` is VALOR's second step without an LLM: lemma, synonym, sentence similarity; hypernyms for broader
concepts. A claim meets the reference by its category: objects by name, attributes as "(attribute, object)",
relations from either side, ranked objects by name with their alternatives. Numbered claims (attributes) and
ranked ones take a feature each; several objects may mean the same one (Appendix E).

`llm` asks one.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from operator import itemgetter
from typing import Literal, Protocol

import msgspec

from groundwatch.errors import GroundwatchError, InputError, Unscorable
from groundwatch.events import Claim, ClaimsExtracted, Judge, Match, Usage
from groundwatch.language.lexicon import lexicon, noun_phrases
from groundwatch.language.nouns import Likeness, compare_pair, compare_relation, likenesses
from groundwatch.language.tokens import plain_words
from groundwatch.models.embeddings import SentenceEmbedder
from groundwatch.models.engines import (
    Engine,
    LlmEngine,
    attempt,
    each,
    embedder_of,
    in_turn,
    llm_of,
    unknown_engine,
)
from groundwatch.models.settings import OnCall
from groundwatch.protocols.base import EvaluationProtocol, ListedMatching, MatchingQuestions, Stage
from groundwatch.protocols.features import (
    ATTRIBUTE,
    RANK,
    RELATION,
    Features,
    attribute_pairs,
    plain,
    read_written,
)
from groundwatch.runtime.settings import StageSettings


class Matching(msgspec.Struct, frozen=True, kw_only=True):
    """The claims that have a counterpart in the reference, each with it."""

    matches: tuple[Match, ...] = ()
    usage: Usage = Usage()


class MatchingEngine(Engine, Protocol):
    """Matches claims with reference annotations."""

    def judge(self, protocol: EvaluationProtocol) -> Judge: ...

    async def match(
        self, extracted: Sequence[ClaimsExtracted], protocol: EvaluationProtocol
    ) -> Sequence[Matching | GroundwatchError]:
        """One result for each event, in order; an error stands in the place of its event's result."""
        ...


class ListedFirst(MatchingEngine):
    """Lets a protocol with a list of its own match by it, and asks `engine` for every other.

    CHAIR's numbers depend on its list of synonyms alone; with an LLM's or a lexicon's matches they would be
    another metric's.
    """

    def __init__(self, engine: MatchingEngine) -> None:
        self.engine = engine
        self.batch = engine.batch

    def judge(self, protocol: EvaluationProtocol) -> Judge:
        return (
            protocol.matching_judge() if isinstance(protocol, ListedMatching) else self.engine.judge(protocol)
        )

    async def match(
        self, extracted: Sequence[ClaimsExtracted], protocol: EvaluationProtocol
    ) -> Sequence[Matching | GroundwatchError]:
        if not isinstance(protocol, ListedMatching):
            return await self.engine.match(extracted, protocol)
        return [attempt(lambda event: Matching(matches=protocol.match(event)), event) for event in extracted]

    async def close(self) -> None:
        await self.engine.close()


def annotated(event: ClaimsExtracted) -> tuple[str, ...]:
    """What the response's reference names. Raises `Unscorable` when there is nothing to match with."""
    reference = event.response.reference
    if reference is None or not reference.objects:
        raise Unscorable("no_reference", "the response's reference names no objects or features")
    return reference.objects


def head(claim: Claim) -> str:
    """What the claim is about: its first part, else its text."""
    return claim.parts[0] if claim.parts else claim.text


class LlmMatchingEngine(LlmEngine):
    """Matches claims with references. No claims need no call."""

    stage = Stage.MATCHING
    version = "1"

    async def match(
        self, extracted: Sequence[ClaimsExtracted], protocol: EvaluationProtocol
    ) -> Sequence[Matching | GroundwatchError]:
        return await each(partial(self._match, protocol), extracted)

    async def _match(self, protocol: EvaluationProtocol, event: ClaimsExtracted) -> Matching:
        if not isinstance(protocol, MatchingQuestions):
            raise InputError(f"engine 'llm' cannot match for protocol '{protocol.name}'")
        annotated(event)
        if not event.claims:
            return Matching()
        read = partial(protocol.read_matching, extracted=event)
        completion = await self._chat.complete(protocol.matching_step(event), check=read)
        return Matching(matches=read(completion.reply), usage=completion.usage)


LEXICAL_VERSION = "2"


class LexicalEngine(MatchingEngine):
    """Matches by lemma and synonym, else by broader concept; at most one match for each claim."""

    batch = 64

    def judge(self, protocol: EvaluationProtocol) -> Judge:
        return Judge(engine="lexical", version=f"{LEXICAL_VERSION}-{lexicon().digest}")

    async def match(
        self, extracted: Sequence[ClaimsExtracted], protocol: EvaluationProtocol
    ) -> Sequence[Matching | GroundwatchError]:
        return await in_turn(_match_lexically, extracted)


def _match_lexically(event: ClaimsExtracted) -> Matching:
    named = [(name, _concept(name)) for name in annotated(event)]
    taken: set[int] = set()
    matches: list[Match] = []
    for index, claim in enumerate(event.claims):
        concept = _concept(head(claim))
        same = [at for at, (_, known) in enumerate(named) if concept and known == concept]
        if same:
            at = next((at for at in same if at not in taken), same[0])
            taken.add(at)
            matches.append(Match(claim=index, reference=named[at][0]))
            continue
        narrower = [name for name, known in named if concept and concept in lexicon().ancestors(known)]
        if narrower:
            matches.append(Match(claim=index, reference=narrower[0], kind="broader"))
    return Matching(matches=tuple(matches))


def _concept(text: str) -> str:
    """The concept of a name, or of the thing in a sentence such as "There is a dog."; short ones are kept."""
    return _kept_concept(text) if len(text) <= 100 else _read_concept(text)


def _read_concept(text: str) -> str:
    tokens = plain_words(text)
    if tokens[:1] == ["there"]:
        tokens = [token for token in tokens[1:] if token not in lexicon().relations.copulas]
    phrases = noun_phrases(tokens, lexicon())
    return phrases[0].concept if phrases else " ".join(tokens) or text.strip().casefold()


_kept_concept = lru_cache(maxsize=8192)(_read_concept)

SEMANTIC_VERSION = "2"

SIMILAR = 0.7
"""Cosine from which two names mean the same where the lexicons know no relation; tuned on the gold set."""

LONGEST = 200
"""Names are compared up to so many characters: what is longer is no name."""

MOST = 2_000
"""Features on either side; more are no annotation of one image."""

Grade = Literal[0, 1, 2, 3, 4]
EXACT: Grade = 4
SAME: Grade = 3
LIKE: Grade = 2
BROADER: Grade = 1
NOTHING: Grade = 0


class SemanticEngine(MatchingEngine):
    """Matches on the CPU.

    The embedding model is loaded at the first pair of names that the lexicons leave open.
    """

    batch = 16

    def __init__(self, embedder: SentenceEmbedder | None = None) -> None:
        self._embedder = embedder or SentenceEmbedder()
        self._graded = lru_cache(maxsize=65536)(self._grade)
        self._turn = asyncio.Lock()

    def judge(self, protocol: EvaluationProtocol) -> Judge:
        version = f"{SEMANTIC_VERSION}-{likenesses().digest}-{SIMILAR}"
        version += "-in-order" if protocol.in_order else ""
        return Judge(engine="semantic", model=self._embedder.name, version=version)

    async def match(
        self, extracted: Sequence[ClaimsExtracted], protocol: EvaluationProtocol
    ) -> Sequence[Matching | GroundwatchError]:
        async with self._turn:
            match = partial(self._match, in_order=protocol.in_order)
            return await asyncio.to_thread(lambda: [attempt(match, event) for event in extracted])

    def compare(self, generated: str, reference: str) -> Likeness:
        """How one object's name relates to another: the decision that the gold set checks."""
        grade = self._graded(plain(generated)[:LONGEST], plain(reference)[:LONGEST])
        return Likeness.SAME if grade >= LIKE else Likeness.BROADER if grade else Likeness.NONE

    def _match(self, event: ClaimsExtracted, *, in_order: bool) -> Matching:
        objects = annotated(event)
        if max(len(event.claims), len(objects)) > MOST:
            raise Unscorable("too_many_features", f"at most {MOST} are matched with each other")
        features = tuple(read_written(text) for text in objects)
        by_category: dict[str, list[tuple[int, Claim]]] = {}
        for number, claim in enumerate(event.claims):
            by_category.setdefault(claim.category, []).append((number, claim))
        grades = {ATTRIBUTE: self._grade_pair, RELATION: self._grade_relation}
        matches: list[Match] = []
        for category, claims in by_category.items():
            shared = category not in (ATTRIBUTE, RANK)
            grade = grades.get(category, self._grade_object)
            matches += _assign(claims, features, grade, shared=shared, in_order=in_order)
        return Matching(matches=tuple(sorted(matches, key=lambda match: match.claim)))

    def _grade_object(self, claim: Claim, wording: str) -> Grade:
        return self._graded(plain(head(claim))[:LONGEST], plain(wording)[:LONGEST])

    def _grade_pair(self, claim: Claim, wording: str) -> Grade:
        if plain(claim.text) == plain(wording):
            return EXACT
        one, other = attribute_pairs(claim.text), attribute_pairs(wording)
        return _grade_of(compare_pair(one[0], other[0], self.compare)) if one and other else NOTHING

    def _grade_relation(self, claim: Claim, wording: str) -> Grade:
        if plain(claim.text) == plain(wording):
            return EXACT
        return _grade_of(compare_relation(claim.text, wording, self.compare))

    def _grade(self, generated: str, reference: str) -> Grade:
        if not generated or not reference:
            return NOTHING
        if generated == reference:
            return EXACT
        found = likenesses().compare(generated, reference)
        if found is Likeness.NONE and likenesses().open(generated, reference):
            first, second = self._embedder.encode([generated, reference])
            return LIKE if float(first @ second) >= SIMILAR else NOTHING
        return _grade_of(found)


def _assign(
    claims: Sequence[tuple[int, Claim]],
    features: Features,
    grade: Callable[[Claim, str], Grade],
    *,
    shared: bool,
    in_order: bool,
) -> list[Match]:
    """The best feature for each claim, the surest pairs first; only that of its number if `in_order`.

    Where features are not `shared`, each is taken once; the best is then what is left.
    """
    wishes = []
    for order, (number, claim) in enumerate(claims):
        for feature, wordings in enumerate(features):
            if in_order and feature != number:
                continue
            graded = ((grade(claim, one), one) for one in wordings)
            best, wording = max(graded, key=itemgetter(0), default=(0, ""))
            if best:
                wishes.append((-best, order, feature, number, wording))
    taken: set[int] = set()
    done: set[int] = set()
    matches = []
    for worth, _, feature, number, wording in sorted(wishes):
        if number in done or (not shared and feature in taken):
            continue
        done.add(number)
        taken.add(feature)
        kind: Literal["broader", "matched"] = "broader" if -worth == BROADER else "matched"
        matches.append(Match(claim=number, reference=wording, kind=kind))
    return matches


def _grade_of(likeness: Likeness) -> Grade:
    return SAME if likeness is Likeness.SAME else BROADER if likeness is Likeness.BROADER else NOTHING


DEFAULT = "semantic"


def build(settings: StageSettings, *, on_call: OnCall | None = None) -> ListedFirst:
    """The engine that settings name; `semantic`, which needs no server, when they name none.

    A protocol that brings a list of its own is matched by that, whichever engine is named. Raises
    `SettingsError` listing the known names. `on_call` is told of every request to a model.
    """
    return ListedFirst(_named(settings, on_call))


def _named(settings: StageSettings, on_call: OnCall | None) -> MatchingEngine:
    match settings.engine or DEFAULT:
        case "lexical":
            return LexicalEngine()
        case "semantic":
            return SemanticEngine(embedder_of("matching", settings.embedding_model))
        case "llm":
            from groundwatch.models.openai import ChatModel

            return LlmMatchingEngine(ChatModel(llm_of("matching", "llm", settings.llm), on_call=on_call))
    raise unknown_engine("matching", settings.engine, "lexical, llm, semantic")
