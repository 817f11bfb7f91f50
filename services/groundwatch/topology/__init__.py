"""Streams, subjects and durable consumers: declared once, in `topology.toml`; and what each user may do.

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
    gw.dead.<stage>.<run>.<key>                      an event that <stage> could not process
    gw.retry.<stage>.<run>.<key>                     a dead letter that somebody sent again

`key` is `events.response_key` (of an alarm, `AlarmRaised.key`): one subject for each response, and for
each round of a chain. That is what makes every stage exactly once: an event is published with "expect no
message on this subject", which the server itself enforces for as long as the stream remembers, where a
duplicate window of message ids forgets after minutes.

A user is a service, the command line, or whoever provisions. Each may publish what its channels say, fetch
and acknowledge from its own consumers, ask for what it reads, and receive in an inbox of its own: a new
channel gives its right by itself. Nobody is given `$JS.>`, `$JS.API.>` or `_INBOX.>`.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator
from importlib.resources import files
from typing import Literal, TypeVar

import msgspec

from groundwatch.errors import InvalidName
from groundwatch.events import LIVE

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
HEADER_TRACE = "traceparent"

INTAKE = "GW_INTAKE"
RESPONSES = "GW_RESPONSES"
EXTRACTED = "GW_EXTRACTED"
ASKED = "GW_ASKED"
JUDGED = "GW_JUDGED"
OUTCOMES = "GW_OUTCOMES"
ALARMS = "GW_ALARMS"
DEAD = "GW_DEAD"
RETRY = "GW_RETRY"
ARCHIVED = (RESPONSES, EXTRACTED, ASKED, JUDGED, OUTCOMES)
"""Streams whose messages the archive keeps, so that they need not stay."""

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

DAY = 86_400.0
STAGES = ("extraction", "captioning", "generation", "matching", "verification", "scoring")
GATEWAY = "gateway"
COMMAND_LINE = "cli"
REPLAY = "replay"
ARCHIVE = "archive"
OUTFLOW = "outflow"
ERASE = "erase"
AUDITOR = "audit"
PROVISIONER = "provision"


class StreamSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A stream as it must be. Ages in seconds, sizes in bytes; 0 means without limit.

    The server drops a message whose id it has seen in `duplicate_window` seconds. A message must leave
    `headroom` bytes free below the server's max_payload.
    """

    name: str
    subjects: tuple[str, ...]
    description: str
    max_age: float = 30 * DAY
    max_bytes: int = 0
    max_per_subject: int = 0
    work_queue: bool = False
    duplicate_window: float = 600.0
    headroom: int = 0


class ConsumerSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A durable pull consumer as it must be. `ack_wait` in seconds: so long after a process was killed, what
    it held is given to another. Stages say every third of it that they work.

    The server redelivers without end; giving up is the runtime's decision, since only it can write the
    dead letter. `max_ack_pending` bounds what all replicas of a stage hold together; settings can say more.
    """

    name: str
    stream: str
    filters: tuple[str, ...]
    description: str
    ack_wait: float = 12.0
    max_ack_pending: int = 5_000

    @property
    def service(self) -> str:
        """The service that binds to it."""
        return self.name.removesuffix("-retry")


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
    beyond `max_bytes` is refused.
    """

    name: str
    kind: Literal["objects", "key_value"]
    description: str
    writers: tuple[str, ...]
    readers: tuple[str, ...] = ()
    drop_old: bool = False
    max_age: float = 0.0
    max_bytes: int = 0

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

STREAMS = _declared("stream", StreamSpec)
CHANNELS = _declared("channel", ChannelSpec)
_DOTS = {channel.name: channel.address.count(".") for channel in CHANNELS}
BUCKETS = _declared("bucket", BucketSpec)
CONSUMERS: tuple[ConsumerSpec, ...] = (
    *_declared("consumer", ConsumerSpec),
    *(
        ConsumerSpec(
            name=f"{stage}-retry",
            stream=RETRY,
            filters=(f"{PREFIX}.retry.{stage}.>",),
            description=f"Dead letters of {stage} that somebody sent again",
        )
        for stage in (GATEWAY, *STAGES, OUTFLOW)
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
    name = ".".join((PREFIX, kind, *tokens))
    if _is_subject(name) and name.count(".") == len(tokens) + 1 == _DOTS[kind]:
        return name
    _check_tokens(tokens)
    raise ValueError(f"a subject of the kind '{kind}' has {_DOTS[kind] - 1} parts, not {len(tokens)}")


def _check_tokens(tokens: Iterable[str]) -> None:
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
    _check_tokens((run, *tokens))
    return ".".join((PREFIX, kind, run, *tokens, ">"))


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
        case [_, ("outcome" | "alarm") as kind, run, protocol, key]:
            return Address(kind, run, key, "", protocol)
        case [_, ("dead" | "retry") as kind, stage, run, key]:
            return Address(kind, run, key, stage)
    return None


def stage_of(subject: str) -> str:
    """The stage that a subject of claims, of a chain or of a question leads to."""
    return subject.split(".", 4)[3]


API = "$JS.API"
ACK = "$JS.ACK"

ONLY_LIVE = (GATEWAY,)
"""Users that write into the run of live traffic alone."""

NEVER_LIVE = (REPLAY,)
"""Users that write into any run but that of live traffic."""

SEES_BACKLOG = (GATEWAY, COMMAND_LINE, AUDITOR, REPLAY, ERASE)
"""Users that ask about consumers of others, which changes nothing: live traffic goes before a replay, and
what a stage holds is erased when the stage has let go of it."""

ALL_STREAMS = (*(spec.name for spec in STREAMS), *(bucket.stream for bucket in BUCKETS))


def _reading(stream: str) -> Iterator[str]:
    """Calls on a consumer of one's own, which has any name and filter, and for messages by their sequence."""
    yield f"{API}.DIRECT.GET.{stream}"
    yield f"{API}.CONSUMER.CREATE.{stream}.*.>"
    for call in ("MSG.NEXT", "INFO", "DELETE"):
        yield f"{API}.CONSUMER.{call}.{stream}.*"


OTHERWISE: dict[str, tuple[str, ...]] = {
    # How many dead letters there are: `gateway.gauges`; and halves that were joined leave their bucket.
    GATEWAY: (f"{API}.STREAM.INFO.{DEAD}", f"{API}.STREAM.MSG.DELETE.KV_{HALVES_BUCKET}"),
    # Its receivers are named in settings, so their consumers are not declared.
    OUTFLOW: tuple(f"{ACK}.{name}.*.>" for name in (OUTCOMES, ALARMS)),
    # A dead letter that was sent again leaves the dead letters.
    COMMAND_LINE: (f"{API}.STREAM.MSG.DELETE.{DEAD}",),
    # A run that is deleted leaves every stream.
    REPLAY: tuple(f"{API}.STREAM.PURGE.{name}" for name in (RESPONSES, EXTRACTED, JUDGED, OUTCOMES)),
    # It overwrites single messages wherever they lie, and looks for their bytes in every bucket.
    ERASE: (
        *(f"{API}.STREAM.MSG.DELETE.{name}" for name in ALL_STREAMS),
        *(call for bucket in BUCKETS if bucket.kind == "objects" for call in _reading(bucket.stream)),
    ),
}
"""Subjects beside those that channels, consumers and buckets give."""


class Permissions(msgspec.Struct, frozen=True, kw_only=True):
    """One user's rights, as the server takes them. What is denied wins over what is allowed."""

    user: str
    publish: tuple[str, ...]
    publish_denied: tuple[str, ...]
    subscribe: tuple[str, ...]


def users() -> tuple[str, ...]:
    """Every user: all that channels, consumers and buckets name, and who provisions."""
    named = [GATEWAY, *STAGES, COMMAND_LINE]
    for channel in CHANNELS:
        named += [*channel.publishers, *channel.readers, *channel.lookups]
    named += [spec.service for spec in CONSUMERS]
    for bucket in BUCKETS:
        named += [*bucket.writers, *bucket.readers]
    return tuple(dict.fromkeys((*named, PROVISIONER)))


def inbox_prefix(user: str) -> str:
    """Where a user's answers come: no wildcard of another user's covers it."""
    return f"_INBOX_{user}"


def permissions(user: str) -> Permissions:
    """The rights of one user. Raises `ValueError` for one that nothing names."""
    if user not in users():
        raise ValueError(f"no NATS user '{user}'; there are {', '.join(users())}")
    return Permissions(
        user=user,
        publish=tuple(dict.fromkeys(_provisioning() if user == PROVISIONER else _working(user))),
        publish_denied=tuple(dict.fromkeys(_denied(user))),
        subscribe=(f"{inbox_prefix(user)}.>",),
    )


def tenant_user(tenant: str) -> str:
    """The name of a tenant's user. Raises `InvalidName` for a tenant that cannot be in a subject."""
    _check_tokens((tenant,))
    return f"tenant-{tenant}"


def tenant_permissions(tenant: str) -> Permissions:
    """The rights of a tenant's user: to publish responses of its own, and to hear that they are stored."""
    user = tenant_user(tenant)
    return Permissions(
        user=user,
        publish=(subject_of("intake", tenant),),
        publish_denied=(),
        subscribe=(f"{inbox_prefix(user)}.>",),
    )


def streams_of(user: str) -> tuple[str, ...]:
    """Streams that a user writes, reads or consumes: those whose state it may ask."""
    named = [one.stream for one in CHANNELS if user in (*one.publishers, *one.readers, *one.lookups)]
    named += [spec.stream for spec in CONSUMERS if spec.service == user]
    return tuple(spec.name for spec in STREAMS if spec.name in named)


def _working(user: str) -> Iterator[str]:
    run = LIVE if user in ONLY_LIVE else "*"
    for channel in CHANNELS:
        if user in channel.publishers:
            for stage in _stages_addressed(channel, user):
                yield _filled(channel, {"run": run, "stage": stage})
    for stream in streams_of(user):
        yield f"{API}.STREAM.INFO.{stream}"
    for spec in CONSUMERS:
        if spec.service == user:
            yield f"{API}.CONSUMER.INFO.{spec.stream}.{spec.name}"
            yield f"{API}.CONSUMER.MSG.NEXT.{spec.stream}.{spec.name}"
            yield f"{ACK}.{spec.stream}.{spec.name}.>"
    for channel in CHANNELS:
        if user in channel.lookups or _reads(channel, user):
            yield f"{API}.STREAM.MSG.GET.{channel.stream}"
        if _reads(channel, user):
            yield from _reading(channel.stream)
    if user in SEES_BACKLOG:
        for spec in CONSUMERS:
            yield f"{API}.CONSUMER.INFO.{spec.stream}.{spec.name}"
    for bucket in BUCKETS:
        yield from _bucket(bucket, user)
    yield from OTHERWISE.get(user, ())


def _denied(user: str) -> Iterator[str]:
    """Durable consumers on streams that the user reads by consumers of its own, which have any name."""
    read = {channel.stream for channel in CHANNELS if _reads(channel, user)}
    for spec in CONSUMERS:
        if spec.stream not in read:
            continue
        yield f"{API}.CONSUMER.CREATE.{spec.stream}.{spec.name}.>"
        yield f"{API}.CONSUMER.DELETE.{spec.stream}.{spec.name}"
        if spec.service != user:
            yield f"{API}.CONSUMER.MSG.NEXT.{spec.stream}.{spec.name}"
        if spec.service != user and user not in SEES_BACKLOG:
            yield f"{API}.CONSUMER.INFO.{spec.stream}.{spec.name}"
    if user in NEVER_LIVE:
        for channel in CHANNELS:
            if user in channel.publishers:
                yield _filled(channel, {"run": LIVE, "stage": "*"})


def _bucket(bucket: BucketSpec, user: str) -> Iterator[str]:
    """The calls that the client library makes for a bucket."""
    if user not in (*bucket.writers, *bucket.readers):
        return
    yield f"{API}.STREAM.INFO.{bucket.stream}"
    yield f"{API}.STREAM.MSG.GET.{bucket.stream}"
    # The library finds the stream of a subject by name, and reads by a consumer that has none.
    yield f"{API}.STREAM.NAMES"
    yield f"{API}.CONSUMER.CREATE.{bucket.stream}"
    yield f"$JS.FC.{bucket.stream}.>"
    match bucket.kind:
        case "objects":
            subjects = [f"$O.{bucket.name}.C.*", f"$O.{bucket.name}.M.*"]
        case "key_value":
            subjects = [f"$KV.{bucket.name}.>"]
            yield f"{API}.DIRECT.GET.{bucket.stream}.$KV.{bucket.name}.>"
            # It is followed as streams are, by a consumer of the follower's own.
            yield from _reading(bucket.stream)
    if user in bucket.writers:
        yield from subjects
        # Replacing an object removes the pieces of the one before it.
        yield f"{API}.STREAM.PURGE.{bucket.stream}"


def _provisioning() -> Iterator[str]:
    """Makes and changes what is declared; reads and writes no event, deletes nothing."""
    for name in ALL_STREAMS:
        for call in ("INFO", "CREATE", "UPDATE"):
            yield f"{API}.STREAM.{call}.{name}"
    for spec in CONSUMERS:
        yield f"{API}.CONSUMER.INFO.{spec.stream}.{spec.name}"
        yield f"{API}.CONSUMER.DURABLE.CREATE.{spec.stream}.{spec.name}"


def _reads(channel: ChannelSpec, user: str) -> bool:
    """Whether the user reads the channel from end to end, and not single messages only."""
    return user in channel.readers and user not in channel.lookups


def _stages_addressed(channel: ChannelSpec, user: str) -> tuple[str, ...]:
    """Stages that an event of this publisher can be on its way to, as its subject names them."""
    if channel.stream == DEAD:
        return (user,)
    family = channel.address.partition("{run}")[0]
    filters = [one.split(".") for spec in CONSUMERS for one in spec.filters if one.startswith(family)]
    at = channel.address.split(".")
    if "{run}" not in at or "{stage}" not in at or at.index("{stage}") < at.index("{run}") or not filters:
        return ("*",)
    found = dict.fromkeys(tokens[at.index("{stage}")] for tokens in filters)
    return tuple(stage for stage in found if stage != user) or ("*",)


def _filled(channel: ChannelSpec, tokens: dict[str, str]) -> str:
    """A channel's address with these tokens, and any in the place of the others."""
    parts = channel.address.split(".")
    named = {f"{{{name}}}": token for name, token in tokens.items()}
    assert parts[0] == PREFIX
    return ".".join(named.get(part, "*" if part.startswith("{") else part) for part in parts)
