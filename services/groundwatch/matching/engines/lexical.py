"""Matching by the shared lexicon, without a model: CHAIR's synonym match.

Two names match when their heads name the same concept, and a claim is *broader* when its concept lies above
the object's ("animal" for "dog"). VALOR's second step asks an LLM for the same two kinds.
"""

from collections.abc import Sequence
from functools import lru_cache

from groundwatch.errors import GroundwatchError
from groundwatch.events import ClaimsExtracted, Judge, Match
from groundwatch.language.lexicon import lexicon, noun_phrases
from groundwatch.language.tokens import plain_words
from groundwatch.matching.engines.base import Matching, MatchingEngine, annotated, head
from groundwatch.models.engines import in_turn
from groundwatch.protocols.base import EvaluationProtocol

VERSION = "2"


class LexicalEngine(MatchingEngine):
    """Matches by lemma and synonym, else by broader concept; at most one match for each claim."""

    batch = 64

    def judge(self, protocol: EvaluationProtocol) -> Judge:
        return Judge(engine="lexical", version=f"{VERSION}-{lexicon().digest}")

    async def match(
        self, extracted: Sequence[ClaimsExtracted], protocol: EvaluationProtocol
    ) -> Sequence[Matching | GroundwatchError]:
        return await in_turn(_match, extracted)


def _match(event: ClaimsExtracted) -> Matching:
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
    return _kept(text) if len(text) <= 100 else _read(text)


def _read(text: str) -> str:
    tokens = plain_words(text)
    if tokens[:1] == ["there"]:
        tokens = [token for token in tokens[1:] if token not in lexicon().relations.copulas]
    phrases = noun_phrases(tokens, lexicon())
    return phrases[0].concept if phrases else " ".join(tokens) or text.strip().casefold()


_kept = lru_cache(maxsize=8192)(_read)
