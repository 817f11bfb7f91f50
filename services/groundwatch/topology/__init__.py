"""Streams, subjects and durable consumers: declared once, in `topology.toml`.

`groundwatch admin provision` creates them; services only bind to what stands there.

A subject names where its event goes next, so a consumer's filter never changes when a protocol is added:

    gw.intake.<tenant>                               a response of a tenant's, to be recorded by a gateway
    gw.asked.<run>.<stage>.<key>                     a question for a model under test
    gw.recorded.<run>.<key>                          a response, as recorded
    gw.extracted.<run>.<stage>.<protocol>.<key>      its claims, on their way to <stage>
    gw.chain.<run>.<stage>.<protocol>.<key>.<step>   a chain in that round, on its way to <stage>
    gw.judged.<run>.<stage>.<protocol>.<key>         its judged claims, on their way to <stage>
    gw.outcome.<run>.<protocol>.<key>                its one outcome
    gw.alarm.<run>.<protocol>.<key>                  alarms of one model and category, in their order
    gw.opinion.<run>.<protocol>.<reviewer>.<key>     what a reviewer says of an answer; the last one counts
    gw.second.<run>.<protocol>.<key>                 an answer that a judge is to give its opinion on
    gw.dead.<stage>.<run>.<key>                      an event that <stage> could not process
    gw.retry.<stage>.<run>.<key>                     a dead letter that somebody sent again

`key` is `keys.response_key` (of an alarm, `AlarmRaised.key`): one subject for each response, and for
each round of a chain. That is what makes every stage exactly once: an event is published with "expect no
message on this subject", which the server itself enforces for as long as the stream remembers, where a
duplicate window of message ids forgets after minutes.

With several partitions each stream of `ARCHIVED` is there once for each: the first has the names above, the
others `GW_RESPONSES_3` with `gw3.recorded.<run>.<key>`, and keys that end in `-p3` (`topology.partitions`).
"""

import re
import tomllib
from collections.abc import Iterable
from importlib.resources import files
from typing import Literal, TypeVar

import msgspec

from groundwatch.errors import InvalidName
from groundwatch.events import LIVE
from groundwatch.keys import partition_of

PREFIX = "gw"

HEADER_MESSAGE_ID = "Nats-Msg-Id"
HEADER_EXPECT_SEQUENCE = "Nats-Expected-Last-Subject-Sequence"
HEADER_PROTOCOLS = "Gw-Protocols"
HEADER_DIGEST = "Gw-Digest"
HEADER_OUTCOME = "Gw-Outcome"
HEADER_REASON = "Gw-Reason"
HEADER_ORIGIN = "Gw-Origin"
HEADER_RETRY = "Gw-Retry"
HEADER_REPLACED = "Gw-Replaced"
HEADER_SUPERSEDES = "Gw-Supersedes"
HEADER_HALF = "Gw-Half"
HEADER_TRACE = "traceparent"

INTAKE = "GW_INTAKE"
RESPONSES = "GW_RESPONSES"
EXTRACTED = "GW_EXTRACTED"
ASKED = "GW_ASKED"
JUDGED = "GW_JUDGED"
OUTCOMES = "GW_OUTCOMES"
ALARMS = "GW_ALARMS"
OPINIONS = "GW_OPINIONS"
SECOND = "GW_SECOND"
DEAD = "GW_DEAD"
RETRY = "GW_RETRY"
ARCHIVED = (RESPONSES, EXTRACTED, ASKED, JUDGED, OUTCOMES)
"""Streams whose messages the archive keeps, so that they need not stay."""

COPIED = (*ARCHIVED, OPINIONS)
"""Those, and what the archive has beside its stream."""

IMAGES_BUCKET = "gw-images"
BUDGETS_BUCKET = "gw-budgets"
RUNS_BUCKET = "gw-runs"
EXPORTS_BUCKET = "gw-exports"
TOMBSTONES_BUCKET = "gw-tombstones"
CACHE_BUCKET = "gw-cache"
ATTEMPTS_BUCKET = "gw-attempts"
HALVES_BUCKET = "gw-halves"
LOSSES_BUCKET = "gw-losses"
REPORT_BUCKET = "gw-report"
LEDGER_BUCKET = "gw-ledger"
QUEUES_BUCKET = "gw-queues"
ALARMS_BUCKET = "gw-alarms"

DAY = 86_400.0
STAGES = ("extraction", "captioning", "generation", "matching", "verification", "scoring")
GATEWAY = "gateway"
COMMAND_LINE = "cli"
REPLAY = "replay"
ARCHIVE = "archive"
OUTFLOW = "outflow"
ANNOTATION = "annotation"
SECOND_OPINION = "second-opinion"
ERASE = "erase"
AUDITOR = "audit"
PROVISIONER = "provision"


class StreamSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A stream as it must be. Ages in seconds, sizes in bytes; 0 means without limit.

    The server drops a message whose id it has seen in `duplicate_window` seconds. A message must leave
    `headroom` bytes free below the server's max_payload. Beyond `max_per_subject` messages the oldest of the
    subject goes; with `refuse_more` the new one is refused.
    """

    name: str
    subjects: tuple[str, ...]
    description: str
    max_age: float = 30 * DAY
    max_bytes: int = 0
    max_per_subject: int = 0
    refuse_more: bool = False
    work_queue: bool = False
    duplicate_window: float = 600.0
    headroom: int = 0


class ConsumerSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A durable pull consumer as it must be. `ack_wait` in seconds: so long after a process was killed, what
    it held is given to another. Stages say every third of it that they work.

    The server redelivers without end; giving up is the runtime's decision, since only it can write the
    dead letter. `max_ack_pending` bounds what all replicas of a stage hold together; settings can say more.
    `user` binds to it, where that has another name than the stage.
    """

    name: str
    stream: str
    filters: tuple[str, ...]
    description: str
    ack_wait: float = 12.0
    max_ack_pending: int = 5_000
    partition: int = 0
    user: str = ""

    @property
    def durable(self) -> str:
        """Its name in the first partition."""
        return self.name.removesuffix(f"-p{self.partition}")

    @property
    def stage(self) -> str:
        """The stage whose it is."""
        return self.durable.removesuffix("-retry")

    @property
    def service(self) -> str:
        """The service that binds to it."""
        return self.user or self.stage


class ChannelSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A family of subjects: what is on it, and who puts it there.

    `address` has the variable tokens in braces. `events` are their names; none means the bytes of another
    channel's event as they came, decodable or not. No `publishers` means users of tenants. `readers` look
    without a durable consumer; those with one are in `CONSUMERS`. `lookups` ask for single messages by their
    subjects, and do nothing else. Every message carries `headers`, some carry `optional_headers`.
    """

    name: str
    address: str
    stream: str
    description: str
    publishers: tuple[str, ...]
    readers: tuple[str, ...] = ()
    lookups: tuple[str, ...] = ()
    events: tuple[str, ...] = ()
    headers: tuple[str, ...] = (HEADER_MESSAGE_ID, HEADER_EXPECT_SEQUENCE)
    optional_headers: tuple[str, ...] = ()


class BucketSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A bucket of NATS' object store or key-value store, and who may use it.

    `writers` may read as well, and replace or erase what others wrote; `readers` may also watch.
    `drop_old`: what is oldest makes room for what is new, within `max_age` seconds and `max_bytes`; 0: what
    settings say for the cache. Only for what can be had again, or is of no use later. Without it, what is
    beyond `max_bytes` is refused. A key keeps its last `history` values.
    """

    name: str
    kind: Literal["objects", "key_value"]
    description: str
    writers: tuple[str, ...]
    readers: tuple[str, ...] = ()
    drop_old: bool = False
    max_age: float = 0.0
    max_bytes: int = 0
    history: int = 1

    @property
    def stream(self) -> str:
        """The stream that NATS keeps it in."""
        return f"{'OBJ' if self.kind == 'objects' else 'KV'}_{self.name}"


_S = TypeVar("_S", bound=msgspec.Struct)
_DECLARED = tomllib.loads(files(__name__).joinpath("topology.toml").read_text("utf-8"))


def _declared(kind: str, form: type[_S]) -> tuple[_S, ...]:
    return tuple(msgspec.convert({"name": name, **keys}, form) for name, keys in _DECLARED[kind].items())


HEADERS: dict[str, str] = _DECLARED["header"]
"""What every header means."""

RIGHTS: dict[str, dict[str, list[str]]] = _DECLARED["right"]
"""By user and call of JetStream's API, streams: what channels, consumers and buckets do not give."""

STREAMS = _declared("stream", StreamSpec)
CHANNELS = _declared("channel", ChannelSpec)
_DOTS = {channel.name: channel.address.count(".") for channel in CHANNELS}
PARTITIONED = {
    channel.name: channel.address.split(".").index("{key}") - 2
    for channel in CHANNELS
    if channel.stream in ARCHIVED
}
"""Kinds of subjects of which each partition has its own, and which of their tokens is the key."""
BUCKETS = _declared("bucket", BucketSpec)
ALL_STREAMS = (*(spec.name for spec in STREAMS), *(bucket.stream for bucket in BUCKETS))
CONSUMERS: tuple[ConsumerSpec, ...] = (
    *_declared("consumer", ConsumerSpec),
    *(
        ConsumerSpec(
            name=f"{stage}-retry",
            stream=RETRY,
            filters=(f"{PREFIX}.retry.{stage}.>",),
            description=f"Dead letters of {stage} that somebody sent again",
            user=ANNOTATION if stage == SECOND_OPINION else "",
        )
        for stage in (GATEWAY, *STAGES, OUTFLOW, SECOND_OPINION)
    ),
)


def stream(name: str) -> StreamSpec:
    """The declaration of a stream."""
    return next(spec for spec in STREAMS if spec.name == name)


def consumer(name: str) -> ConsumerSpec:
    return next(spec for spec in CONSUMERS if spec.name == name)


MAX_TOKEN = 128
"""Characters of one part of a subject. NATS hangs up on a client whose line, subjects and all, is longer
than 4,096 bytes; no subject of ours has more than seven parts."""

_TOKEN = r"[_-]*[A-Za-z0-9][\w-]*"
_is_plain_token = re.compile(_TOKEN, re.ASCII).fullmatch
_is_plain = re.compile(rf"{_TOKEN}(?:\.{_TOKEN})*", re.ASCII).fullmatch


def is_token(text: str) -> bool:
    """Whether the text can stand between two dots of a subject, as every protocol's name must."""
    return len(text) <= MAX_TOKEN and _is_plain_token(text) is not None


def subject_of(kind: str, *tokens: str) -> str:
    """A subject of a kind, such as `outcome`; the tokens are in the order of its address.

    Raises `InvalidName` for what cannot be part of one, `ValueError` for too many or too few.
    """
    at = PARTITIONED.get(kind)
    partition = partition_of(tokens[at]) if at is not None and at < len(tokens) else 0
    name = ".".join((prefix_of(partition), kind, *tokens))
    if _is_subject(name) and name.count(".") == len(tokens) + 1 == _DOTS[kind]:
        return name
    check_tokens(tokens)
    raise ValueError(f"a subject of the kind '{kind}' has {_DOTS[kind] - 1} parts, not {len(tokens)}")


def prefix_of(partition: int) -> str:
    """The first token of a partition's subjects: a wildcard cannot cover a part of a token."""
    return f"{PREFIX}{partition}" if partition else PREFIX


def check_tokens(tokens: Iterable[str]) -> None:
    for token in tokens:
        if not is_token(token):
            shown = token if len(token) <= MAX_TOKEN else f"{token[:32]}…"
            raise InvalidName(
                f"'{shown}' cannot be part of a subject: use letters, digits, - and _, at most {MAX_TOKEN}"
            )


def _is_subject(name: str) -> bool:
    """All at once: every event on its way makes and reads several."""
    fits = len(name) <= MAX_TOKEN or all(len(token) <= MAX_TOKEN for token in name.split("."))
    return fits and _is_plain(name) is not None


def run_subjects(kind: str, run: str | None, *tokens: str) -> str:
    """Every subject of a kind, such as `outcome`, of one run, or of all; `tokens` narrow it."""
    if run is None:
        return f"{PREFIX}.{kind}.*.>"
    check_tokens((run, *tokens))
    return ".".join((PREFIX, kind, run, *tokens, ">"))


MAX_DIGITS = 18
"""What fits into the 64 bits that NATS and the archive count with."""


def number_in(text: str) -> int:
    """The number that a header says; 0 where it says none that could be ours."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS else 0


class Address(msgspec.Struct, frozen=True):
    """What a subject says: readable even when the event under it is not. What tenants publish has no key."""

    kind: str
    run: str
    key: str
    stage: str = ""
    protocol: str = ""
    tenant: str = ""


def parse_subject(subject: str) -> Address | None:
    """Read a subject of ours; None when it is not one, or has parts that none of ours has."""
    match subject.split(".") if _is_subject(subject) else ():
        case [_, "intake", tenant]:
            return Address("intake", LIVE, "", tenant=tenant)
        case [_, "recorded", run, key]:
            return Address("recorded", run, key)
        case [_, ("extracted" | "judged") as kind, run, stage, protocol, key]:
            return Address(kind, run, key, stage, protocol)
        case [_, "asked", run, stage, key]:
            return Address("asked", run, key, stage)
        case [_, "chain", run, stage, protocol, key, _]:
            return Address("chain", run, key, stage, protocol)
        case [_, ("outcome" | "alarm" | "second") as kind, run, protocol, key]:
            return Address(kind, run, key, "", protocol)
        case [_, "opinion", run, protocol, _, key]:
            return Address("opinion", run, key, "", protocol)
        case [_, ("dead" | "retry") as kind, stage, run, key]:
            return Address(kind, run, key, stage)
    return None


def stage_of(subject: str) -> str:
    """The stage that a subject of claims, of a chain or of a question leads to."""
    return subject.split(".", 4)[3]


def receiver_consumer(receiver: str, kind: Literal["outcome", "alarm"]) -> ConsumerSpec:
    """The durable consumer of a receiver that settings name; `outflow` makes it: nobody else knows it.

    Alarms are few, and told one after the other: nobody is told of an end before its alarm.
    """
    return ConsumerSpec(
        name=f"{OUTFLOW}-to-{receiver}",
        stream=OUTCOMES if kind == "outcome" else ALARMS,
        filters=(run_subjects(kind, LIVE),),
        description=f"What {receiver} is told of",
        max_ack_pending=1_000 if kind == "outcome" else 1,
    )
