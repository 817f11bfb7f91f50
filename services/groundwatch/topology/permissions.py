"""What each user may do on NATS: read off the channels, consumers and buckets, so that a new one gives its
right by itself.

A user is a service, the command line, or whoever provisions. Each may publish what its channels say, fetch
and acknowledge from its own consumers, ask for what it reads, and receive in an inbox of its own. Nobody
is given `$JS.>`, `$JS.API.>` or `_INBOX.>`.
"""

from collections.abc import Iterator

import msgspec

from groundwatch.events import LIVE
from groundwatch.topology.buckets import BUCKETS
from groundwatch.topology.channels import CHANNELS
from groundwatch.topology.names import (
    AUDITOR,
    COMMAND_LINE,
    DEAD,
    ERASE,
    EXTRACTED,
    GATEWAY,
    JUDGED,
    OUTCOMES,
    PREFIX,
    PROVISIONER,
    REPLAY,
    RESPONSES,
    STAGES,
)
from groundwatch.topology.specs import BucketSpec, ChannelSpec
from groundwatch.topology.streams import CONSUMERS, STREAMS, consumer

API = "$JS.API"
ACK = "$JS.ACK"

ONLY_LIVE = (GATEWAY,)
"""Users that write into the run of live traffic alone."""

NEVER_LIVE = (REPLAY,)
"""Users that write into any run but that of live traffic."""

SEES_BACKLOG: dict[str, tuple[str, ...]] = {
    GATEWAY: tuple(spec.name for spec in CONSUMERS),
    COMMAND_LINE: tuple(spec.name for spec in CONSUMERS),
    AUDITOR: tuple(spec.name for spec in CONSUMERS),
    # Live traffic goes first: `replay.throttle`.
    REPLAY: tuple(spec.name for spec in CONSUMERS),
    # What a stage holds is erased when the stage has let go of it.
    ERASE: tuple(spec.name for spec in CONSUMERS),
}
"""Consumers of others that a user asks about, by name: asking changes nothing."""

OTHERWISE: dict[str, tuple[str, ...]] = {
    # How many dead letters there are: `gateway.gauges`.
    GATEWAY: (f"{API}.STREAM.INFO.{DEAD}",),
    # A dead letter that was sent again leaves the dead letters.
    COMMAND_LINE: (f"{API}.STREAM.MSG.DELETE.{DEAD}",),
    # A run that is deleted leaves every stream.
    REPLAY: tuple(f"{API}.STREAM.PURGE.{name}" for name in (RESPONSES, EXTRACTED, JUDGED, OUTCOMES)),
    # It overwrites single messages wherever they lie, and looks for their bytes in every bucket.
    ERASE: (
        *(
            f"{API}.STREAM.MSG.DELETE.{name}"
            for name in (*(spec.name for spec in STREAMS), *(bucket.stream for bucket in BUCKETS))
        ),
        *(
            f"{API}.{call}.{bucket.stream}.{rest}"
            for bucket in BUCKETS
            if bucket.kind == "objects"
            for call, rest in (
                ("CONSUMER.CREATE", f"*.$O.{bucket.name}.>"),
                ("CONSUMER.MSG.NEXT", "*"),
                ("CONSUMER.INFO", "*"),
                ("CONSUMER.DELETE", "*"),
            )
        ),
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
    allowed = list(_provisioning() if user == PROVISIONER else _working(user))
    return Permissions(
        user=user,
        publish=tuple(dict.fromkeys(allowed)),
        publish_denied=tuple(dict.fromkeys(_denied(user))),
        subscribe=(f"{inbox_prefix(user)}.>",),
    )


def streams_of(user: str) -> tuple[str, ...]:
    """Streams that a user writes, reads or consumes: those whose state it may ask."""
    named = [channel.stream for channel in CHANNELS if user in _concerned(channel)]
    named += [spec.stream for spec in CONSUMERS if spec.service == user]
    return tuple(spec.name for spec in STREAMS if spec.name in named)


def written(channel: ChannelSpec, user: str) -> tuple[str, ...]:
    """The subjects of a channel on which this publisher may write."""
    run = LIVE if user in ONLY_LIVE else "*"
    return tuple(_filled(channel, {"run": run, "stage": stage}) for stage in _stages_addressed(channel, user))


def _working(user: str) -> Iterator[str]:
    for channel in CHANNELS:
        if user in channel.publishers:
            yield from written(channel, user)
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
            family = channel.address.partition("{")[0]
            yield f"{API}.CONSUMER.CREATE.{channel.stream}.*.{family}>"
            for call in ("CONSUMER.MSG.NEXT", "CONSUMER.INFO", "CONSUMER.DELETE"):
                yield f"{API}.{call}.{channel.stream}.*"
    for name in SEES_BACKLOG.get(user, ()):
        yield f"{API}.CONSUMER.INFO.{consumer(name).stream}.{name}"
    for bucket in BUCKETS:
        yield from _bucket(bucket, user)
    yield from OTHERWISE.get(user, ())


def _denied(user: str) -> Iterator[str]:
    """Durable consumers on streams that the user reads by consumers of its own, which have any name."""
    own = {spec.name for spec in CONSUMERS if spec.service == user}
    seen = own | set(SEES_BACKLOG.get(user, ()))
    read = {channel.stream for channel in CHANNELS if _reads(channel, user)}
    for spec in CONSUMERS:
        if spec.stream not in read:
            continue
        yield f"{API}.CONSUMER.CREATE.{spec.stream}.{spec.name}.>"
        yield f"{API}.CONSUMER.DELETE.{spec.stream}.{spec.name}"
        if spec.name not in own:
            yield f"{API}.CONSUMER.MSG.NEXT.{spec.stream}.{spec.name}"
        if spec.name not in seen:
            yield f"{API}.CONSUMER.INFO.{spec.stream}.{spec.name}"
    if user in NEVER_LIVE:
        for channel in CHANNELS:
            if user in channel.publishers:
                live = _filled(channel, {"run": LIVE, "stage": "*"})
                yield live


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
            yield f"{API}.DIRECT.GET.{bucket.stream}"
            yield f"{API}.DIRECT.GET.{bucket.stream}.$KV.{bucket.name}.>"
            # It is followed as streams are, by a consumer of the follower's own.
            yield f"{API}.CONSUMER.CREATE.{bucket.stream}.*.$KV.{bucket.name}.>"
            for call in ("CONSUMER.MSG.NEXT", "CONSUMER.INFO", "CONSUMER.DELETE"):
                yield f"{API}.{call}.{bucket.stream}.*"
    if user in bucket.writers:
        yield from subjects
        # Replacing an object removes the pieces of the one before it.
        yield f"{API}.STREAM.PURGE.{bucket.stream}"


def _provisioning() -> Iterator[str]:
    """Makes and changes what is declared; reads and writes no event, deletes nothing."""
    for name in (*(spec.name for spec in STREAMS), *(bucket.stream for bucket in BUCKETS)):
        for call in ("INFO", "CREATE", "UPDATE"):
            yield f"{API}.STREAM.{call}.{name}"
    for spec in CONSUMERS:
        yield f"{API}.CONSUMER.INFO.{spec.stream}.{spec.name}"
        yield f"{API}.CONSUMER.DURABLE.CREATE.{spec.stream}.{spec.name}"


def _reads(channel: ChannelSpec, user: str) -> bool:
    """Whether the user reads the channel from end to end, and not single messages only."""
    return user in channel.readers and user not in channel.lookups


def _concerned(channel: ChannelSpec) -> tuple[str, ...]:
    return (*channel.publishers, *channel.readers, *channel.lookups)


def _stages_addressed(channel: ChannelSpec, user: str) -> tuple[str, ...]:
    """Stages that an event of this publisher can be on its way to, as its subject names them."""
    if channel.stream == DEAD and user in STAGES:
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
