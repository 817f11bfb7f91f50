"""What each user of NATS may do, from what `topology` declares.

A user is a service, the command line, or whoever provisions. Each may publish what its channels say, fetch
and acknowledge from its own consumers, ask for what it reads, and receive in an inbox of its own: a new
channel gives its right by itself. Nobody is given `$JS.>`, `$JS.API.>` or `_INBOX.>`.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from groundwatch.events import LIVE
from groundwatch.topology import (
    ALL_STREAMS,
    AUDITOR,
    BUCKETS,
    CHANNELS,
    COMMAND_LINE,
    CONSUMERS,
    DEAD,
    ERASE,
    GATEWAY,
    PREFIX,
    PROVISIONER,
    REPLAY,
    RIGHTS,
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


def _reading(stream: str) -> Iterator[str]:
    """Calls on a consumer of one's own, which has any name and filter, and for messages by their sequence."""
    yield f"{API}.DIRECT.GET.{stream}"
    yield f"{API}.CONSUMER.CREATE.{stream}.*.>"
    for call in ("MSG.NEXT", "INFO", "DELETE"):
        yield f"{API}.CONSUMER.{call}.{stream}.*"


def _otherwise(rights: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """The subjects of what `topology.toml` gives a user beside its channels, consumers and buckets."""
    for call, streams in rights.items():
        for name in ALL_STREAMS if "ALL" in streams else streams:
            match call:
                case "read":
                    yield from _reading(name)
                case "ack":
                    yield f"{ACK}.{name}.*.>"
                case _:
                    yield f"{API}.{call}.{name}"


OTHERWISE = {user: tuple(_otherwise(rights)) for user, rights in RIGHTS.items()}
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
