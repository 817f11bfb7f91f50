"""What travels between the services: the contract.

Every event is a frozen msgspec Struct, JSON on the wire. The rules of evolution: a new field gets a
default, a field never changes its type, unknown fields are ignored. JSON Schema and AsyncAPI documents
are generated from this module (`tools/schema.py`).

One response flows as `ResponseRecorded` → `ClaimsExtracted` → `ClaimsVerified` (or `ClaimsMatched`) →
`ResponseScored`; one whose protocol asks the model under test again and again flows as `ChainAdvanced`
instead of claims. A `QuestionAsked` comes before its response, an `OpinionGiven` after its outcome. A stage
event carries what the next stage needs, so no stage reads back; images alone stay behind and travel by
content hash.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from groundwatch.errors import UNDECODED
from groundwatch.keys import digest, fingerprint_of, response_key

Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**31)]

LIVE = "live"
"""The run that live traffic belongs to; a replay has a name of its own."""

DEFAULT_TENANT = "default"

_NESTED = ("response", "extracted")
"""Fields in which an event carries the one that it came of."""


class Label(StrEnum):
    """What a sub-sentence is (FaithScore, section 3.2)."""

    DESCRIPTIVE = "descriptive"
    ANALYTICAL = "analytical"


class Decision(StrEnum):
    """What a judge says of one claim."""

    SUPPORTED = "supported"
    REFUTED = "refuted"
    UNDECIDED = "undecided"


class Strategy(StrEnum):
    """How a model under test is asked: the four arms of Tri-HE's section 5.4 and table 6."""

    DIRECT = "direct"
    DESCRIPTION_FIRST = "description-first"
    TRIPLETS_SEEN = "triplets-seen"
    TRIPLETS_FIRST = "triplets-first"


class OutcomeKind(StrEnum):
    """How a response ended for one protocol; each has exactly one of these."""

    SCORED = "scored"
    UNSCORED = "unscored"
    DECLINED = "declined"


DEAD_LETTER = "dead_letter"
UNDECODABLE = "undecodable"
REPLACEABLE = (DEAD_LETTER, UNDECODABLE)
"""Reasons of outcomes that stand for a dead letter: a retry that succeeds replaces them."""


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of everything on the wire."""


class KnownFact(Event, frozen=True, kw_only=True):
    """A statement about the image whose truth is known."""

    text: str
    holds: bool


class Reference(Event, frozen=True, kw_only=True):
    """What is known about an image, given with a response.

    `objects` are names of things in the image; `triplets` are (subject, relation, object), where an
    attribute reads ("ball", "is", "red"). `complete` says that the reference names everything in the
    image: only then does absence refute.
    """

    facts: tuple[KnownFact, ...] = ()
    objects: tuple[str, ...] = ()
    triplets: tuple[tuple[str, str, str], ...] = ()
    complete: bool = False


OWN_PROMPTS = " own "
"""Between a digest of prompts and the names of those that are the user's own."""


def own_prompts(prompt: str) -> list[str]:
    """The names of the user's own prompts, such as `valor/match-names`, in a judge's `prompt`."""
    return prompt.partition(OWN_PROMPTS)[2].split()


class Judge(Event, frozen=True, kw_only=True):
    """Who judged: scores of different fingerprints never mix in one number.

    `engine` is the engine's name in settings, `model` the model behind it (empty for rules), `prompt` a
    digest of every prompt it uses, with the names of those in the user's own words, `version` the engine's
    own version.
    """

    engine: str
    model: str = ""
    prompt: str = ""
    version: str = "1"

    @property
    def fingerprint(self) -> str:
        """Twelve hex digits over all four fields."""
        return fingerprint_of(self.engine, self.model, self.prompt, self.version)


class Usage(Event, frozen=True, kw_only=True):
    """What a judgement consumed. Cost is in US dollars.

    `cached` counts calls that were not made, and used and cost nothing, since their result was known.
    """

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    cached: int = 0

    def __add__(self, other: Usage) -> Usage:
        if other == _NO_USAGE:
            return self
        if self == _NO_USAGE:
            return other
        return Usage(
            calls=self.calls + other.calls,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cost=self.cost + other.cost,
            cached=self.cached + other.cached,
        )


_NO_USAGE = Usage()


class NoAnswer(Event, frozen=True, kw_only=True):
    """Why a model under test gave no answer; `reason` is a bounded slug, `detail` free text."""

    reason: str
    detail: str = ""


class Drawn(Event, frozen=True, kw_only=True):
    """With which probability, from 0 to 1, a response was to be judged for a protocol, and in what stratum.

    `lowest` is the probability that a response of the least likely stratum had at that moment. `budget` names
    the budget that decided, empty where none did. A probability of 0 says that it had no chance.
    """

    probability: float = 1.0
    lowest: float = 1.0
    stratum: str = ""
    budget: str = ""


class Earlier(Event, frozen=True, kw_only=True):
    """What a conversation said before the turn that was answered, and showed where that turn shows something
    itself, as digests. It is there to be read: no judge is shown it."""

    text: str = ""
    images: tuple[str, ...] = ()


class ResponseRecorded(Event, frozen=True, kw_only=True):
    """One answer of an LVLM, as the outside world gave it.

    `id` is the caller's, unique within `tenant`. `images` are SHA-256 digests (hex) of stored images: those
    that the answer is about.
    `protocols` are all that the tenant asked for; `declined` names those of them that are not judged,
    each with its reason; `drawn` has how that was decided for each protocol that was not sure to be judged.
    `recorded_at` is in seconds since the epoch. `unanswered` stands where we asked the model ourselves and
    it gave no answer: every protocol is then unscored with its reason. `partition` is where it was recorded,
    and where all that follows from it stays.
    """

    id: str
    model: str
    answer: str
    tenant: str = DEFAULT_TENANT
    prompt: str = ""
    images: tuple[str, ...] = ()
    reference: Reference | None = None
    tags: dict[str, str] = {}
    protocols: tuple[str, ...] = ()
    declined: dict[str, str] = {}
    drawn: dict[str, Drawn] = {}
    run: str = LIVE
    recorded_at: float = 0.0
    unanswered: NoAnswer | None = None
    partition: int = 0
    earlier: Earlier | None = None

    @property
    def every_image(self) -> tuple[str, ...]:
        """Those of earlier turns, too."""
        return (*self.earlier.images, *self.images) if self.earlier else self.images

    @property
    def key(self) -> str:
        """The response's name inside subjects: 32 hex digits over tenant and id, and the partition."""
        return response_key(self.tenant, self.id, self.partition)


class QuestionAsked(Event, frozen=True, kw_only=True, tag_field="kind", tag="asked"):
    """A question for a model under test: its `response` is complete but for the answer."""

    response: ResponseRecorded
    strategy: Strategy = Strategy.DIRECT


class ChainStep(Event, frozen=True, kw_only=True):
    """One round of a chain: the description of the image before it, then the image made from that.

    `image` is the SHA-256 of the stored image and `similarity` its cosine to the seed image, -1 to 1; both
    are absent until it has been generated.
    """

    description: str
    image: str = ""
    similarity: float | None = None


class ChainAdvanced(Event, frozen=True, kw_only=True, tag_field="kind", tag="chain"):
    """A chain of descriptions and generated images with all of its history (GenCeption, algorithm 1).

    The history is the chain's only state: whoever has the event can go on, and nobody else must remember
    anything. `length` is T, how many rounds are wanted.
    """

    response: ResponseRecorded
    protocol: str
    length: int
    steps: tuple[ChainStep, ...] = ()
    judges: dict[str, Judge] = {}
    usage: Usage = Usage()


class LeftOutKind(StrEnum):
    """Why words of an answer are not spoken about the image, or were not read."""

    REASONING = "reasoning"
    MARK = "mark"
    CODE = "code"
    LANGUAGE = "language"
    REPETITION = "repetition"


class LeftOut(Event, frozen=True, kw_only=True):
    """A stretch of the answer that was not judged: `answer[start:end]`, characters, end exclusive.

    `detail` is the language by its ISO 639-1 code, or the numbers of a place in the image that a mark claims.
    """

    start: int
    end: int
    kind: LeftOutKind
    detail: str = ""


class SubSentence(Event, frozen=True, kw_only=True):
    """A piece of the answer between punctuation: `answer[start:end]`, characters, end exclusive."""

    start: int
    end: int
    text: str
    label: Label
    confidence: float | None = None


class Claim(Event, frozen=True, kw_only=True):
    """One thing that the answer says of the image; for FaithScore an atomic fact.

    `category` is the protocol's own (FaithScore: entity, relation, color, count, other); `unit` is the
    index of the sub-sentence it comes from; `parts` are its pieces where the protocol has them, such as
    the subject, relation and object of a triplet. `span` are the characters of the answer that say it, end
    exclusive, where an engine tells them; `hedged` is what the answer only guesses. `place` has the numbers
    of the box or point that the model itself gives for it, as it wrote them, in units of its own.
    """

    text: str
    category: str
    unit: int = 0
    parts: tuple[str, ...] = ()
    span: tuple[int, int] | None = None
    hedged: bool = False
    place: str = ""


Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class Box(Event, frozen=True, kw_only=True):
    """A place in the image of this index of the response, where a judge saw what `label` names.

    The left, upper, right and lower edge are shares of the upright image's width and height, from its upper
    left corner; `score` is how sure the judge is, from 0 to 1. Raises `ValueError` for any other.
    """

    x0: Share
    y0: Share
    x1: Share
    y1: Share
    score: Share
    label: str
    image: Annotated[int, msgspec.Meta(ge=0)] = 0

    def __post_init__(self) -> None:
        # Written so that NaN fails, too.
        ordered = 0 <= self.x0 < self.x1 <= 1 and 0 <= self.y0 < self.y1 <= 1
        if not (ordered and 0 <= self.score <= 1 and self.image >= 0):
            raise ValueError(f"no box in an image: {self}")


class Verdict(Event, frozen=True, kw_only=True):
    """A judge's decision on the claim of the same index; `probability` is that it holds, if known.

    `evidence` says in words what it rests on, `boxes` where in the images that is.
    """

    decision: Decision
    probability: float | None = None
    evidence: str = ""
    boxes: tuple[Box, ...] = ()


class ClaimsExtracted(Event, frozen=True, kw_only=True):
    """The claims of one response for one protocol; `left_out` is what of the answer was not read."""

    response: ResponseRecorded
    protocol: str
    judge: Judge
    units: tuple[SubSentence, ...] = ()
    claims: tuple[Claim, ...] = ()
    usage: Usage = Usage()
    left_out: tuple[LeftOut, ...] = ()


class ClaimsVerified(Event, frozen=True, kw_only=True, tag_field="kind", tag="verified"):
    """A verdict for every claim, in the claims' order."""

    extracted: ClaimsExtracted
    judge: Judge
    verdicts: tuple[Verdict, ...] = ()
    usage: Usage = Usage()


class Match(Event, frozen=True, kw_only=True):
    """A claim's counterpart in the reference: the same thing, or a broader concept of it."""

    claim: int
    reference: str
    kind: Literal["matched", "broader"] = "matched"


class ClaimsMatched(Event, frozen=True, kw_only=True, tag_field="kind", tag="matched"):
    """What of the claims is in the reference annotation; claims without a match are absent here."""

    extracted: ClaimsExtracted
    judge: Judge
    matches: tuple[Match, ...] = ()
    usage: Usage = Usage()


class JudgedClaim(Event, frozen=True, kw_only=True):
    """A claim with its verdict, as people look at it: its fields are as in `Claim` and `Verdict`."""

    text: str
    category: str
    unit: int
    decision: Decision
    probability: float | None = None
    evidence: str = ""
    parts: tuple[str, ...] = ()
    boxes: tuple[Box, ...] = ()
    span: tuple[int, int] | None = None
    hedged: bool = False
    place: str = ""


class ResponseScored(Event, frozen=True, kw_only=True):
    """The one outcome of a response for one protocol.

    `score` is the protocol's headline number, only when `outcome` is scored; `values` holds every number
    of the protocol by name. `reason` is a bounded slug for unscored and declined, `detail` free text.
    `judges` maps a stage to who judged there. `eligible` and `decided` count claims: coverage is
    decided / eligible. `answer_words` is the answer's length, advised beside the score by FaithScore's
    section on limitations. `images` and `partition` are the response's. `drawn` says how likely it was to be
    judged: in rates over all responses a scored one weighs 1 / probability. `left_out` is as in
    `ClaimsExtracted`.
    """

    id: str
    model: str
    protocol: str
    outcome: OutcomeKind
    tenant: str = DEFAULT_TENANT
    run: str = LIVE
    score: float | None = None
    values: dict[str, float] = {}
    reason: str = ""
    detail: str = ""
    judges: dict[str, Judge] = {}
    units: tuple[SubSentence, ...] = ()
    claims: tuple[JudgedClaim, ...] = ()
    eligible: int = 0
    decided: int = 0
    answer_words: int = 0
    usage: Usage = Usage()
    drawn: Drawn = Drawn()
    tags: dict[str, str] = {}
    images: tuple[str, ...] = ()
    recorded_at: float = 0.0
    scored_at: float = 0.0
    partition: int = 0
    left_out: tuple[LeftOut, ...] = ()

    @property
    def key(self) -> str:
        """The response's name inside subjects, as in `ResponseRecorded.key`."""
        return response_key(self.tenant, self.id, self.partition)


class AlarmRaised(Event, frozen=True, kw_only=True):
    """A model says more of what is not in the image than is good: facts of `category`, or `all` of them.

    `since` and `raised_at` are when the first response after the estimated change and the one that raised
    the alarm were recorded; `since_response` and `raised_response` are their numbers, from 1, among the
    model's scored responses. `before` and `after` are rates of facts that do not hold; `base` is the mean
    share that counts as good, `learnt` or set. At most one alarm in `responses` good responses is false.

    The same event tells that it is over: `recovered_at` and `recovered_response` are then time and number of
    the response that showed the rate to be back at the base.
    """

    model: str
    protocol: str
    category: str
    base: float
    after: float
    before: float | None = None
    learnt: bool = True
    since: float = 0.0
    since_response: int = 0
    raised_at: float = 0.0
    raised_response: int = 0
    response_id: str = ""
    tenant: str = DEFAULT_TENANT
    run: str = LIVE
    fingerprint: str = ""
    responses: int = 0
    recovered_at: float | None = None
    recovered_response: int | None = None

    @property
    def key(self) -> str:
        """What is watched, inside subjects: 32 hex digits over model, category and set of judges."""
        return digest(self.model, self.category, self.fingerprint)[:32]


class FactOpinion(Event, frozen=True, kw_only=True):
    """What a reviewer says of one fact.

    `claim` is its index among the outcome's claims, None for one that the reviewer added; one whose text or
    category is another than the claim's was edited. `removed`: it is no fact of the answer, and counts
    nowhere. `unit` is as in `Claim`.
    """

    text: str
    category: str
    decision: Decision
    unit: Number = 0
    claim: Number | None = None
    removed: bool = False


class OpinionGiven(Event, frozen=True, kw_only=True):
    """What a person, or a better judge, says of an answer that a first judge has judged for a protocol.

    `id` to `recorded_at` are those of the outcome. `reviewer` is a person's name, or `judge:` and the
    fingerprint of `judge`. `probability` is with which the answer was drawn into its `queue` among all of
    that queue's frame, 0 where no rule drew it: then it has no part in a corrected rate. `weight` is how many
    responses the outcome stands for (`statistics.sampling.weight`), `fingerprint` names its set of judges,
    and `judged` has by category, and for `all` of them, how many claims these refuted and decided. `labels`
    are by sub-sentence, None where nothing was said; `mark` is for the whole answer, 1 to 5. `seconds` is how
    long the reviewer took, `revision` counts what the same reviewer said of the same answer. An `objection`
    is what somebody said of single facts where they came upon the answer: it stands beside their other
    opinion, and, chosen because a judge seemed wrong, says nothing of how often judges are.
    """

    id: str
    model: str
    protocol: str
    reviewer: str
    tenant: str = DEFAULT_TENANT
    run: str = LIVE
    partition: int = 0
    tags: dict[str, str] = {}
    images: tuple[str, ...] = ()
    recorded_at: float = 0.0
    judge: Judge | None = None
    queue: str = ""
    probability: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    weight: Annotated[float, msgspec.Meta(ge=0, le=1e15)] = 1.0
    fingerprint: str = ""
    labels: tuple[Label | None, ...] = ()
    facts: tuple[FactOpinion, ...] = ()
    mark: Annotated[int, msgspec.Meta(ge=1, le=5)] | None = None
    judged: dict[str, tuple[Number, Number]] = {}
    given_at: float = 0.0
    seconds: float = 0.0
    revision: Number = 1
    objection: bool = False

    @property
    def key(self) -> str:
        """The response's name inside subjects, as in `ResponseRecorded.key`."""
        return response_key(self.tenant, self.id, self.partition)


class OpinionAsked(Event, frozen=True, kw_only=True):
    """An answer that was drawn into a `queue` of second opinions, on its way to the judge that looks at it.

    `key` is that of the response, `reviewer` as whom the judge gives its opinion.
    """

    queue: str
    key: str
    protocol: str
    reviewer: str
    tenant: str = DEFAULT_TENANT
    run: str = LIVE


def version_of(tags: Mapping[str, str], names: Iterable[str]) -> str:
    """The model's version: the first of these tags that says one."""
    return next((tags[name] for name in names if tags.get(name)), "")


def tenant_of(data: bytes) -> str | None:
    """The tenant that an event of any kind names; None for bytes that are no event."""
    try:
        found: Any = msgspec.json.decode(data)
    except UNDECODED:
        return None
    while isinstance(found, dict):
        inner = next((found[name] for name in _NESTED if isinstance(found.get(name), dict)), None)
        if inner is None:
            tenant = found.get("tenant", DEFAULT_TENANT)
            return tenant if isinstance(tenant, str) else None
        found = inner
    return None
