"""What a clause says in one triplet, where the rules for facts read none: "It is likely raining".

Tri-HE's benchmark asks for conclusions (season, mood, purpose), and counts wrong ones as hallucinations. A
conclusion is its subject, the verb without what hedges it, and what is said, cut no further: ("weather",
"is", "raining"). A pronoun that nothing before it explains means what the question asks for.
"""

from collections.abc import Sequence

from groundwatch.events import Claim
from groundwatch.extraction.engines.linguistic import words as w
from groundwatch.extraction.engines.linguistic.phrases import read_nouns, read_verb
from groundwatch.extraction.engines.linguistic.rendering import AtomicFact
from groundwatch.extraction.engines.linguistic.tagging import FINITE, Token, look, tag
from groundwatch.protocols.triplets import INFERENCE

SCENE, IMAGE = "scene", "image"
_SPEAKERS = frozenset({"i", "we", "you"})
"""What they do is not in the image: "I cannot say" concludes nothing."""


def inferences(texts: Sequence[str], question: str, facts: Sequence[Claim]) -> tuple[AtomicFact, ...]:
    """One fact for each clause of the sub-sentences without a triplet among `facts`, in order.

    Of a sub-sentence that names something, only what it says of it: "There is a dog" stays without one.
    """
    topic = asked_about(question)
    found = []
    named = {fact.unit for fact in facts}
    told = {fact.unit for fact in facts if isinstance(fact, AtomicFact) and fact.subject}
    for unit, text in enumerate(texts):
        for tokens in _clauses(tag(text)):
            subject, relation, said, full = _read(tokens, topic)
            topic = subject if said and full else topic
            if said and unit not in told and (full or unit not in named):
                text = f"{subject} {relation} {said}"
                fact = AtomicFact(
                    text=text, category=INFERENCE, unit=unit, subject=subject, relation=relation, object=said
                )
                found.append(fact)
    return tuple(found)


def asks_for_conclusion(question: str) -> bool:
    """Whether a question asks what is likely, or why: its answer concludes, however flatly it is put.

    "Can you describe it?" and "What can be seen?" do not: their modal is politeness.
    """
    tokens = tag(question)
    for at, token in enumerate(tokens):
        before, after = look(tokens, at - 1).lower, look(tokens, at + 1).lower
        polite = before in _SPEAKERS or after in _SPEAKERS or (token.lower, after) == ("can", "be")
        if token.lower in w.CONCLUDING or (token.tag == "MD" and not polite):
            return True
    return False


def asked_about(question: str) -> str:
    """ "What time of day might it be?": the time of day; "Why is the man sitting?": the man."""
    tokens = tag(question)
    start = 1 if tokens and tokens[0].lower in w.QUESTIONS else 0
    end = start
    while end < len(tokens) and tokens[end].tag not in FINITE:
        end += 1
    after = end
    while look(tokens, after).tag in FINITE | {"RB"} or look(tokens, after).lower in w.HEDGES:
        after += 1
    if start and end > start and look(tokens, after).tag in {"", "PRP", "VBG", "VBN"}:
        return _text(tokens[start:end]) or SCENE
    nouns, stop = read_nouns(tokens, after)
    return (
        (_text(tokens[after:stop]) if nouns and not nouns[0].pronoun else "")
        or _text(tokens[start:end])
        or SCENE
    )


def _clauses(tokens: Sequence[Token]) -> list[list[Token]]:
    """Cut before what joins a clause to another one, and without what hedges."""
    found: list[list[Token]] = [[]]
    for token in tokens:
        joins = token.tag in {"SUB", "W"} or token.lower in w.EVIDENCE
        if joins and any(other.tag in FINITE for other in found[-1]):
            found.append([])
        # "No" is a reply where it stands alone; in "no sign of danger" it is what is said.
        if token.lower not in w.HEDGES | {"yes"} and not (len(tokens) == 1 and token.lower in w.REPLIES):
            found[-1].append(token)
    return [clause for clause in found if clause]


def _read(tokens: list[Token], topic: str) -> tuple[str, str, str, bool]:
    """Subject, relation, what is said, and whether of a subject: without a verb it is just there."""
    evidence = tokens[0].lower in w.EVIDENCE or tokens[0].tag in {"SUB", "IN"}
    while tokens and (tokens[0].lower in w.EVIDENCE or tokens[0].tag in {"SUB", "W", "CC", "IN"}):
        tokens = tokens[1:]
    verbs = [at for at, token in enumerate(tokens) if token.tag in FINITE]
    verbs += [at for at, token in enumerate(tokens) if token.tag in {"VBG", "VBN"}]
    at = verbs[0] if verbs else 0
    verb, end = read_verb(tokens, at) if verbs else (None, 0)
    if verb is None:
        said = _text(tokens)
        if said.rpartition(" ")[2].lower() in w.PICTURES | w.SPOTS:
            return "", "", "", False  # "In the background": where, and nothing yet that is there
        return (said, "in", IMAGE if said else "", False) if evidence else (topic, "is", said, False)
    if tokens[0].lower in _SPEAKERS:
        return "", "", "", False
    subject = _text(tokens[:at])
    exists = bool(at) and tokens[0].tag == "EX"
    if not subject or exists or (at == 1 and tokens[0].tag in {"PRP", "DT", "PRO"}):
        subject = SCENE if exists else topic
    doing = "is" if verb.shape == "be" else f"{verb.word} {verb.particle}".strip()
    said = _text(tokens[end:])
    if not said and doing != "is":
        doing, said = "is", doing
    if verb.negated:
        doing = "is not" if doing == "is" else f"not {doing}"
    return subject, doing, said, not exists


def _text(tokens: Sequence[Token]) -> str:
    """The words without an article or "to be" in front."""
    found = [token.text for token in tokens if token.tag != "POS"]
    while found and found[0].lower() in (w.DETERMINERS | w.POSSESSIVES | {"to", "be", "not"}) - {
        "no",
        "neither",
    }:
        found = found[1:]
    return " ".join(found)
