"""What a protocol is: data about a route through the services, its parsing and its arithmetic.

A protocol does no input or output and knows no broker. Adding one means adding a package beside
`faithscore` and naming it in `registry`; no service changes.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar, Protocol, runtime_checkable

import msgspec

from groundwatch.events import (
    ChainAdvanced,
    Claim,
    ClaimsExtracted,
    ClaimsMatched,
    ClaimsVerified,
    Decision,
    Judge,
    Match,
    ResponseRecorded,
    SubSentence,
    Verdict,
)


class Stage(StrEnum):
    """A step of a route. Each is also the name of the service that does it."""

    EXTRACTION = "extraction"
    CAPTIONING = "captioning"
    GENERATION = "generation"
    MATCHING = "matching"
    VERIFICATION = "verification"
    SCORING = "scoring"


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One question to an LLM: its prompt, already filled in, and the JSON Schema its reply must meet.

    `system` holds the instructions; `user` holds the data that is judged, fenced by the prompt file so
    that it cannot be mistaken for instructions.
    """

    name: str
    system: str
    user: str
    schema: dict[str, object]


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """The arithmetic's result for one response: the headline number and every other by name."""

    score: float
    values: dict[str, float] = {}


class EvaluationProtocol(Protocol):
    """What the services ask of a protocol."""

    name: ClassVar[str]
    route: ClassVar[tuple[Stage, ...]]

    def score(self, judged: ClaimsVerified | ClaimsMatched) -> Score:
        """Turn judgements into numbers.

        Raises `Unscorable` when there is nothing to score: never 0 in its place.
        """
        ...

    def prompt_digest(self, stage: Stage) -> str:
        """Digest of every prompt that an LLM engine uses at this stage."""
        ...

    def extraction_steps(self) -> int:
        """How many LLM calls the extraction takes at most, asked in order."""
        ...

    def extraction_step(
        self, index: int, response: ResponseRecorded, units: tuple[SubSentence, ...]
    ) -> Step | None:
        """The LLM call number `index`, given the `units` that earlier calls found.

        None when there is nothing to ask; the calls after it are still offered.
        """
        ...

    def read_extraction(
        self, index: int, reply: object, response: ResponseRecorded, units: tuple[SubSentence, ...]
    ) -> tuple[tuple[SubSentence, ...], tuple[Claim, ...]]:
        """Read the reply of call `index`: the units and the claims as they are known after it.

        Raises `ValueError` saying what is wrong with it; a judge is shown that message once, to mend it.
        """
        ...

    def verification_step(self, response: ResponseRecorded, claims: tuple[Claim, ...]) -> Step:
        """The LLM call that verifies `claims` against the response's images.

        The engine adds the images. A response without any has its reference written into the step as
        what is known of the image.
        """
        ...

    def read_verification(self, reply: object, claims: tuple[Claim, ...]) -> tuple[Verdict, ...]:
        """Read the reply of the verification call: one verdict for each claim, in the claims' order.

        Raises `ValueError` saying what is wrong with it.
        """
        ...


@runtime_checkable
class MatchedProtocol(EvaluationProtocol, Protocol):
    """A protocol that compares claims with a reference.

    `unmatched` is what its arithmetic takes a claim without any match to be.
    """

    unmatched: ClassVar[Decision]


@runtime_checkable
class ListedMatching(Protocol):
    """What a protocol has besides when it is matched by a fixed list, whatever engine is chosen."""

    def matching_judge(self) -> Judge:
        """The list as a judge: another list is another judge."""
        ...

    def match(self, extracted: ClaimsExtracted) -> tuple[Match, ...]:
        """At most one match for each claim. Raises `Unscorable` when there is nothing to match with."""
        ...


@runtime_checkable
class MatchingQuestions(Protocol):
    """What a protocol has besides when an LLM may match its claims with a reference."""

    def matching_step(self, extracted: ClaimsExtracted) -> Step:
        """The LLM call that matches the claims with the features of the response's reference."""
        ...

    def read_matching(self, reply: object, extracted: ClaimsExtracted) -> tuple[Match, ...]:
        """Read the reply of the matching call: at most one match for each claim.

        Raises `ValueError` saying what is wrong with it.
        """
        ...


@runtime_checkable
class ChainProtocol(EvaluationProtocol, Protocol):
    """A protocol whose route goes round: captioning and generation in turn, until its chain is long enough.

    Its route is captioning, generation, scoring.
    """

    def start(self, response: ResponseRecorded) -> ChainAdvanced:
        """The chain that a recorded response asks for, with no round done.

        Raises `Unscorable` when there is no image to start from, `InputError` when what it asks for is not
        possible.
        """
        ...

    def description_prompt(self, response: ResponseRecorded) -> str:
        """What the model under test is asked about every image of the chain."""
        ...

    def generation_prompt(self, description: str) -> str:
        """What the image generator is asked."""
        ...

    def score_chain(self, chain: ChainAdvanced) -> Score:
        """Turn a chain with all its rounds into numbers. Raises `Unscorable`: never 0 in its place."""
        ...
