"""Tri-HE as the services see it: triplets, their judgement, and the rate of hallucinated ones.

Source: Unified Triplet-Level Hallucination Evaluation for Large Vision-Language Models, section 3.3; prompts
in Appendix E. Where the paper asks once for each triplet, here all triplets of a response are judged in one
call, each under its number; a reply must account for every one of them exactly once.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

import msgspec

from groundwatch.errors import InputError, Unscorable
from groundwatch.events import (
    Claim,
    ClaimsMatched,
    ClaimsVerified,
    Decision,
    Reference,
    ResponseRecorded,
    SubSentence,
    Verdict,
)
from groundwatch.protocols import written_replies
from groundwatch.protocols.base import (
    EvaluationProtocol,
    Extracted,
    ExtractionRules,
    Score,
    Stage,
    folded,
    load,
    read_figures,
    units_of,
)
from groundwatch.protocols.planted import Kind
from groundwatch.protocols.prompts import NOTHING_KNOWN, Form, Step, account, numbered, quoted, read_reply
from groundwatch.protocols.trihe.scoring import JudgedTriplet, question_rate
from groundwatch.protocols.triplets import Judgement, SceneGraph, blame, blamed, claim_of, triplet_of

HALLUCINATED = {Decision.SUPPORTED: False, Decision.REFUTED: True, Decision.UNDECIDED: None}


class _Triplet(Form, frozen=True):
    piece: int
    object1: str
    relation: str
    object2: str
    hedged: bool = False


class _Triplets(Form, frozen=True):
    triplets: list[_Triplet]


class _Judged(Form, frozen=True):
    index: int
    supported: Literal["yes", "no"]
    wrong: Literal["object1", "relation", "object2", "none"]


class _Judgements(Form, frozen=True):
    judgements: list[_Judged]


class TriHe(EvaluationProtocol):
    """Triplet extraction, then a judge, then the inner term of equation 1.

    `score` is the share of triplets that are not hallucinated, so that more is better as for the other
    protocols; `hallu` in its values is the paper's rate.
    """

    name = "tri-he"
    route: ClassVar[tuple[Stage, ...]] = (Stage.EXTRACTION, Stage.VERIFICATION, Stage.SCORING)
    rules = ExtractionRules(
        from_reading=lambda response, reading: load(f"{__package__}.extraction:triplets")(response, reading)
    )
    verifiers = ("calibrated", "similarity", "llm", "reference")
    sees = dict.fromkeys((kind for kind in Kind if kind is not Kind.COMPARISON), frozenset[str]())
    headline = read_figures(__package__)
    package = __package__
    prompt_files: Mapping[Stage, tuple[str, ...]] = {
        Stage.EXTRACTION: ("extract",),
        Stage.VERIFICATION: ("judge",),
    }
    extraction_steps = 1

    def score(self, judged: ClaimsVerified | ClaimsMatched) -> Score:
        """# HT / # TT over decided triplets; by kind too, where every wrong part is named.

        `prediction_error` is the share of those that the judge refuted although the scene graph has both
        objects and the relation: section 3.1 calls that an error of pairing and no hallucination.
        """
        if not isinstance(judged, ClaimsVerified):
            raise InputError("tri-he scores verified claims, not matched ones")
        if len(judged.extracted.claims) != len(judged.verdicts):
            raise InputError(f"{len(judged.verdicts)} verdicts for {len(judged.extracted.claims)} claims")
        found = [
            JudgedTriplet(hallucinated=HALLUCINATED[one.decision], part=blamed(one))
            for one in judged.verdicts
        ]
        if not found:
            raise Unscorable("no_triplets", "the answer holds no triplet")
        rate = question_rate(found)
        if rate is None:
            raise Unscorable("nothing_decided", f"none of {len(found)} triplets was decided")
        wrong = [one for one in found if one.hallucinated]
        values = {
            "hallu": rate,
            "triplets": float(len(found)),
            "decided": float(sum(one.hallucinated is not None for one in found)),
            "hallucinated": float(len(wrong)),
        }
        if all(one.part for one in wrong):
            values["hallu.object"] = question_rate(found, "object") or 0.0
            values["hallu.relation"] = question_rate(found, "relation") or 0.0
        known = judged.extracted.response.reference
        if known and known.triplets:
            graph = SceneGraph(known.triplets, known.objects)
            refuted = (
                triplet_of(claim)
                for claim, one in zip(judged.extracted.claims, found, strict=True)
                if one.hallucinated
            )
            errors = [one for one in refuted if one and graph.judge(one) is Judgement.PREDICTION_ERROR]
            values["prediction_error"] = len(errors) / values["decided"]
        return Score(score=1.0 - rate, values=values)

    def extraction_step(
        self, index: int, response: ResponseRecorded, units: tuple[SubSentence, ...]
    ) -> Step | None:
        pieces = units_of(response.answer)
        if not pieces:
            return None
        return self.ask(
            "extract",
            _Triplets,
            lambda text, values: written_replies.triplets(
                {at: piece.text for at, piece in enumerate(pieces)}, text
            ),
            question=response.prompt.strip() or "(not known)",
            answer=response.answer,
            pieces=numbered((at, piece.text) for at, piece in enumerate(pieces)),
        )

    def read_extraction(
        self, index: int, reply: object, response: ResponseRecorded, units: tuple[SubSentence, ...]
    ) -> Extracted:
        """The answer's pieces and its triplets in the pieces' order, each once in its piece."""
        units = units_of(response.answer)
        kept: dict[tuple[object, ...], Claim] = {}
        for one in read_reply(reply, _Triplets).triplets:
            if not 0 <= one.piece < len(units):
                raise ValueError(f"piece {one.piece} is not one of the numbered pieces")
            parts = _clean(one.object1), _clean(one.relation), _clean(one.object2)
            if not all(parts):
                raise ValueError(f"a triplet of piece {one.piece} has an empty part")
            claim = msgspec.structs.replace(claim_of(parts, unit=one.piece), hedged=one.hedged)
            kept.setdefault((one.piece, *map(folded, parts)), claim)
        return units, tuple(sorted(kept.values(), key=lambda claim: claim.unit))

    def verification_step(self, response: ResponseRecorded, claims: tuple[Claim, ...]) -> Step:
        """The call that judges all triplets of a response against the scene graph in its reference.

        The judge of section 3.3 reads the graph and sees no image, which agreed better with people.
        Without triplets in the reference there is no graph, and the images have to do.
        """
        known = response.reference
        step = self.ask(
            "judge",
            _Judgements,
            lambda text, values: written_replies.judgements(len(claims), text),
            reference=_graph(known) if known else NOTHING_KNOWN,
            claims=numbered(
                (at, f"({', '.join(claim.parts)})" if claim.parts else claim.text)
                for at, claim in enumerate(claims)
            ),
        )
        return msgspec.structs.replace(step, images=not (known and known.triplets))

    def read_verification(self, reply: object, claims: tuple[Claim, ...]) -> tuple[Verdict, ...]:
        found = read_reply(reply, _Judgements).judgements
        account("claim", [one.index for one in found], len(claims))
        for one in found:
            if one.supported == "no" and one.wrong == "none":
                raise ValueError(f"claim {one.index} is not supported, but no wrong part is named")
        return tuple(
            Verdict(decision=Decision.SUPPORTED)
            if one.supported == "yes"
            else Verdict(
                decision=Decision.REFUTED, evidence=blame(one.wrong if one.wrong != "none" else None)
            )
            for one in sorted(found, key=lambda one: one.index)
        )


def _graph(reference: Reference) -> str:
    """The reference line by line, its texts as JSON strings, so that none can pass for another line."""
    lines = [f"triplet: {' '.join(map(quoted, triplet))}" for triplet in reference.triplets]
    lines += [f"object: {quoted(name)}" for name in dict.fromkeys(reference.objects)]
    lines += [f"{'true' if fact.holds else 'false'}: {quoted(fact.text)}" for fact in reference.facts]
    return "\n".join(lines) or "(nothing)"


def _clean(text: str) -> str:
    return " ".join(text.split())
