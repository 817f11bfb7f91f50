"""What each user of NATS may do, from what `topology` declares.

A user is a service, the command line, or whoever provisions. Each may publish what its channels say, fetch
and acknowledge from its own consumers, ask for what it reads, and receive in an inbox of its own: a new
channel gives its right by itself. Nobody is given `$JS.>`, `$JS.API.>` or `_INBOX.>`.
"""

from collections.abc import Iterator

import msgspec

from groundwatch.events import LIVE
from groundwatch.topology import (
    ALARMS,
    ALARMS_BUCKET,
    ALL_STREAMS,
    ANNOTATION,
    ARCHIVE,
    ARCHIVED,
    AUDITOR,
    BUCKETS,
    CHANNELS,
    COMMAND_LINE,
    CONSUMERS,
    COPIED,
    DEAD,
    ERASE,
    EXTRACTED,
    GATEWAY,
    HALVES_BUCKET,
    IMAGES_BUCKET,
    INTAKE,
    JUDGED,
    OUTCOMES,
    OUTFLOW,
    PREFIX,
    PROVISIONER,
    QUEUES_BUCKET,
    REPLAY,
    RESPONSES,
    RETRY,
    STAGES,
    STREAMS,
    BucketSpec,
    ChannelSpec,
    check_tokens,
    subject_of,
)
from groundwatch.topology.partitions import rights_in_all

API = "$JS.API"
ACK = "$JS.ACK"

ONLY_LIVE = (GATEWAY,)
"""Users that write into the run of live traffic alone."""

NEVER_LIVE = (REPLAY,)
"""Users that write into any run but that of live traffic."""

SEES_BACKLOG = (GATEWAY, COMMAND_LINE, AUDITOR, REPLAY, ERASE)
"""Users that ask about consumers of others, which changes nothing: live traffic goes before a replay, and
what a stage holds is erased when the stage has let go of it."""

_IMAGES = f"OBJ_{IMAGES_BUCKET}"


def _reading(stream: str) -> Iterator[str]:
    """Calls on a consumer of one's own, which has any name and filter, and for messages by their sequence."""
    yield f"{API}.DIRECT.GET.{stream}"
    yield f"{API}.CONSUMER.CREATE.{stream}.*.>"
    for call in ("MSG.NEXT", "INFO", "DELETE"):
        yield f"{API}.CONSUMER.{call}.{stream}.*"


OTHERWISE: dict[str, tuple[str, ...]] = {
    # How many dead letters there are: `gateway.gauges`; one that was sent again leaves them, halves that were
    # joined leave their bucket, as values of queues and of alarms that were replaced do.
    GATEWAY: (
        f"{API}.STREAM.INFO.{DEAD}",
        f"{API}.STREAM.MSG.DELETE.{DEAD}",
        f"{API}.STREAM.MSG.DELETE.KV_{HALVES_BUCKET}",
        f"{API}.STREAM.MSG.DELETE.KV_{QUEUES_BUCKET}",
        f"{API}.STREAM.MSG.DELETE.KV_{ALARMS_BUCKET}",
    ),
    # Its receivers are named in settings, so their consumers are not declared.
    OUTFLOW: tuple(f"{ACK}.{name}.*.>" for name in (OUTCOMES, ALARMS)),
    # A dead letter that was sent again leaves the dead letters.
    COMMAND_LINE: tuple(f"{API}.STREAM.MSG.DELETE.{name}" for name in (DEAD, f"KV_{QUEUES_BUCKET}")),
    ANNOTATION: (f"{API}.STREAM.MSG.DELETE.KV_{QUEUES_BUCKET}",),
    # A run that is deleted leaves every stream.
    REPLAY: tuple(f"{API}.STREAM.PURGE.{name}" for name in (RESPONSES, EXTRACTED, JUDGED, OUTCOMES)),
    # What is archived, old and no longer in work leaves its stream, or the object store; a stream is labelled
    # with when it was created.
    ARCHIVE: (
        *(f"{API}.{call}.{name}" for name in ARCHIVED for call in ("CONSUMER.LIST", "STREAM.MSG.DELETE")),
        *(f"{API}.STREAM.UPDATE.{name}" for name in COPIED),
        *(f"{API}.{call}.{name}" for name in (INTAKE, RETRY) for call in ("CONSUMER.LIST", "STREAM.MSG.GET")),
        *(f"{API}.{call}.{RETRY}" for call in ("STREAM.INFO", "DIRECT.GET")),
        *(*_reading(_IMAGES), f"{API}.STREAM.MSG.DELETE.{_IMAGES}"),
    ),
    # It overwrites single messages wherever they lie, and reads every bucket back.
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


def permissions(user: str, partitions: int = 1) -> Permissions:
    """The rights of one user. Raises `ValueError` for one that nothing names."""
    if user not in users():
        raise ValueError(f"no NATS user '{user}'; there are {', '.join(users())}")
    return Permissions(
        user=user,
        publish=tuple(
            dict.fromkeys(
                rights_in_all(_provisioning() if user == PROVISIONER else _working(user), partitions)
            )
        ),
        publish_denied=tuple(dict.fromkeys(rights_in_all(_denied(user), partitions))),
        subscribe=(f"{inbox_prefix(user)}.>",),
    )


def tenant_user(tenant: str) -> str:
    """The name of a tenant's user. Raises `InvalidName` for a tenant that cannot be in a subject."""
    check_tokens((tenant,))
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
        return tuple(dict.fromkeys(spec.stage for spec in CONSUMERS if spec.service == user))
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
