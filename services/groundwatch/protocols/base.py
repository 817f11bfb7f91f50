"""What a protocol is: data about a route through the services, its parsing and its arithmetic.

A protocol does no input or output and knows no broker. Adding one means adding a package beside
`faithscore`, or installing one with an entry point; no service changes (docs/protocols.md).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from importlib import import_module
from importlib.resources import files
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

import msgspec

from groundwatch.errors import InputError, Unscorable, UsageError
from groundwatch.events import (
    ChainAdvanced,
    Claim,
    ClaimsExtracted,
    ClaimsMatched,
    ClaimsVerified,
    Decision,
    Judge,
    Label,
    Match,
    ResponseRecorded,
    SubSentence,
    Verdict,
)
from groundwatch.language.subsentences import split
from groundwatch.protocols import prompts
from groundwatch.protocols.prompts import Step, combined_digest

if TYPE_CHECKING:
    from groundwatch.protocols.planted import Kind
    from groundwatch.reading.graph import Reading


class Stage(StrEnum):
    """A step of a route. Each is also the name of the service that does it."""

    EXTRACTION = "extraction"
    CAPTIONING = "captioning"
    GENERATION = "generation"
    MATCHING = "matching"
    VERIFICATION = "verification"
    SCORING = "scoring"


ELSEWHERE = ("llm", "visual", "triton", "detector")
"""Verification engines that ask a model which is served elsewhere: what they say has its price."""

FOR_ANY = ("", "embedded", "noop")
"""What settings may name for any protocol: its own verification engine, and the one that never looks."""


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """The arithmetic's result for one response: the headline number and every other by name."""

    score: float
    values: dict[str, float] = {}


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A number that a paper reports of a model, made from the `values` of its outcomes.

    It is the sum of the values `of` by that of the values `over`, where a name counts as often as it stands
    there; without `over` the mean of `of` over answers. With `per_unit` that is taken within each
    `EvaluationProtocol.unit` first, and averaged over these: one whose value `gate` is below 1 anywhere is
    then 0; one without that value is in no number. With `part`, a unit's answers are in `groups`, and one
    whose values `part` do not add up to 1 is in no number. `bounds` of a mean are those of the score where
    they are not given. By one that is `ranked` models have ranks, the highest first. With `all_of` there is
    no number while an outcome with that value lacks `of`, for those that have it are no fair sample of all;
    `lacking` is the reason.
    """

    name: str
    heading: str
    meaning: str
    of: tuple[str, ...] = ()
    over: tuple[str, ...] = ()
    per_unit: bool = False
    gate: str = ""
    part: str = ""
    bounds: tuple[float, float] | None = None
    ranked: bool = False
    all_of: str = ""
    lacking: str = ""

    @property
    def values(self) -> set[str]:
        """The names of all values that it is made from."""
        return {name for name in (*self.of, *self.over, self.gate, self.part, self.all_of) if name}


def read_figures(package: str, name: str = "figures") -> tuple[Figure, ...]:
    """The file `NAME.toml` of a package: a section for each figure, by its name."""
    read = msgspec.toml.decode(files(package).joinpath(f"{name}.toml").read_bytes())
    return tuple(msgspec.convert({"name": name, **one}, Figure) for name, one in read.items())


Extracted = tuple[tuple[SubSentence, ...], tuple[Claim, ...]]
"""The sub-sentences of an answer, and the claims that it makes."""


def units_of(answer: str) -> tuple[SubSentence, ...]:
    """The answer's sub-sentences, for protocols that do not tell description from analysis."""
    return tuple(
        SubSentence(start=one.start, end=one.end, text=answer[one.start : one.end], label=Label.DESCRIPTIVE)
        for one in split(answer)
    )


@lru_cache(maxsize=1)
def count_words(text: str) -> int:
    """Words between white space. The last answer's is remembered: its outcome asks after its protocol."""
    return len(text.split())


def folded(text: str) -> str:
    """A text as it is compared: case and white space do not matter."""
    return " ".join(text.casefold().split())


def with_article(name: str) -> str:
    return f"{'an' if name[:1].casefold() in set('aeiou') else 'a'} {name}"


def load(reference: str) -> Any:
    """What "module:attribute" names. Raises `UsageError` in one line when it cannot be loaded."""
    module, _, name = reference.partition(":")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"'{reference}' cannot be loaded: {error}") from error


NO_CLAIM = "no_claim_in_answer"
ANSWER_WORDS = 3
"""An answer of at most so many words, without a fact, answers its question without a claim."""


def statements(response: ResponseRecorded, reading: Reading) -> tuple[Claim, ...]:
    """The facts of descriptive sub-sentences, as FaithScore verifies them: what another sub-sentence says
    again counts again. Raises `Unscorable` for a short answer without any."""
    if not reading.facts and len(re.findall(r"\w+", response.answer)) <= ANSWER_WORDS:
        raise Unscorable(NO_CLAIM, "the answer and its question say nothing that can be verified")
    describes = [unit.label is Label.DESCRIPTIVE for unit in reading.units]
    return tuple(
        Claim(text=fact.text, category=fact.category, unit=fact.unit, span=fact.span, hedged=fact.hedged)
        for fact in sorted(reading.stated(), key=attrgetter("unit"))
        if describes[fact.unit]
    )


class ExtractionRules(msgspec.Struct, frozen=True, kw_only=True):
    """How the engine `reader` finds a protocol's claims without an LLM, by one of two ways.

    `from_answer` reads them off the response alone; it raises `Unscorable` where that cannot be done.
    Without it, `from_reading` takes them from what was read of the answer: its facts, unless it is given.
    """

    from_answer: Callable[[ResponseRecorded], Extracted] | None = None
    from_reading: Callable[[ResponseRecorded, Reading], tuple[Claim, ...]] = statements


class EvaluationProtocol:
    """What the services ask of a protocol; each one says what it does of this.

    `verifiers` are the verification engines that can judge its claims, its own first: by their names in
    settings, or "module:attribute" for an engine class of its own. Where settings name none, the first that
    can be had does; of one that is `labelled`, since its responses say what is right, the first does unless
    another is named for this protocol. Without `rules` only an LLM extracts its claims. `sees` are the kinds
    of planted hallucinations that it claims to see, with the categories of its claims that speak of each; no
    category stands for all. `bounds` are those of its score, `headline` the figures that its paper
    reports. In `package` lie its prompt files: `prompt_files` are those that an LLM engine uses at a
    stage, and the extraction takes `extraction_steps` calls at most, in order. `in_order` lets a claim
    match only the feature of its own number. `group_seconds` is how long the answers to a unit make up
    one group, where its figures have parts.
    """

    name: str
    route: ClassVar[tuple[Stage, ...]]
    rules: ExtractionRules | None = None
    verifiers: ClassVar[tuple[str, ...]] = ("visual", "triton", "reference")
    labelled: ClassVar[bool] = False
    sees: Mapping[Kind, frozenset[str]] = MappingProxyType({})
    bounds: tuple[float, float] = (0.0, 1.0)
    headline: tuple[Figure, ...] = ()
    package: ClassVar[str] = ""
    prompt_files: Mapping[Stage, tuple[str, ...]] = MappingProxyType({})
    extraction_steps: ClassVar[int] = 0
    in_order: bool = False
    group_seconds: float = math.inf

    def verifier(self, served: str = "") -> str:
        """The first of its verifiers that runs here, or is `served` elsewhere."""
        here = (name for name in self.verifiers if name == served or name not in ELSEWHERE)
        return next(here, self.verifiers[0])

    def why_not(self, engine: str) -> str:
        """Why a verification engine cannot judge its claims, and which can; empty for one that can."""
        if Stage.VERIFICATION not in self.route:
            return f"{self.name} has no claims to verify"
        if engine in (*FOR_ANY, *self.verifiers):
            return ""
        return f"{engine} cannot judge {self.name}: use {' or '.join(self.verifiers)}"

    def unit(self, tags: Mapping[str, str], images: Sequence[str]) -> str:
        """What answers have in common that figures average first: their image, by a tag or by its digest."""
        return tags.get("image_id") or tags.get("image") or ",".join(images)

    def score(self, judged: ClaimsVerified | ClaimsMatched) -> Score:
        """Turn judgements into numbers. Raises `Unscorable` when there is nothing to score, never 0."""
        raise InputError(f"{self.name} scores no claims")

    def values_without_answer(self, response: ResponseRecorded) -> Mapping[str, float]:
        """The values of a response whose model did not come to an answer: no number, or as wrong as any."""
        return {}

    def prompt_digest(self, stage: Stage) -> str:
        """Digest of every prompt that an LLM engine uses at this stage; empty where it asks nothing."""
        names = self.prompt_files.get(stage, ())
        return combined_digest([prompts.load(self.package, name) for name in names]) if names else ""

    def ask(
        self,
        prompt: str,
        form: type[prompts.Form],
        written: Callable[[str, Sequence[object]], object] | None = None,
        **data: str,
    ) -> Step:
        return prompts.load(self.package, prompt).step(form, written, **data)

    def extraction_step(
        self, index: int, response: ResponseRecorded, units: tuple[SubSentence, ...]
    ) -> Step | None:
        """The LLM call number `index`, given the `units` found so far; None when there is nothing to ask.

        Raises `InputError` for a protocol whose claims are found by rule alone.
        """
        raise InputError(f"{self.name} reads answers by rule: extract with engine reader")

    def read_extraction(
        self, index: int, reply: object, response: ResponseRecorded, units: tuple[SubSentence, ...]
    ) -> Extracted:
        """Read the reply of call `index`: the units and the claims as they are known after it.

        Raises `ValueError` saying what is wrong with it; a judge is shown that message once, to mend it.
        """
        raise InputError(f"{self.name} asks nothing to extract claims")

    def statement(self, response: ResponseRecorded, claim: Claim) -> str:
        """The claim as a judge is asked that looks at the image and reads no reference."""
        return claim.text

    def verification_step(self, response: ResponseRecorded, claims: tuple[Claim, ...]) -> Step:
        """The LLM call that verifies `claims` against the response's images.

        The engine adds the images. A response without any has its reference written into the step as
        what is known of the image.
        """
        raise InputError(f"{self.name} has no claims to verify")

    def read_verification(self, reply: object, claims: tuple[Claim, ...]) -> tuple[Verdict, ...]:
        """One verdict for each claim, in order. Raises `ValueError` saying what is wrong with the reply."""
        raise InputError(f"{self.name} has no claims to verify")


class MatchedProtocol(EvaluationProtocol):
    """A protocol that compares claims with a reference; one without any match is `unmatched`."""

    unmatched: ClassVar[Decision] = Decision.REFUTED


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
        """At most one match for each claim. Raises `ValueError` saying what is wrong with the reply."""
        ...


class ChainProtocol(EvaluationProtocol):
    """A protocol whose route goes round captioning and generation, as often as the tag `length_tag` says."""

    route: ClassVar[tuple[Stage, ...]] = (Stage.CAPTIONING, Stage.GENERATION, Stage.SCORING)
    length_tag: ClassVar[str] = "t"
    default_length: ClassVar[int] = 3
    max_length: ClassVar[int] = 20
    """Beyond it an event that carries every description could outgrow what a message may hold."""

    def start(self, response: ResponseRecorded) -> ChainAdvanced:
        """The chain that a response asks for. Raises `Unscorable` without an image, or `InputError`."""
        raise NotImplementedError

    def description_prompt(self, response: ResponseRecorded) -> str:
        """What the model under test is asked about every image of the chain."""
        raise NotImplementedError

    def generation_prompt(self, description: str) -> str:
        raise NotImplementedError

    def figures(self, chains: Sequence[ChainAdvanced], length: int) -> dict[str, object]:
        """The numbers over chains that were walked to their end of `length` rounds."""
        raise NotImplementedError

    def score_chain(self, chain: ChainAdvanced) -> Score:
        """Turn a chain with all its rounds into numbers. Raises `Unscorable`: never 0 in its place."""
        raise NotImplementedError
