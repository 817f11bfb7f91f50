"""The metric on VLM²-Bench as the services see it: one response answers one question about a sequence.

Tags carry what the benchmark knows: `sequence`, `task`, `level` (coarse or fine), `questions` (how many the
sequence has) and `truth`. A response is scored by itself, 1 for right and 0 for wrong; the gate and the sums
need a sequence's responses together, as reports and `groundwatch score vlm2 --recorded` have them: `groups`.
No claim leaves the extraction, so no verification engine has a say: the truth is known.
"""

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

from groundwatch.errors import Unscorable
from groundwatch.events import ClaimsMatched, ClaimsVerified, ResponseRecorded
from groundwatch.language.tokens import NUMBER_WORDS
from groundwatch.protocols.base import EvaluationProtocol, ExtractionRules, Score, Stage, read_figures
from groundwatch.protocols.method import MethodSettings
from groundwatch.protocols.questions import Answer, plain_reply, read_reply, spoken
from groundwatch.section import Positive

SEQUENCE, TASK, LEVEL, QUESTIONS, TRUTH = "sequence", "task", "level", "questions", "truth"
LEVELS = ("coarse", "fine")

NO_TRUTH = "no_truth"
NO_SEQUENCE = "no_sequence"
UNREADABLE = "unreadable_reply"

_YES_NO: dict[str, Answer] = {"yes": "yes", "no": "no", "true": "yes", "false": "no"}

_PHOTO = r"(?:images?|pictures?|photos?|photographs?|frames?|figures?)"
_TENS = "|".join(word for word, number in NUMBER_WORDS.items() if number in range(20, 100, 10))
_ONES = "|".join(word for word, number in NUMBER_WORDS.items() if number in range(1, 10))
_COMPOUND = re.compile(rf"\b({_TENS})[- ]({_ONES})\b")
_NUMBER = re.compile(rf"(?<![\w.])(\d{{1,9}}(?:\.\d{{1,6}})?|{'|'.join(NUMBER_WORDS)})(?![\w]|\.\d)")
_COUNT = rf"(?:\d{{1,9}}|{'|'.join(NUMBER_WORDS)})"
_OF_PHOTOS = re.compile(
    rf"\b{_PHOTO} \W?{_COUNT}\b(?:,? (?:and |or |to )?{_COUNT}\b(?! \w))*"
    rf"|(?<![\w.]){_COUNT} (?:(?!and |or |to )\w+ )?{_PHOTO}\b"
)
_ANNOUNCED = re.compile(
    r"\b(?:answer|option|choice)(?: is|:| would be)[\W_]{0,8}(?:option |choice )?"
    r"([b-z\d]|a(?! (?!because|since|as|and)\w)|[\w.]{2,12})\b"
)
_NONE = re.compile(r"\b(?:none|no|not any|aren't any)\b")
_CHOICE = re.compile(r"^[\W_]{0,4}(?:option |choice )?([a-h])(?:[\W_]|$)")
_CHOICE_A = re.compile(r"^[\W_]{0,4}a[\W_]{0,4}(?:[).:,*]|$)")
_BRACKETED = re.compile(
    r"[(\[*$]([a-h])\\?[)\]*$]|\b(?:option|choice) ([a-h])\b|\b(?:choose|chose|pick|select) ([b-h])\b"
)


class Vlm2(EvaluationProtocol):
    """Reads a reply by the kind of its truth: yes or no, a number, a choice, or words.

    The answers about a sequence belong together that were recorded within `group_seconds` of the first.
    """

    name = "vlm2"
    route: ClassVar[tuple[Stage, ...]] = (Stage.EXTRACTION, Stage.VERIFICATION, Stage.SCORING)
    rules = ExtractionRules(from_answer=lambda response: ((), ()))
    verifiers = ("reference", "visual", "triton", "llm")
    headline = read_figures(__package__)

    def __init__(self, group_seconds: float = 3600.0) -> None:
        self.group_seconds = group_seconds

    def unit(self, tags: Mapping[str, str], images: Sequence[str]) -> str:
        """Its sequence: their names are their task's own."""
        return f"{tags.get(TASK, '')}\n{tags[SEQUENCE]}" if tags.get(SEQUENCE) else ""

    def score(self, judged: ClaimsVerified | ClaimsMatched) -> Score:
        """1 or 0. Raises `Unscorable` for a reply that cannot be read and for tags that are missing."""
        response = judged.extracted.response
        truth = response.tags.get(TRUTH, "")
        if not truth.strip():
            raise Unscorable(NO_TRUTH, f"no tag '{TRUTH}' says what is right")
        if not response.tags.get(SEQUENCE) or response.tags.get(LEVEL) not in LEVELS:
            raise Unscorable(NO_SEQUENCE, f"needs tags '{SEQUENCE}' and '{LEVEL}' (coarse or fine)")
        right = is_right(response.answer, truth, response.prompt)
        values = self.values_without_answer(response)
        if right is None:
            raise Unscorable(UNREADABLE, response.answer[:200], values)
        level = response.tags[LEVEL]
        values |= {level: float(right), "right": float(right), f"{level}_read": float(right)}
        return Score(score=float(right), values=values)

    def values_without_answer(self, response: ResponseRecorded) -> dict[str, float]:
        """Its part of its sequence, with what is wrong."""
        level, questions = response.tags.get(LEVEL, ""), response.tags.get(QUESTIONS, "")
        if level not in LEVELS or not response.tags.get(SEQUENCE) or not response.tags.get(TRUTH, "").strip():
            return {}
        values = {level: 0.0}
        if re.fullmatch(r"[1-9]\d{0,5}", questions):
            values["part"] = 1 / int(questions)
        return values


class Vlm2Settings(MethodSettings):
    """How many seconds after its first answer a sequence still takes answers."""

    group_seconds: Positive = 3600.0

    def protocols(self) -> tuple[Vlm2]:
        return (Vlm2(self.group_seconds),)


def is_right(reply: str, truth: str, question: str = "") -> bool | None:
    """Whether the reply gives the truth: yes or no, a number, a choice, or words.

    What the truth is says how a reply is read. None where it gives no answer of that kind, or several.
    """
    said, true = _plain(spoken(reply)), _plain(truth).strip(" .")
    if not any(character.isalnum() for character in said):
        return None
    if true in _YES_NO:
        answer = read_reply(reply, question).answer
        return None if answer is None else answer == _YES_NO[true]
    number = _number(true)
    if number is not None:
        found = read_number(reply)
        return None if found is None else found == number
    letter = re.fullmatch(r"\W?([a-h])\W?", true)
    if letter:
        choice = read_choice(reply)
        return None if choice is None else choice == letter[1]
    return re.search(rf"(?<!\w){re.escape(true)}(?!\w)", said) is not None


def read_number(reply: str) -> float | None:
    """The one number that a reply gives; numbers of images ("in image 2", "the 4 photos") do not count."""
    text = _COMPOUND.sub(
        lambda match: str(NUMBER_WORDS[match[1]] + NUMBER_WORDS[match[2]]), _plain(spoken(reply))
    )
    announced = [number for word in _ANNOUNCED.findall(text) if (number := _number(word)) is not None]
    if announced:
        return announced[-1]
    alone = _number(text.strip(" .!*\n"))
    if alone is not None:
        return alone
    rest = _OF_PHOTOS.sub(" ", text)
    found = {_number(word) for word in _NUMBER.findall(rest)}
    if len(found) > 1:
        found = {_number(word) for word in _NUMBER.findall(rest) if word != "one"}
    if len(found) == 1:
        return found.pop()
    return 0.0 if not found and _NONE.search(text) else None


def read_choice(reply: str) -> str | None:
    """The letter of the option that a reply takes, in lower case."""
    text = _plain(spoken(reply))
    announced: list[str] = [word for word in _ANNOUNCED.findall(text) if re.fullmatch("[a-h]", word)]
    if announced:
        return announced[-1]
    bracketed: set[str] = {"".join(letters) for letters in _BRACKETED.findall(text)}
    if len(bracketed) == 1:
        return bracketed.pop()
    begins = _CHOICE.match(text)
    if begins and not bracketed and (begins[1] != "a" or _CHOICE_A.match(text)):
        return str(begins[1])
    return None


def _number(word: str) -> float | None:
    if word in NUMBER_WORDS:
        return float(NUMBER_WORDS[word])
    return float(word) if re.fullmatch(r"\d{1,9}(?:\.\d{1,6})?", word) else None


def _plain(text: str) -> str:
    return " ".join(plain_reply(text).split())
