"""Tri-HE's triplets from what was read of an answer (section 3.3, in the place of an LLM).

A relation or a quality is a triplet, with articles and the verb "to be" before another verb or a preposition
left out: ("man", "riding", "horse"), ("horse", "is", "brown"). That something is there at all is no triplet,
for it has no second object.

The benchmark asks for conclusions (season, mood, purpose), and counts wrong ones as hallucinations. A guess,
and all that answers a question for a conclusion, is of the category `inference`; and a clause of a
sub-sentence in which no triplet was read is one: its subject, its verb without what hedges it, and what is
said, cut no further. A pronoun that nothing before it explains means what the question asks for.
"""

import re
from collections.abc import Iterator, Sequence

import msgspec

from groundwatch.events import Claim, ResponseRecorded
from groundwatch.language.lexicon import lexicon
from groundwatch.protocols.triplets import INFERENCE, Triplet, claim_of
from groundwatch.reading.graph import Fact, Kind, Reading
from groundwatch.reading.inflection import finite, is_be, is_modal, is_plural, verb_base, verb_form
from groundwatch.reading.names import ARTICLE

SCENE, IMAGE = "scene", "image"

IN_PASSING = 0.9
"""A quality that annotators rather leave out says again what a relation says: "is standing"."""

_WORD = re.compile(r"[^\W_]+(?:[-'’][^\W_]+)*|\S")
_ITEM = re.compile(r"\A\W{0,8}\d{1,3}[.)]\s")
_ONE = re.compile(r"\A(?:one|another|each|every)\s+(?=\w)", re.IGNORECASE)
"""Said before a name like an article: "another bird"."""
_SPEAKERS = frozenset({"i", "we", "you"})
"""What they do is not in the image: "I cannot say" concludes nothing."""
_LINKING = frozenset({"appear", "seem", "look", "feel", "become", "remain"})
_AUXILIARIES = frozenset({"have", "do", "has", "had", "does", "did", "cannot"})


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_QUESTION = _words("what which who whom whose why how where when")
_CONCLUDING = _words(
    """why likely unlikely possible possibly probably probable potential purpose reason appear appears
    appearing seem seems suggest suggests suggested imply implies infer inferred indicate indicates"""
)
_HEDGES = _words("likely possibly perhaps probably potentially maybe also too even currently overall")
_GUESSES = _words(
    "likely unlikely possibly perhaps probably potentially maybe may might could seem seems appear appears"
)
"""What says that a clause is only a guess."""
_REPLIES = _words("yes no unlikely")
_PRONOUNS = _words("it they he she this that these those there them")
_JOINS = _words(
    """as because since given considering judging based evidenced indicated suggested indicating suggesting
    implying although though while whereas if when which that who where so due"""
)
"""What joins a clause to another one, or to what it rests on."""
_PARTICLES = _words("in on at for with to from of by about as into up out like over after around")
_DROPPED = _words("a an the this these those his her its their my your our some any to be")
_PLACES = _words(
    "image picture photo scene background foreground view side left right center middle front back"
)
"""Where something is, and nothing yet that is there."""


def triplets(response: ResponseRecorded, reading: Reading) -> tuple[Claim, ...]:
    """The triplets of one answer in the order of its sub-sentences, each once."""
    concludes = asks_for_conclusion(response.prompt)
    numbers = {
        fact.thing: fact.words.lower()
        for fact in reading.facts
        if fact.kind is Kind.COUNT and _number(fact.words) > 1 and not fact.denied
    }
    claims: dict[tuple[int, Triplet], Claim] = {}
    facts = (fact for fact in reading.facts if fact.kind is not Kind.QUALITY or fact.optional <= IN_PASSING)
    relations = (fact for fact in reading.doubtful if fact.kind is Kind.RELATION)
    for fact in (*facts, *relations):
        for triplet in _triplets(fact, numbers.get(fact.thing, "")):
            category = INFERENCE if concludes or fact.hedged else ""
            claim = claim_of(triplet, unit=fact.unit, category=category)
            claims.setdefault(
                (fact.unit, triplet), msgspec.structs.replace(claim, span=fact.span, hedged=fact.hedged)
            )
    stated = {unit for unit, _ in claims}
    for unit, triplet, clause in _conclusions(response.prompt, reading, stated):
        claim = claim_of(triplet, unit=unit, category=INFERENCE)
        start = reading.units[unit].start
        claims.setdefault(
            (unit, triplet),
            msgspec.structs.replace(
                claim,
                span=(start + clause[0].start(), start + clause[-1].end()),
                hedged=any(word[0].lower() in _GUESSES for word in clause),
            ),
        )
    return tuple(sorted(claims.values(), key=lambda claim: claim.unit))


def _triplets(fact: Fact, number: str) -> Iterator[Triplet]:
    """ "The birds fly away" is ("birds", "is", "flying away"), in the words of scene graphs; "dry and arid"
    is two. What is counted has its number in each."""
    first, *rest = fact.words.split() or [""]
    if fact.kind is None:
        return
    if fact.kind is Kind.COUNT:
        if _number(fact.words) > 1:
            yield fact.subject, "are not" if fact.denied else "are", fact.words
        return
    subject = _ONE.sub("", fact.subject)
    if number and is_plural(subject):
        subject = f"{number} {subject}"
    if fact.kind is Kind.TEXT:
        yield subject, "says", fact.words
    elif fact.kind is Kind.VALUE:
        yield subject, "is", fact.words
    elif fact.kind is Kind.RELATION:
        copular = is_be(first) and rest and rest[0] != "not"
        yield (
            subject,
            " ".join(rest if copular else [first, *rest]),
            _ONE.sub("", ARTICLE.sub("", fact.object)),
        )
    elif is_be(first):
        denied = rest[:1] == ["not"]
        said = _plain(rest[1:] if denied else rest)
        several = re.split(r" and(?: |$)", said) if fact.kind is Kind.COLOR else _each(said)
        yield from ((subject, f"{first} not" if denied else first, one) for one in several if one)
    elif is_modal(first) or first in _AUXILIARIES:
        if rest:
            yield subject, first, _plain(rest)
    else:
        doing = verb_form(verb_base(first) or first, "VBG")
        yield subject, "is", " ".join([doing, *rest])


def _number(words: str) -> int:
    """The number, 0 for "many"."""
    low, high = lexicon().number(words) or (0, 0)
    return low if low == high else 0


Clause = Sequence[re.Match[str]]
"""Words of a sub-sentence, by their places in it."""


def _conclusions(question: str, reading: Reading, stated: set[int]) -> Iterator[tuple[int, Triplet, Clause]]:
    """One for each clause of the sub-sentences without a triplet, in order, with all words of the clause.

    Of a sub-sentence that names what is there, only what it says of it: "There is a dog" stays without one.
    """
    topic = asked_about(question, reading.asked)
    named = {fact.unit for fact in reading.facts if fact.span[1]}
    if question.rstrip().endswith("?") and len(reading.units) == 1:
        named = set()  # "A baseball game." answers what is asked.
    for number, unit in enumerate(reading.units):
        item = _ITEM.match(unit.text)
        words = list(_WORD.finditer(unit.text, item.end() if item else 0))
        for clause in _clauses(words):
            if not (told := _told(clause, len(words))):
                continue
            subject, relation, said, full = _read(told, topic)
            topic = subject if said and full else topic
            if said and number not in stated and (full or number not in named):
                yield from ((number, (subject, relation, one), clause) for one in _each(said))


def _each(said: str) -> list[str]:
    """ "Dry and arid" is two; "looking at the cat and the dog" is one."""
    words = said.split()
    return [words[0], words[2]] if len(words) == 3 and words[1] == "and" else [said]


def asks_for_conclusion(question: str) -> bool:
    """Whether a question asks what is likely, or why: its answer concludes, however flatly it is put.

    "Can you describe it?" and "What can be seen?" do not: their modal is politeness.
    """
    words = [word.lower() for word in _WORD.findall(question)]
    for at, word in enumerate(words):
        before, after = " ".join(words[max(0, at - 1) : at]), " ".join(words[at + 1 : at + 2])
        polite = before in _SPEAKERS or after in _SPEAKERS or (word, after) == ("can", "be")
        if word in _CONCLUDING or (is_modal(word) and not polite):
            return True
    return False


def asked_about(question: str, things: Sequence[str]) -> str:
    """ "What time of day might it be?": the time of day; "Why is the man sitting?": the man."""
    words = _WORD.findall(question)
    if words and words[0].lower() in _QUESTION:
        end = next((at for at, word in enumerate(words) if at and _is_auxiliary(word)), len(words))
        after = " ".join(words[end + 1 : end + 2]).lower()
        if 1 < end < len(words) and (after in _PRONOUNS or not things):
            return _plain(words[1:end]) or SCENE
    return next(iter(things), SCENE)


def _clauses(words: Clause) -> Iterator[Clause]:
    """Cut before what joins a clause to another one."""
    clause: list[re.Match[str]] = []
    for word in filter(_is_word, words):
        if word[0].lower() in _JOINS and any(_is_auxiliary(one[0]) for one in clause):
            yield clause
            clause = []
        clause.append(word)
    if clause:
        yield clause


def _is_word(word: re.Match[str]) -> bool:
    return any(map(str.isalnum, word[0]))


def _told(clause: Clause, words: int) -> list[str]:
    """A clause of a sub-sentence of so many words and marks, without what hedges it."""
    # "No" is a reply where it stands alone; in "no sign of danger" it is what is said.
    left = _HEDGES | {"yes"} | (_REPLIES if words <= 2 else frozenset())
    return [word[0] for word in clause if word[0].lower() not in left]


def _read(words: list[str], topic: str) -> tuple[str, str, str, bool]:
    """Subject, relation, what is said, and whether of a subject: without a verb it is just there."""
    evidence = words[0].lower() in _JOINS
    while words and words[0].lower() in _JOINS | {"and", "or", "but", "on", "in", "to"}:
        words = words[1:]
    at = _verb(words)
    if words and words[0].lower() in _SPEAKERS:
        return "", "", "", False
    if at is None:
        said = _plain(words)
        if said.rpartition(" ")[2].lower() in _PLACES:
            return "", "", "", False
        return (said, "in", IMAGE if said else "", False) if evidence else (topic, "is", said, False)
    subject, rest = _plain(words[:at]), words[at:]
    exists = bool(at) and words[0].lower() == "there"
    if not subject or exists or (at == 1 and words[0].lower() in _PRONOUNS):
        subject = SCENE if exists else topic
    denied = False
    relation = ""
    while rest and not relation:
        word = rest.pop(0).lower()
        denied |= word in {"not", "never", "cannot"} or word.endswith(("n't", "n’t"))
        following = rest[0].lower() if rest else ""
        if word in {"not", "never", "to"} or is_modal(word) or word in _AUXILIARIES:
            continue
        if is_be(word) or verb_base(word) in _LINKING:
            if following not in {"to", "not"} and not following.endswith("ing") and not is_be(following):
                relation = "is"
            continue
        relation = word
        if following in _PARTICLES:
            relation = f"{word} {rest.pop(0).lower()}"
    said = _plain(rest)
    if not said and relation not in ("", "is"):
        relation, said = "is", relation
    if denied:
        relation = "is not" if relation == "is" else f"not {relation}"
    return subject, relation or "is", said, not exists


def _verb(words: Sequence[str]) -> int | None:
    """Where the clause's verb stands: an auxiliary or linking verb, or else a word that is one by its form,
    or behind a plural."""
    for at, word in enumerate(words):
        if _is_auxiliary(word) or verb_base(word) in _LINKING:
            return at
    for at, word in enumerate(words):
        base = finite(word) if at else None
        if base and (base != word.lower() or is_plural(words[at - 1])):
            return at
    return None


def _is_auxiliary(word: str) -> bool:
    lowered = word.lower()
    return is_be(lowered) or is_modal(lowered) or lowered in _AUXILIARIES or lowered.endswith(("n't", "n’t"))


def _plain(words: Sequence[str]) -> str:
    """The words without an article or "to be" in front."""
    rest = list(words)
    while rest and (rest[0].lower() in _DROPPED or is_be(rest[0])):
        rest.pop(0)
    return " ".join(rest)
