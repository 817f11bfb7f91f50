"""Yes/no questions as the services see them: one response answers one question about an image.

POPE and DASH-B ask such questions. "Yes" is the positive class of a cell: `fp` is an object that the model
saw and the image has not. A number whose denominator is 0 is None.

The question's truth travels in the response's reference as a known fact whose text is the question itself,
and which holds where yes is right. The claim of an answer "yes" is the question's text too, and that of "no"
the same with "No." after it; so any judge that knows the fact decides the claim by it. Without such a fact
the claim is written as a statement, which a judge can hold against objects, triplets or the image.

How a free-form reply is read: POPE (Li et al. 2023, section 4) asks "Is there a … in the image?" and takes
the reply for yes or no. Models do not always say just that, so what it speaks is read in this order, and the
first step that decides ends it:

1. It refuses to look, or says nothing: unread.
2. An announced answer ("the answer is no"): the last one.
3. It begins with yes or no, whatever follows ("Yes, but it is small").
4. It does not know, or keeps both open: unread.
5. A yes or no word further on ("Well, yes").
6. A statement: no where the clause about the thing asked for is negated, yes where it affirms.

Anything else is unread, with a reason, and never counted as either.
"""

import re
import unicodedata
from collections.abc import Mapping
from typing import ClassVar, Literal

import msgspec

from groundwatch.errors import UNDECODED, InputError, Unscorable
from groundwatch.events import (
    Claim,
    ClaimsMatched,
    ClaimsVerified,
    Decision,
    ResponseRecorded,
)
from groundwatch.protocols.base import EvaluationProtocol, ExtractionRules, Score, Stage, folded, with_article
from groundwatch.reading.document import read_document

Answer = Literal["yes", "no"]

EMPTY = "empty_reply"
REFUSED = "refused_reply"
UNSURE = "unsure_reply"
BOTH = "contradictory_reply"
UNREADABLE = "unreadable_reply"

REASONS = (EMPTY, REFUSED, UNSURE, BOTH, UNREADABLE)
"""Why a reply can be neither yes nor no."""


class Reading(msgspec.Struct, frozen=True):
    """What a reply says; `reason` is one of `REASONS` where `answer` is None."""

    answer: Answer | None
    reason: str = ""


_YES = (
    r"(?:(?:yes|yeah|yep|yup|affirmative|correct|indeed|absolutely|definitely|certainly|of course)"
    r"(?!\s+(?:not|no)\b))"
)
_NO = r"(?:no|nope|nah|negative)"
_GAP = r"\W{0,8}"
_PHOTO = r"(?:images?|pictures?|photos?|photographs?|visual content)"
_CANNOT = r"(?:can(?:not|'t| not)|could(?: not|n't)|(?:am |'m )?(?:not able|unable) to)"

_OFFERED = re.compile(r"[\"'(]?\byes\b[\"']?\s*(?:or|/|\\|\|)\s*[\"']?\bno\b[\"')]?")
_BOTH = re.compile(rf"^{_GAP}(?:both\W+)?(?:{_YES}\W+and\W+{_NO}|{_NO}\W+and\W+{_YES})\b")
_FILLER = re.compile(
    r"\b(?:(?:there (?:is|'s) |with |without )?no doubt|no problem|no wonder|no matter|no longer|no need"
    r"|no further|no more than|no less than|no other than|not only|not just|not necessarily the only)\b"
)
_ANNOUNCED = re.compile(
    rf"\banswer(?: to (?:the|your|this) question)?(?: here)?(?: is|:| would be){_GAP}({_YES}|{_NO})\b"
)
_FIRST = re.compile(
    rf"^{_GAP}(?:({_YES})|({_NO}))\b(?!\s+(?:idea|way|clue|answer|comment|information|image|picture)\b)"
)
_REFUSES = re.compile(
    rf"\b{_CANNOT} (?:\w+ )?(?:see|view|access|open|analy[sz]e|process|display|interpret|look at|assist|help)"
    rf"(?: with)?(?: (?:the|any|this|that|an|a|your|attached|provided|uploaded|actual|or|and|view|analyze))*"
    rf"(?: {_PHOTO}\b|{_GAP}$)"
    rf"|\bno {_PHOTO} (?:is|was|has been|were) (?:attached|provided|given|uploaded|shared|visible)"
    rf"|\b(?:please|could you) (?:\w+ )?(?:provide|upload|attach|share) (?:the|an|a|your) {_PHOTO}"
    r"|\bas an? (?:ai|language|text)[- ]\w*.{0,60}\b(?:cannot|can't|unable)\b|\bno comment\b"
)
_UNSURE = re.compile(
    r"\b(?:not|n't|cannot be|never|hardly) (?:\w+ )?(?:sure|certain|clear|possible|know|tell|say"
    r"|determined?|confirm(?:ed)?|answer|decide|discernible whether)\b"
    rf"|\b{_CANNOT} (?:\w+ )?(?:tell|say|determine|confirm|decide|answer|know|verify"
    r"|be (?:sure|certain|determined))\b"
    r"|\b(?:unsure|uncertain|unclear|unknown|maybe|perhaps|possibly|probably|depends|ambiguous|inconclusive)\b"
    r"|\b(?:might|may|could|would) (?:\w+ )?(?:be|have|contain|show)\b|\bno (?:idea|way|clue)\b"
    r"|\b(?:hard|difficult|impossible|tough) to (?:tell|say|see|know|determine|be (?:sure|certain))\b"
    r"|\b(?:insufficient|not enough|no) (?:information|detail|context|evidence)\b|\b(?:do not|don't) know\b"
)
_YES_WORD = re.compile(rf"(?<![\w'-]){_YES}(?![\w'-])")
_NO_ALONE = re.compile(
    rf"(?:^|[,.;:!?\n*\"(]){_GAP}{_NO}{_GAP}(?:$|[,.;:!?\n*\")])|\b(?:say|be|think|is) {_NO}{_GAP}$"
)
_NEGATION = re.compile(
    r"\b(?:no|not|none|nothing|nobody|nowhere|never|neither|nor|without|cannot|absent|lacks?|lacking|missing|false"
    r"|incorrect|absence)\b|n't\b"
)
_AFFIRMS = re.compile(
    r"\bthere(?: is| are|'s|'re| was| were| appears?| seems?| exists?)\b"
    r"|\b(?:i|we|you|one) (?:can |do |could )?(?:\w+ly )?(?:see|spot|notice|observe|identify|find|detect)\b"
    rf"|\b(?:{_PHOTO}|scene|it) (?:\w+ly )?(?:does )?"
    r"(?:shows?|contains?|features?|includes?|depicts?|has|have|displays?)\b"
    r"|\b(?:is|are|can be) (?:\w+ly )?"
    r"(?:visible|present|shown|seen|pictured|depicted|included|in the|on the|there)\b"
    r"|^\W{0,8}(?:it|they|he|she|this|that) (?:is|are|does|do|has|have)\b"
    r"|\b(?:true|sure|right|exactly)\W{0,8}$|^\W{0,8}(?:sure|true)\b"
)
_CLAUSE = re.compile(
    r"[.;!?\n]+|,?\s+\b(?:but|however|although|though|while|whereas)\b|,(?=\s*(?:and|there|only|just)\b)"
)
_READ = 4_000
"""Characters of a reply that are read: what says neither yes nor no by then is no reply to the question."""

_SPOKEN = 16_000
"""Characters of a reply, its first and its last, in which its answer is looked for."""

_FENCED = re.compile(r"\A\s*+```\w*+\s*+(.*?)\s*+```\s*+\Z", re.DOTALL)
_BOXED = re.compile(r"\\boxed\{(?:\\(?:text|mathrm|mathbf|textbf)\{)?+([^{}]{0,200}+)\}")
_KEYS = ("answer", "final_answer", "choice", "option", "result", "prediction", "response", "label", "count")
_ASKED = re.compile(
    rf"^{_GAP}(?:is|are) there (?:an? |any |some |the )?(.+?)"
    rf"(?: (?:in|on|visible|present|shown)\b.*+)?{_GAP}$"
)


def read_reply(reply: str, question: str = "") -> Reading:
    """Read a reply as yes or no; `question` helps where it names a thing ("Is there a dog in the image?")."""
    text = plain_reply(spoken(reply))
    if not any(character.isalnum() for character in text):
        return Reading(None, EMPTY)
    if _BOTH.search(text):
        return Reading(None, BOTH)
    text = _FILLER.sub(" ", _OFFERED.sub(" ", text))
    if not any(character.isalnum() for character in text):
        return Reading(None, BOTH)
    announced = _ANNOUNCED.findall(text)
    if announced:
        return Reading("no" if re.fullmatch(_NO, announced[-1]) else "yes")
    first = _FIRST.match(text)
    if first:
        return Reading("yes" if first[1] else "no")
    if _REFUSES.search(text):
        return Reading(None, REFUSED)
    if _UNSURE.search(text):
        return Reading(None, UNSURE)
    return _later(text) or _stated(text, plain_reply(question))


def spoken(reply: str) -> str:
    """The answer of a reply without what models put around it: reasoning and marks, a JSON object with a key
    such as `answer`, and `\\boxed{}`, of which the last counts.
    """
    if len(reply) > _SPOKEN:
        # The beginning of reasoning and its end say together what lies between.
        reply = f"{reply[: _SPOKEN // 2]}\n{reply[-_SPOKEN // 2 :]}"
    text = read_document(reply).text.strip()
    fenced = _FENCED.match(text)
    if (inner := fenced[1] if fenced else text).startswith("{"):
        try:
            fields = msgspec.json.decode(inner)
        except UNDECODED:
            fields = {}
        replies = (_only(fields.get(key)) for key in _KEYS)
        value = next((reply for reply in replies if isinstance(reply, str | bool | int | float)), None)
        if value is not None:
            return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
    # Where what is boxed was a mark of the document, its words are still in the reply.
    boxed = _BOXED.findall(reply)
    return boxed[-1] if boxed and any(map(str.isalnum, boxed[-1])) else inner.replace("__", " ")


def _only(value: object) -> object:
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def plain_reply(text: str) -> str:
    """The beginning of a reply as it is read: one form of letters and quotation marks, in lower case."""
    folded = unicodedata.normalize("NFKC", text[:_READ]).casefold()[:_READ]
    return " ".join(re.sub(r"[’‘`´]", "'", folded).split(" ")).strip()


def _later(text: str) -> Reading | None:
    yes, no = _YES_WORD.search(text), _NO_ALONE.search(text)
    if yes and no:
        return Reading(None, BOTH)
    if no:
        return Reading("no")
    if yes and not _NEGATION.search(text[max(0, yes.start() - 12) : yes.start()]):
        return Reading("yes")
    return None


def _stated(text: str, question: str) -> Reading:
    clauses = [clause for clause in _CLAUSE.split(text) if clause and clause.strip()]
    asked = _ASKED.match(question)
    if asked:
        thing = re.compile(rf"\b{re.escape(asked[1])}(?:e?s)?\b")
        clauses = [clause for clause in clauses if thing.search(clause)] or clauses
    for clause in clauses:
        if _NEGATION.search(clause):
            return Reading("no")
        if _AFFIRMS.search(clause):
            return Reading("yes")
    return Reading(None, UNREADABLE)


NO_TRUTH = "no_truth"

UNREAD = {"accuracy": 0.0}
"""The values of a reply that cannot be read: as wrong as any other, so that a refusal does not pay."""

_EXISTS = re.compile(r"^\s*(is|are) there (?:an? |any |some )?([^?]*[^?\s])\s*+(?:\?.*+)?$", re.IGNORECASE)
ANSWERS: dict[str, Answer] = {"yes": "yes", "no": "no"}
_OTHER: dict[Answer, Answer] = {"yes": "no", "no": "yes"}


class YesNoProtocol(EvaluationProtocol):
    """Read the reply by rule, decide whether it is right, count it. `score` is 1 for right, 0 for wrong.

    Its mean over responses is the accuracy; the sums of `tp`, `fp`, `tn` and `fn` give the other numbers.
    """

    route: ClassVar[tuple[Stage, ...]] = (Stage.EXTRACTION, Stage.VERIFICATION, Stage.SCORING)
    rules = ExtractionRules(from_answer=lambda response: ((), (read_claim(response),)))
    verifiers: ClassVar[tuple[str, ...]] = ("reference", "visual", "triton", "detector")
    labelled = True
    extraction_steps = 1

    def score(self, judged: ClaimsVerified | ClaimsMatched) -> Score:
        """Raises `Unscorable`: unreadable_reply without a claim, no_truth where the judge did not decide."""
        if not isinstance(judged, ClaimsVerified):
            raise InputError(f"{self.name} scores verified claims, not matched ones")
        claims = judged.extracted.claims
        if not claims:
            raise Unscorable(UNREADABLE, "the reply is neither yes nor no", UNREAD)
        if len(claims) != 1 or len(judged.verdicts) != 1 or claims[0].category not in ANSWERS:
            given = f"{len(claims)} claims, {len(judged.verdicts)} verdicts"
            raise InputError(f"{given}: {self.name} has one yes or no")
        decision = judged.verdicts[0].decision
        if decision is Decision.UNDECIDED:
            raise Unscorable(NO_TRUTH, "nothing known of the image says what is right")
        said = ANSWERS[claims[0].category]
        right = decision is Decision.SUPPORTED
        counted = cell(said, said if right else _OTHER[said])
        values = {name: float(name == counted) for name in ("tp", "fp", "tn", "fn")}
        return Score(
            score=float(right),
            values={
                "accuracy": float(right),
                "accuracy_read": float(right),
                "yes": float(said == "yes"),
                **values,
            },
        )

    def values_without_answer(self, response: ResponseRecorded) -> Mapping[str, float]:
        return UNREAD

    def statement(self, response: ResponseRecorded, claim: Claim) -> str:
        """The claim without what is known of the question's truth, for that is worded into its text."""
        said = ANSWERS.get(claim.category)
        return claim_of(msgspec.structs.replace(response, reference=None), said).text if said else claim.text


def read_claim(response: ResponseRecorded) -> Claim:
    """The claim of a reply, read by rule. Raises `Unscorable` with the reason why it cannot be read."""
    reading = read_reply(response.answer, response.prompt)
    if reading.answer is None:
        raise Unscorable(reading.reason, response.answer[:200], UNREAD)
    return claim_of(response, reading.answer)


def claim_of(response: ResponseRecorded, said: Answer) -> Claim:
    """What an answer says: `category` is yes or no, `parts` are the question and the answer."""
    question = " ".join(response.prompt.split())
    facts = response.reference.facts if response.reference else ()
    known = any(folded(fact.text) == folded(question) for fact in facts)
    exists = None if known else _EXISTS.match(question)
    if exists:
        verb, name = exists[1].casefold(), exists[2]
        thing = f"no {name}" if said == "no" else name if verb == "are" else with_article(name)
        text = f"There {verb} {thing}."
    else:
        text = question if said == "yes" else f"{question} No."
    return Claim(text=text, category=said, parts=(question, said))


def cell(said: Answer, true: Answer) -> str:
    return ("t" if said == true else "f") + ("p" if said == "yes" else "n")
