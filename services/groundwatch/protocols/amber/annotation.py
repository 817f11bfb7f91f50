"""What AMBER knows of an image: the objects in it, what else people think of, and the words for them. Pure.

All of it travels in a response's reference, so that a response is judged by itself. `objects` are the
annotated ones and `facts` that do not hold the hallucinatory targets. Triplets carry lists of words, with
commas between: (object, "associated", its words), ("words", "listed", all that count as a mention) and
("words", "safe", those that are never wrong).
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import msgspec

from groundwatch.errors import Unscorable
from groundwatch.events import KnownFact, Match, Reference, ResponseRecorded
from groundwatch.language.lexicon import singular
from groundwatch.language.nouns import Likeness, compare

WORDS, ASSOCIATED, LISTED, SAFE = "words", "associated", "listed", "safe"
_BETWEEN = ", "


class Annotation(msgspec.Struct, frozen=True, kw_only=True):
    """One image's annotation, all words in lower case.

    `truth` are the objects in the image, `hallu` those that such an image brings to mind although it has
    them not. `associated` are other words for an object, or for what belongs to it. A noun counts as a
    mention when it is `listed`; `safe` words count and are never wrong.
    """

    truth: tuple[str, ...] = ()
    hallu: tuple[str, ...] = ()
    associated: Mapping[str, tuple[str, ...]] = {}
    listed: frozenset[str] = frozenset()
    safe: frozenset[str] = frozenset()

    def about(self, truth: Iterable[str], hallu: Iterable[str]) -> "Annotation":
        """That of an image, by the same lists; of the associated words it keeps those of its own objects."""
        there, gone = (tuple(map(str.casefold, names)) for names in (truth, hallu))
        own = {name: self.associated.get(name) for name in (*there, *gone)}
        associated = {name: words for name, words in own.items() if words}
        return msgspec.structs.replace(self, truth=there, hallu=gone, associated=associated)

    def mention(self, word: str) -> str:
        """The listed noun that a word is, as it stands or in the singular; empty for any other."""
        return next((form for form in (word, singular(word)) if form in self.listed), "")

    def present(self, noun: str) -> str:
        """The annotated object that a noun speaks of; empty for none."""
        return self._exact(noun, self.truth) or self._near(noun, self.truth)

    def target(self, noun: str) -> str:
        """The hallucinatory target that a noun speaks of; empty for none, and for a word of what is there."""
        if noun in self.safe or self._exact(noun, self.truth):
            return ""
        return self._exact(noun, self.hallu) or self._near(noun, self.hallu)

    def matches(self, nouns: Iterable[str]) -> tuple[Match, ...]:
        """Every noun that is not wrong: with its object, or as `broader` when it is safe and covers none."""
        found = ((at, noun, "" if noun in self.safe else self.present(noun)) for at, noun in enumerate(nouns))
        return tuple(
            Match(claim=at, reference=thing or noun, kind="matched" if thing else "broader")
            for at, noun, thing in found
            if thing or noun in self.safe
        )

    def reference(self) -> Reference:
        """What a response carries of it."""
        lists = ((WORDS, LISTED, self.listed), (WORDS, SAFE, self.safe))
        return Reference(
            objects=self.truth,
            facts=tuple(KnownFact(text=name, holds=False) for name in self.hallu),
            triplets=(
                *((name, ASSOCIATED, _BETWEEN.join(words)) for name, words in self.associated.items()),
                *((one, what, _BETWEEN.join(sorted(words))) for one, what, words in lists if words),
            ),
        )

    def _exact(self, noun: str, objects: Sequence[str]) -> str:
        return next((name for word, name in self._words(objects) if word == noun), "")

    def _near(self, noun: str, objects: Sequence[str]) -> str:
        return next((name for word, name in self._words(objects) if _synonyms(noun, word)), "")

    def _words(self, objects: Sequence[str]) -> list[tuple[str, str]]:
        """Each word with its object in the order of the published code: a noun covers the first alone."""
        associated = [(word, name) for name in objects for word in self.associated.get(name, ())]
        return [*associated, *((name, name) for name in objects)]


def annotation_of(response: ResponseRecorded) -> Annotation:
    """What a response carries; without lists the words for annotated objects are all that is listed.

    Raises `Unscorable` for a response without a reference.
    """
    reference = response.reference
    if reference is None or not (reference.objects or reference.facts):
        raise Unscorable("no_reference", "the response's reference names no objects")
    truth = tuple(map(str.casefold, reference.objects))
    hallu = tuple(fact.text.casefold() for fact in reference.facts if not fact.holds)
    words = {
        (subject.casefold(), relation): tuple(map(str.strip, listed.casefold().split(_BETWEEN.strip())))
        for subject, relation, listed in reference.triplets
        if relation == ASSOCIATED or (subject == WORDS and relation in (LISTED, SAFE))
    }
    associated = {name: listed for (name, what), listed in words.items() if what == ASSOCIATED}
    safe = words.get((WORDS, SAFE), ())
    own = {*truth, *hallu, *safe}.union(*associated.values())
    return Annotation(
        truth=truth,
        hallu=hallu,
        associated=associated,
        listed=frozenset(words.get((WORDS, LISTED), own)),
        safe=frozenset(safe),
    )


@lru_cache(maxsize=65_536)
def _synonyms(noun: str, word: str) -> bool:
    return compare(noun, word) is Likeness.SAME
