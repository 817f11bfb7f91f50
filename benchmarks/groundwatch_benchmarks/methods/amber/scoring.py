"""What AMBER knows of an image, and its arithmetic over descriptions and answers to yes/no questions. Pure.

Source: AMBER, An LLM-free Multi-dimensional Benchmark for MLLMs Hallucination Evaluation (Wang et al. 2023),
and its code (junyangwang0410/AMBER, `inference.py`): each number is a sum over all answers by another, and
"no" is the positive class. Where paper and code differ there is a number for each.

It knows the objects in an image, what else people think of, and the words for them. All of it travels in a
response's reference, so that a response is judged by itself. `objects` are the annotated ones and `facts`
that do not hold the hallucinatory targets. Triplets carry lists of words, with commas between: (object,
"associated", its words), ("words", "listed", all that count as a mention) and ("words", "safe", those that
are never wrong).
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import msgspec

from groundwatch.errors import Unscorable
from groundwatch.events import KnownFact, Match, Reference, ResponseRecorded
from groundwatch.language.lexicon import singular
from groundwatch.language.nouns import Likeness, compare
from groundwatch.statistics.intervals import Interval, RatioSums, bootstrap, cluster_rate
from groundwatch_benchmarks.methods.yes_no import CELLS

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


DESCRIPTION, EXISTENCE, RELATION = "description", "existence", "relation"
ATTRIBUTES = ("state", "number", "action")
KINDS = (EXISTENCE, *ATTRIBUTES, RELATION)
"""What a question is about."""

Ratios = Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]
"""By the name of a number the counts above the line and those below it."""

UNREAD = ("unread_yes", "unread_no")

GENERATIVE: Ratios = {
    "chair": (("hallucinated",), ("mentioned",)),
    "cover": (("covered",), ("annotated",)),
    "hal": (("hal",), ("answers",)),
    "cog": (("targets_named",), ("targets",)),
    "cog_by_mentions": (("target_mentions",), ("mentioned",)),
}
DISCRIMINATIVE: Ratios = {
    "accuracy": (("tp", "tn"), (*CELLS, *UNREAD)),
    "accuracy_read": (("tp", "tn"), CELLS),
    "precision": (("tn",), ("tn", "fn")),
    "recall": (("tn",), ("tn", "fp", "unread_no")),
    "f1": (("tn", "tn"), ("tn", "fn", "tn", "fp", "unread_no")),
    "read": (CELLS, (*CELLS, *UNREAD)),
}


def count(nouns: Sequence[str], matches: Iterable[Match], known: Annotation) -> dict[str, int]:
    """One description: the nouns that it mentions, each as often as it is said, and those that are not wrong.

    `targets_named` counts hallucinatory targets once each, `target_mentions` how often one is said; `hal` is
    1 when any mention is wrong.
    """
    right = {match.claim: match for match in matches}
    covered = {match.reference for match in right.values() if match.kind == "matched"}
    wrong = len(nouns) - len(right)
    named = [name for name in map(known.target, nouns) if name]
    return {
        "answers": 1,
        "mentioned": len(nouns),
        "hallucinated": wrong,
        "hal": int(wrong > 0),
        "covered": len(covered),
        "annotated": len(known.truth),
        "targets_named": len(set(named)),
        "targets": len(known.hallu),
        "target_mentions": len(named),
    }


class Sums(msgspec.Struct):
    """Counts by kind and image, and why answers are in no count or were not read, by reason."""

    images: dict[str, dict[str, Counter[str]]] = {}
    reasons: Counter[str] = msgspec.field(default_factory=Counter)

    def add(self, kind: str, image: str, counts: Mapping[str, int]) -> None:
        self.images.setdefault(kind, {}).setdefault(image, Counter()).update(counts)

    def of(self, *kinds: str) -> list[Counter[str]]:
        """The counts of each image over these kinds."""
        found: dict[str, Counter[str]] = defaultdict(Counter)
        for kind in kinds:
            for image, counts in self.images.get(kind, {}).items():
                found[image].update(counts)
        return list(found.values())

    def measure(self) -> dict[str, object]:
        """Every number with its interval over images, None where it does not exist."""
        groups = {EXISTENCE: (EXISTENCE,), "attribute": ATTRIBUTES, RELATION: (RELATION,)}
        groups |= {kind: (kind,) for kind in ATTRIBUTES}
        described, asked = self.of(DESCRIPTION), self.of(*KINDS)
        result: dict[str, object] = {}
        if described:
            result["generative"] = _rates(described, GENERATIVE)
        if asked:
            result["discriminative"] = {
                **_rates(asked, DISCRIMINATIVE),
                **{
                    name: _rates(found, DISCRIMINATIVE)
                    for name, of in groups.items()
                    if (found := self.of(*of))
                },
            }
        if described and asked:
            result["amber_score"] = _amber_score(self.of(DESCRIPTION, *KINDS))
        return {**result, "unscored_by_reason": dict(sorted(self.reasons.items()))}


def amber_score(chair: float, f1: float) -> float:
    """The paper's AMBER Score as a share: (100 - CHAIR + F1) / 2 of its percentages."""
    return (1 - chair + f1) / 2


def _rates(images: Sequence[Mapping[str, int]], ratios: Ratios) -> dict[str, Interval | None]:
    found = {}
    for name, ratio in ratios.items():
        sums = RatioSums()
        for counts in images:
            sums.add(*_parts(counts, ratio))
        rate = cluster_rate(sums)
        found[name] = rate and msgspec.structs.replace(rate, n=sums.clusters)
    return found


def _parts(counts: Mapping[str, int], ratio: tuple[tuple[str, ...], tuple[str, ...]]) -> tuple[int, int]:
    of, over = (sum(counts.get(name, 0) for name in names) for names in ratio)
    return of, over


def _amber_score(images: Sequence[Mapping[str, int]]) -> Interval | None:
    ratios = GENERATIVE["chair"], DISCRIMINATIVE["f1"]
    parts = [(*_parts(one, ratios[0]), *_parts(one, ratios[1])) for one in images]

    def score(drawn: Sequence[tuple[int, ...]]) -> float | None:
        wrong, mentioned, right, asked = map(sum, zip(*drawn, strict=True))
        return amber_score(wrong / mentioned, right / asked) if mentioned and asked else None

    return bootstrap(parts, score)
