"""`validate extraction`: what an engine reads of annotated answers, against their facts.

Facts that were read are paired with those of the annotation one to one. Two say the same when their wordings
are equal ("There is a red dog." and "The dog is red." say the same); or when their sentences are close
(MiniLM) and nothing sets them apart: the same things in the same order, the same denial, numbers, colours and
places, no opposites.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta

from groundwatch.errors import GroundwatchError, Unscorable, told_to_user
from groundwatch.events import Claim, Decision, Judge, KnownFact, Reference, ResponseRecorded
from groundwatch.extraction.engines import build
from groundwatch.extraction.engines.base import Extraction, ExtractionEngine
from groundwatch.language.tokens import NUMBER_WORDS
from groundwatch.models.embeddings import SentenceEmbedder
from groundwatch.protocols import registry
from groundwatch.protocols.method import CommandResult, Progress, Result
from groundwatch.reading.document import keep_languages, read_document
from groundwatch.reporting.report import OTHER_LANGUAGE, Counts, Faultless
from groundwatch.runtime.settings import Settings
from groundwatch.terminal import Group, RenderableType, Table, box
from groundwatch.verification.engines.reference import Rules, knowledge, rule
from groundwatch_benchmarks.json_files import read_lines

FACTS = "facts"
_NOTHING = "nothing_to_verify"
_REASONS = {
    _NOTHING: re.compile("nothing_to_verify|no_claim_in_answer|refus"),
    "another_language": re.compile("another_language"),
    "reasoning_only": re.compile("reasoning_only"),
}


class GoldAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An annotated answer. `expected` are facts, or why there are none; `never` must not be read in it."""

    id: str
    style: str
    prompt: str
    answer: str
    facts: tuple[GoldFact, ...] = ()
    never: tuple[str, ...] = ()
    expected: str = FACTS


class Read(msgspec.Struct, frozen=True, kw_only=True):
    claims: tuple[Claim, ...] = ()
    reason: str = ""


async def validate(
    file: Annotated[Path, Meta(description="Answers with their facts (JSON lines).")],
    *,
    engine: Annotated[str, Meta(description="Who reads them. By default as in settings.")] = "",
    protocol: Annotated[str, Meta(description="Whose facts; the gateway's own protocol when absent.")] = "",
    out: Annotated[
        Path | None, Meta(description="Also write here what extraction alone makes of faultless answers.")
    ] = None,
    settings: Settings,
    progress: Progress,
) -> CommandResult:
    """What an extraction engine reads of annotated answers: facts right, wrong, inverted and missed."""
    chosen = settings.extraction.model_copy(update={"engine": engine} if engine else {})
    found = await measure(file, build(chosen), protocol or settings.gateway.protocols[0], progress)
    if out is not None:
        with told_to_user(f"{out}: cannot be written"):
            out.write_bytes(msgspec.json.format(msgspec.json.encode(faultless(found)), indent=1) + b"\n")
    return CommandResult(numbers=found, table=_shown(found))


def _shown(found: Mapping[str, Any]) -> RenderableType:
    """A line for each style, and for the answers in English."""
    columns = ("answers", "facts", "precision", "recall", "f1", "inverted", "forbidden", "wrong_outcomes")
    table = Table(title="Facts read, against those annotated", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("style")
    for column in columns:
        table.add_column(column.replace("_", " "), justify="right")
    for style, counts in (*found["styles"].items(), ("English", found["english"])):
        table.add_row(style, *(_figure(counts[column]) for column in columns))
    english = found["english"]
    told = [
        f"Denials read: {english['denials_read']} of {english['denials']}. "
        f"Hedges marked: {english['hedged_marked']} of {english['hedged']}."
    ]
    if english["decided"]:
        told.append(
            f"A faultless model would show {english['alone']:.1%} by extraction alone: "
            f"{english['refuted']} of {english['decided']} decided facts."
        )
    return Group(table, *told)


def _figure(value: float | int | None) -> str:
    return "–" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)


async def measure(file: Path, engine: ExtractionEngine, protocol: str, progress: Progress) -> Result:
    """Figures over English answers, over all, and by style.

    `alone` is what extraction alone makes of faultless answers: the share of decided facts that the reference
    judge refutes where all annotated facts are known to hold, and nothing else is there.
    """
    answers = [answer for _, answer in read_lines(file, GoldAnswer)]
    read: list[Read] = []
    for start in range(0, len(answers), 32):
        read += await read_answers(answers[start : start + 32], engine, protocol)
        progress("answers", len(read), len(answers))
    by = {"protocol": protocol, "judge": msgspec.to_builtins(engine.judge(registry.get(protocol)))}
    return by | figures(answers, read, SentenceEmbedder(cached=50_000))


def faultless(found: Mapping[str, Any]) -> Faultless:
    """What of the figures ships, to stand beside rates."""
    return Faultless(
        protocol=found["protocol"],
        judge=msgspec.convert(found["judge"], Judge),
        styles={
            style: Counts(refuted=one["refuted"], decided=one["decided"])
            for style, one in found["styles"].items()
            if style != OTHER_LANGUAGE and one["decided"]
        },
    )


async def read_answers(answers: Sequence[GoldAnswer], engine: ExtractionEngine, protocol: str) -> list[Read]:
    """What the extraction stage makes of each answer for a protocol whose claims are facts."""
    ends: dict[str, Read] = {}
    responses = []
    for answer in answers:
        document = read_document(answer.answer)
        if document.unread is None:
            document = keep_languages(document, engine.languages, answer.prompt)
        if (why := document.unread) is not None:
            ends[answer.id] = Read(reason=why.reason)
            continue
        responses.append(
            ResponseRecorded(id=answer.id, model="gold", prompt=answer.prompt, answer=document.text)
        )
    results = await engine.extract(responses, registry.get(protocol))
    for response, result in zip(responses, results, strict=True):
        match result:
            case Extraction(claims=()):
                ends[response.id] = Read(reason=_NOTHING)
            case Extraction():
                ends[response.id] = Read(claims=result.claims)
            case Unscorable():
                ends[response.id] = Read(reason=result.reason)
            case GroundwatchError():
                raise result
    return [ends[answer.id] for answer in answers]


def figures(answers: Sequence[GoldAnswer], read: Sequence[Read], embedder: SentenceEmbedder) -> Result:
    matcher = Matcher((fact for answer in answers for fact in answer.facts), embedder)
    styles: dict[str, Counter[str]] = defaultdict(Counter)
    for answer, end in zip(answers, read, strict=True):
        styles[answer.style] += _count(answer, end, matcher)
    english = sum((count for style, count in styles.items() if style != OTHER_LANGUAGE), Counter[str]())
    return {
        "english": _view(english),
        "all": _view(sum(styles.values(), Counter[str]())),
        "styles": {style: _view(count) for style, count in sorted(styles.items())},
    }


def _count(answer: GoldAnswer, end: Read, matcher: Matcher) -> Counter[str]:
    texts = [claim.text for claim in end.claims]
    pairs = matcher.pairs(texts, answer.facts)
    gold = tuple(KnownFact(text=text, holds=True) for fact in answer.facts for text in fact.texts)
    rules = Rules(knowledge(Reference(facts=gold, complete=True)))
    alone = Counter(rule(text, rules).decision for text in texts)
    said = {wording(texts[at]) for at in pairs}
    qualities = qualities_of(answer.facts)
    count = Counter(answers=1, claims=len(texts), wrong_outcomes=not _as_expected(answer, end))
    count.update(refuted=alone[Decision.REFUTED], decided=alone.total() - alone[Decision.UNDECIDED])
    for at, text in enumerate(texts):
        if at in pairs:
            count["optional" if answer.facts[pairs[at]].optional else "right"] += 1
        elif wording(text) not in said and not any(
            matcher.same(text, fact, qualities) == 2.0 for fact in answer.facts
        ):
            # What is said again, in other words too, counts neither for nor against.
            count["wrong"] += 1
            count["inverted"] += matcher.inverted(text, answer.facts)
            count["forbidden"] += is_forbidden(text, answer.never)
    read = {fact: at for at, fact in pairs.items()}
    for number, fact in enumerate(answer.facts):
        if fact.optional:
            continue
        count["facts"] += 1
        count["missed"] += number not in read
        if fact.polarity == "-":
            count["denials"] += 1
            count["denials_read"] += number in read
        if fact.hedged:
            count["hedged"] += 1
            count["hedged_marked"] += number in read and end.claims[read[number]].hedged
    return count


def _as_expected(answer: GoldAnswer, end: Read) -> bool:
    if answer.expected == FACTS:
        return bool(end.claims)
    reason = _REASONS.get(answer.expected) or re.compile(re.escape(answer.expected))
    return not end.claims and reason.search(end.reason) is not None


_COUNTS = (
    *("answers", "facts", "claims", "right", "wrong", "missed", "optional", "inverted", "forbidden"),
    *("wrong_outcomes", "denials", "denials_read", "hedged", "hedged_marked", "refuted", "decided"),
)


def _view(count: Counter[str]) -> dict[str, float | int | None]:
    right = count["right"]
    precision = right / read if (read := right + count["wrong"]) else None
    recall = right / known if (known := right + count["missed"]) else None
    both = 2 * right / (2 * right + count["wrong"] + count["missed"]) if right else None
    alone = count["refuted"] / count["decided"] if count["decided"] else None
    figures = {"precision": precision, "recall": recall, "f1": both, "alone": alone}
    return {**figures, **{name: count[name] for name in _COUNTS}}


CLOSE = 0.85
"""Cosine from which two sentences can say the same."""

_QUALITIES_ALIKE, _WORDS_ALIKE = 0.6, 0.5


class GoldFact(msgspec.Struct, frozen=True, kw_only=True):
    """A fact of an annotated answer; `alt` are other wordings of it, `polarity` is "-" for a denial."""

    text: str
    category: str
    polarity: str = "+"
    hedged: bool = False
    optional: bool = False
    alt: tuple[str, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.text, *self.alt)


class Matcher:
    """Compares facts; `known` are the facts whose things count as things."""

    def __init__(self, known: Iterable[GoldFact], embedder: SentenceEmbedder) -> None:
        self._embedder = embedder
        said = (
            wording(text)
            for fact in known
            if fact.category == "entity" or (is_existence(fact.text) and fact.polarity == "-")
            for text in fact.texts
        )
        self._things = {one.about[0] for one in said if one.form == "exists"} - no_things()

    def pairs(self, texts: Sequence[str], facts: Sequence[GoldFact]) -> dict[int, int]:
        """Indices of texts with those of their facts, of the greatest total; required facts come first."""
        from scipy.optimize import linear_sum_assignment

        if not texts or not facts:
            return {}
        qualities = qualities_of(facts)
        scores = np.array(
            [
                [
                    (same + 0.1 * (not fact.optional)) if (same := self.same(text, fact, qualities)) else 0.0
                    for fact in facts
                ]
                for text in texts
            ]
        )
        return {
            int(row): int(column)
            for row, column in zip(*linear_sum_assignment(-scores), strict=True)
            if scores[row, column] > 0
        }

    def same(self, text: str, fact: GoldFact, qualities: Mapping[str, frozenset[str]]) -> float:
        """2 for an equal wording, a cosine for a close one, 0 for another fact."""
        if fact.category == "entity" and not is_existence(text):
            return 0.0
        texts = dict.fromkeys((*fact.texts, *(self._plain(one, qualities) for one in fact.texts)))
        plain = self._plain(text, qualities)
        if any(wording(one) in (wording(text), wording(plain)) for one in texts):
            return 2.0
        denied, best = denies(plain), 0.0
        for one in texts:
            other = fact.polarity == "-" if one == fact.text else denies(one)
            if denied == other or denied is None or other is None:
                best = max(best, self._close(plain, one, qualities))
        return best

    def inverted(self, text: str, facts: Sequence[GoldFact]) -> bool:
        """Whether a text says of one of the facts the contrary."""
        own = wording(text)
        if denies(text) is None:
            return False
        for fact in facts:
            for one in fact.texts:
                other = wording(one)
                if other[:3] == own[:3] and other.denied != own.denied and denies(one) is not None:
                    return True
                if fact.polarity == "-" and denies(one) and denies(text) is False and other.form == own.form:
                    affirmed = re.sub(r"\b(?:no|not|any)\b ?", "", one)
                    if self._close(text, affirmed, {}):
                        return True
        return False

    def _plain(self, text: str, qualities: Mapping[str, frozenset[str]]) -> str:
        """ "The ginger cat is on …" is "The cat is on …" where the answer says that the cat is ginger."""
        if is_existence(text):
            return text
        spelt = text.rstrip(".").split()
        return " ".join(word for at, word in enumerate(spelt) if not _is_known(spelt, at, qualities)) + "."

    def _close(self, text: str, gold: str, qualities: Mapping[str, frozenset[str]]) -> float:
        own, other = wording(text), wording(gold)
        things = self._nouns(text)
        if own.denied != other.denied or not things or things != self._nouns(gold):
            return 0.0
        if (own.form == "exists") != (other.form == "exists") or _set_apart(text, gold, own.form == "exists"):
            return 0.0
        if own.form == "exists":
            mine, theirs = frozenset(own.rest), frozenset(other.rest)
            if own.about != other.about or (not theirs and not is_existence(text)):
                return 0.0
            if bool(mine) != bool(theirs):
                if theirs or mine & qualities.get(other.about[0], frozenset()):
                    return 0.0
            elif mine and not mine & theirs and self._cosine(mine, theirs) < _QUALITIES_ALIKE:
                return 0.0
        elif not self._same_words(text, gold, things):
            return 0.0
        cosine = self._cosine([text], [gold])
        return cosine if cosine >= CLOSE else 0.0

    def _same_words(self, text: str, gold: str, things: Sequence[str]) -> bool:
        """Who does it to whom, and a word in common, or words alike, beside the things."""
        left_out = ARTICLES | BE | FILLERS | NEUTRAL
        mine, theirs = ([stem(word) for word in words(one) if word not in left_out] for one in (text, gold))
        shared = set(mine) & set(theirs)
        if [w for w in dict.fromkeys(mine) if w in shared] != [
            w for w in dict.fromkeys(theirs) if w in shared
        ]:
            return False
        rest, other = (
            {stem(word) for word in words(one) if word not in left_out and word not in PLACES} - set(things)
            for one in (text, gold)
        )
        return (
            rest == other
            or bool(rest & other)
            or self._cosine(rest or {"be"}, other or {"be"}) >= _WORDS_ALIKE
        )

    def _nouns(self, text: str) -> list[str]:
        stems = [stem(word) for word in words(text) if word not in ARTICLES]
        heads = [word in self._things for word in stems]
        return [word for at, word in enumerate(stems) if heads[at] and not any(heads[at + 1 : at + 2])]

    def _cosine(self, mine: Iterable[str], theirs: Iterable[str]) -> float:
        first, second = self._embedder.encode([" ".join(sorted(mine)), " ".join(sorted(theirs))])
        return float(first @ second)


def qualities_of(facts: Sequence[GoldFact]) -> dict[str, frozenset[str]]:
    """What the facts say of each thing."""
    qualities: dict[str, frozenset[str]] = defaultdict(frozenset)
    for fact in facts:
        for text in fact.texts:
            said = wording(text)
            if said.form == "exists":
                named = frozenset(word for word in said.rest if not any(map(str.isdigit, word)))
                qualities[said.about[0]] |= named
    return qualities


def _is_known(spelt: Sequence[str], at: int, qualities: Mapping[str, frozenset[str]]) -> bool:
    following = [stem(word.lower()) for word in spelt[at + 1 : at + 4]]
    head = next((word for word in following if word in qualities), None)
    if head is None:
        return False
    gap = following[: following.index(head)]
    between = {word.lower() for word in spelt[at : at + 1 + len(gap)]}
    if between & (BE | PLACES.keys() | {"has", "have"}):
        return False
    return {stem(spelt[at].lower()), *gap} <= qualities[head]


def _set_apart(text: str, gold: str, exists: bool) -> bool:
    mine, theirs = words(text), words(gold)
    if _numbers(mine) != _numbers(theirs):
        return True
    colors, others = _colors_in(mine), _colors_in(theirs)
    if colors != others and (exists or (colors and others)):
        return True
    if {PLACES[word] for word in mine if word in PLACES} != {
        PLACES[word] for word in theirs if word in PLACES
    }:
        return True
    return any(
        opposites & set(mine) and opposites & set(theirs) and opposites & set(mine) != opposites & set(theirs)
        for opposites in OPPOSITES
    )


def _numbers(spelt: Sequence[str]) -> set[str]:
    return {NUMBERS.get(word, word) for word in spelt if word in NUMBERS or any(map(str.isdigit, word))}


def _colors_in(spelt: Sequence[str]) -> set[str]:
    return {part for word in spelt for part in word.split("-")} & COLORS


def is_forbidden(text: str, forbidden: Sequence[str]) -> bool:
    """Whether a gold set says that this must not be read: by a pattern, to the letter, or by wording."""
    for one in forbidden:
        if one.startswith("re:"):
            if re.search(one[3:], text.lower()):
                return True
        elif set(words(one)) & (DENIALS | NUMBERS.keys()) or re.search(r"\d|dozen|no one", one):
            if _letters(one) == _letters(text):
                return True
        elif wording(one) == wording(text):
            return True
    return False


def _letters(text: str) -> list[str]:
    return re.findall(r"[\w:.$%]+", text.lower().rstrip("."))


class _Lists(msgspec.Struct, frozen=True):
    articles: str
    be: str
    helpers: str
    fillers: str
    denials: str
    either: str
    colors: str
    neutral: str
    holders: str
    no_things: str
    opposites: list[str]
    places: dict[str, str]
    lemmas: dict[str, str]


_LISTS = msgspec.toml.decode(
    resources.files(__package__).joinpath("extraction.toml").read_bytes(), type=_Lists
)
ARTICLES, BE, FILLERS = (frozenset(words.split()) for words in (_LISTS.articles, _LISTS.be, _LISTS.fillers))
DENIALS, EITHER, COLORS = (
    frozenset(words.split()) for words in (_LISTS.denials, _LISTS.either, _LISTS.colors)
)
NEUTRAL, HELPERS = frozenset(_LISTS.neutral.split()), frozenset(_LISTS.helpers.split())
OPPOSITES = [frozenset(words.split()) for words in _LISTS.opposites]
PLACES = {word: place for place, words in _LISTS.places.items() for word in words.split()}
NUMBERS = {word: str(number) for word, number in NUMBER_WORDS.items()}

_HOLDER = re.compile(
    rf"\b({'|'.join(_LISTS.holders.split())}) of (?:[a-z-]+ )??[a-z-]+"
    r"(?= (?:is|are|has|have|lies|lie|sits|stands|hangs|on|in|at)\b|[.]?$)"
)
_SPELLINGS = (
    (re.compile(r"can't|cannot"), "can not"),
    (re.compile(r"n't\b"), " not"),
    (re.compile(r"\bno one\b"), "nobody"),
    (re.compile(r"\bhalf a dozen\b"), "6"),
    (re.compile(r"\b(?:a |one )?dozen\b(?!s)"), "12"),
    (re.compile(r"\bon (?:the )?top of\b"), "on"),
    (re.compile(r"\bin front of\b"), "_infrontof"),
    (re.compile(r"\bnext to\b"), "_nextto"),
    (re.compile(r"\b\w+'s\b |\b\w+s' "), ""),
    (re.compile(r"(?<=\d),(?=\d)"), ""),
    (_HOLDER, r"\1"),
)
_TOKEN = re.compile(r"\$?\d+(?:[.:/]\d+)*%?|[^\W\d_]+(?:-[^\W_]+)*|_\w+|\d+\w*")
_TWO_DENIALS = re.compile(r"\b(?:an?|the) (?:no|neither|none|nobody|nothing)\b")


class Wording(NamedTuple):
    """A fact's form, what it is about, the rest of its words, and whether it denies.

    `form` is "exists" for a thing with its qualities, "is" for what a thing is, "place" for "There is …" with
    a place, "relation" otherwise.
    """

    form: str
    about: tuple[str, ...]
    rest: frozenset[str] | tuple[str, ...]
    denied: bool


@lru_cache(maxsize=100_000)
def stem(word: str) -> str:
    word = _LISTS.lemmas.get(word, word)
    if word in NUMBERS:
        return NUMBERS[word]
    return word if len(word) < 4 or any(map(str.isdigit, word)) else _stemmer().stem(word)


@lru_cache(maxsize=1)
def _stemmer() -> Any:
    from nltk.stem.porter import PorterStemmer

    return PorterStemmer()


@lru_cache(maxsize=100_000)
def words(text: str) -> tuple[str, ...]:
    """The words of a fact in one spelling: without owners, and a holder without what it holds."""
    lowered = text.lower().replace("’", "'").replace("‘", "'")
    for pattern, spelling in _SPELLINGS:
        lowered = pattern.sub(spelling, lowered)
    return tuple(_TOKEN.findall(lowered))


@lru_cache(maxsize=100_000)
def denies(text: str) -> bool | None:
    """Whether a fact is a denial; None where it can be taken for either."""
    if _TWO_DENIALS.search(text.lower()):
        return None
    spelt = set(words(text)) | set(re.findall(r"[a-z'-]+", text.lower()))
    if spelt & DENIALS:
        return True
    return None if spelt & EITHER else False


@lru_cache(maxsize=100_000)
def wording(text: str) -> Wording:
    denied, spelt = denies(text) is True, list(words(text))
    if spelt[:1] == ["there"] and len(spelt) > 2 and spelt[1] in BE:
        thing = [word for word in content(spelt[2:]) if word not in DENIALS]
        if thing and not any(word in PLACES or word in NEUTRAL - {"and"} for word in thing):
            stems = [stem(word) for word in thing if word != "and"]
            if stems:
                return Wording("exists", (stems[-1],), frozenset(stems[:-1]), denied)
        return Wording("place", tuple(map(stem, thing)), (), denied)
    cut = next((at for at, word in enumerate(spelt) if word in BE), 0)
    if cut and not any(word in PLACES or word in NEUTRAL for word in spelt[:cut]):
        copular = _copular(spelt[:cut], spelt[cut + 1 :], denied)
        if copular is not None:
            return copular
    said = [word for word in content(spelt) if word not in BE | DENIALS | HELPERS]
    return Wording("relation", tuple(map(stem, said)), (), denied)


def _copular(before: list[str], behind: list[str], denied: bool) -> Wording | None:
    """ "The dog is red": the dog with a quality; "The man is a cook": what he is."""
    subject = [stem(word) for word in content(before) if word not in DENIALS]
    predicate = [word for word in behind if word not in DENIALS]
    if subject and predicate[:1] in (["a"], ["an"]):
        stems = [stem(word) for word in content(predicate)]
        if stems and stems[-1] == subject[-1]:
            return Wording("exists", (stems[-1],), frozenset(stems[:-1]), denied)
        return Wording("is", tuple(subject), tuple(stems), denied)
    if predicate[:2] == ["made", "of"]:
        predicate = predicate[2:]
    predicate = content(predicate)
    if not subject or not 0 < len(predicate) <= 4:
        return None
    if any(word in PLACES or word in NEUTRAL - {"and"} for word in predicate):
        return None
    qualities = [stem(word) for whole in predicate if whole != "and" for word in _colors(whole)]
    if len(qualities) != 1 and re.search(r"(?:ing|ed|en)$", predicate[0]):
        return None
    return Wording("exists", (subject[-1],), frozenset(subject[:-1]) | frozenset(qualities), denied)


def _colors(word: str) -> list[str]:
    """ "red-and-white" is red and white; other compounds stay."""
    parts = [part for part in word.split("-") if part != "and"]
    return parts if set(parts) <= COLORS else [word]


def content(spelt: list[str] | tuple[str, ...]) -> list[str]:
    return [word for word in spelt if word not in ARTICLES and word not in FILLERS]


def is_existence(text: str) -> bool:
    return text.lower().startswith("there ")


@lru_cache(maxsize=1)
def no_things() -> frozenset[str]:
    """Stems that name no thing. Found when asked for: who stems loads nltk, which takes seconds."""
    return frozenset(map(stem, _LISTS.no_things.split())) | {"2", "3"}
