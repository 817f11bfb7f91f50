"""Tri-HE's questions to an LLM and how its replies are read (section 3.3; prompts in Appendix E).

Where the paper asks once for each triplet, here all triplets of a response are judged in one call, each
under its number; a reply must account for every one of them exactly once.
"""

from collections.abc import Mapping
from typing import Literal

from groundwatch.events import Claim, Decision, Label, Reference, ResponseRecorded, SubSentence, Verdict
from groundwatch.language.subsentences import split
from groundwatch.protocols.base import EvaluationProtocol, Extracted, Stage
from groundwatch.protocols.prompts import (
    NOTHING_KNOWN,
    Form,
    Step,
    account,
    load,
    numbered,
    quoted,
    read_reply,
)
from groundwatch.protocols.triplets import Triplet, blame, claim_of


class _Triplet(Form, frozen=True):
    piece: int
    object1: str
    relation: str
    object2: str


class _Triplets(Form, frozen=True):
    triplets: list[_Triplet]


class _Judged(Form, frozen=True):
    index: int
    supported: Literal["yes", "no"]
    wrong: Literal["object1", "relation", "object2", "none"]


class _Judgements(Form, frozen=True):
    judgements: list[_Judged]


class TriHeQuestions(EvaluationProtocol):
    """One call that finds an answer's triplets, and one that judges them all."""

    package = __package__
    prompt_files: Mapping[Stage, tuple[str, ...]] = {
        Stage.EXTRACTION: ("extract",),
        Stage.VERIFICATION: ("judge",),
    }
    extraction_steps = 1

    def extraction_step(
        self, index: int, response: ResponseRecorded, units: tuple[SubSentence, ...]
    ) -> Step | None:
        """None for an answer that says nothing."""
        pieces = _units(response)
        if not pieces:
            return None
        return load(self.package, "extract").step(
            _Triplets,
            question=response.prompt.strip() or "(not known)",
            answer=response.answer,
            pieces=numbered((at, piece.text) for at, piece in enumerate(pieces)),
        )

    def read_extraction(
        self, index: int, reply: object, response: ResponseRecorded, units: tuple[SubSentence, ...]
    ) -> Extracted:
        """The answer's pieces and its triplets, each once and in the pieces' order."""
        units = _units(response)
        kept: dict[Triplet, Claim] = {}
        for one in read_reply(reply, _Triplets).triplets:
            if not 0 <= one.piece < len(units):
                raise ValueError(f"piece {one.piece} is not one of the numbered pieces")
            parts = _clean(one.object1), _clean(one.relation), _clean(one.object2)
            if not all(parts):
                raise ValueError(f"a triplet of piece {one.piece} has an empty part")
            folded = parts[0].casefold(), parts[1].casefold(), parts[2].casefold()
            kept.setdefault(folded, claim_of(parts, unit=one.piece))
        return units, tuple(sorted(kept.values(), key=lambda claim: claim.unit))

    def verification_step(self, response: ResponseRecorded, claims: tuple[Claim, ...]) -> Step:
        """The call that judges all triplets of a response against the scene graph in its reference.

        The paper's judge reads the graph and sees no image; without a reference the images have to do.
        """
        return load(self.package, "judge").step(
            _Judgements,
            reference=_graph(response.reference) if response.reference else NOTHING_KNOWN,
            claims=numbered((at, _quoted(claim)) for at, claim in enumerate(claims)),
        )

    def read_verification(self, reply: object, claims: tuple[Claim, ...]) -> tuple[Verdict, ...]:
        """One verdict for each triplet, in order, with the part that is wrong."""
        found = read_reply(reply, _Judgements).judgements
        account("claim", [one.index for one in found], len(claims))
        for one in found:
            if one.supported == "no" and one.wrong == "none":
                raise ValueError(f"claim {one.index} is not supported, but no wrong part is named")
        return tuple(_verdict(one) for one in sorted(found, key=lambda one: one.index))


def _verdict(judged: _Judged) -> Verdict:
    if judged.supported == "yes":
        return Verdict(decision=Decision.SUPPORTED)
    part = judged.wrong if judged.wrong != "none" else None
    return Verdict(decision=Decision.REFUTED, evidence=blame(part))


def _units(response: ResponseRecorded) -> tuple[SubSentence, ...]:
    answer = response.answer
    return tuple(
        SubSentence(
            start=span.start, end=span.end, text=answer[span.start : span.end], label=Label.DESCRIPTIVE
        )
        for span in split(answer)
    )


def _graph(reference: Reference) -> str:
    """The reference line by line, its texts as JSON strings, so that none can pass for another line."""
    lines = [f"triplet: {' '.join(map(quoted, triplet))}" for triplet in reference.triplets]
    lines += [f"object: {quoted(name)}" for name in dict.fromkeys(reference.objects)]
    lines += [f"{'true' if fact.holds else 'false'}: {quoted(fact.text)}" for fact in reference.facts]
    return "\n".join(lines) or "(nothing)"


def _quoted(claim: Claim) -> str:
    return f"({', '.join(claim.parts)})" if claim.parts else claim.text


def _clean(text: str) -> str:
    return " ".join(text.split())
