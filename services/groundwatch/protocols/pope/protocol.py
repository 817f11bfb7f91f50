"""POPE: its questions to an LLM; all else is that of yes/no questions (`protocols/questions.py`).

Source: Evaluating Object Hallucination in Large Vision-Language Models (Li et al. 2023).
"""

from collections.abc import Mapping
from typing import Literal

from groundwatch.events import Claim, Decision, ResponseRecorded, SubSentence, Verdict
from groundwatch.protocols.base import Extracted, Stage, read_figures
from groundwatch.protocols.prompts import Form, Step, described, numbered
from groundwatch.protocols.prompts import read_reply as read_form
from groundwatch.protocols.questions import ANSWERS, YesNoProtocol, claim_of


class _Read(Form, frozen=True):
    answer: Literal["yes", "no", "neither"]


class _Verdict(Form, frozen=True):
    verdict: Literal["supported", "refuted", "undecided"]


class Pope(YesNoProtocol):
    name = "pope"
    verifiers = (*YesNoProtocol.verifiers, "llm")
    package = __package__
    prompt_files: Mapping[Stage, tuple[str, ...]] = {
        Stage.EXTRACTION: ("read",),
        Stage.VERIFICATION: ("verify",),
    }
    headline = read_figures(__package__)

    def extraction_step(
        self, index: int, response: ResponseRecorded, units: tuple[SubSentence, ...]
    ) -> Step | None:
        if not response.answer.strip():
            return None
        question = response.prompt.strip() or "(not known)"
        return self.ask("read", _Read, question=question, reply=response.answer)

    def read_extraction(
        self, index: int, reply: object, response: ResponseRecorded, units: tuple[SubSentence, ...]
    ) -> Extracted:
        said = read_form(reply, _Read).answer
        return (), (claim_of(response, ANSWERS[said]),) if said in ANSWERS else ()

    def verification_step(self, response: ResponseRecorded, claims: tuple[Claim, ...]) -> Step:
        answered = [f"{question} Answer: {said}" for claim in claims for question, said in [claim.parts[:2]]]
        return self.ask(
            "verify",
            _Verdict,
            reference=described(None if response.images else response.reference),
            answered=numbered(enumerate(answered)),
        )

    def read_verification(self, reply: object, claims: tuple[Claim, ...]) -> tuple[Verdict, ...]:
        return (Verdict(decision=Decision(read_form(reply, _Verdict).verdict)),)
