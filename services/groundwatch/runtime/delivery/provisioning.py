"""Creating streams and consumers as `topology` declares them, and changing them without losing data."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Literal

import msgspec
import nats.js.errors
from nats.js import JetStreamContext
from nats.js.api import (
    AckPolicy,
    ConsumerConfig,
    ConsumerInfo,
    DeliverPolicy,
    DiscardPolicy,
    RetentionPolicy,
    StorageType,
    StreamConfig,
    StreamInfo,
)

from groundwatch.errors import ProvisionRefused
from groundwatch.runtime.delivery.streams import label, own_metadata, position_of
from groundwatch.runtime.settings import CacheSettings
from groundwatch.topology import (
    ARCHIVED,
    ASKED,
    BUCKETS,
    COPIED,
    RESPONSES,
    STREAMS,
    BucketSpec,
    ConsumerSpec,
    StreamSpec,
)
from groundwatch.topology.partitions import consumers, kind_of, streams, streams_of_kind
from groundwatch.topology.rights import streams_of

CACHE = CacheSettings()

PARTITIONS = "groundwatch-partitions"
"""Metadata of the stream of responses: how many partitions there are."""

FORMAT, KNOWN_FORMAT = "groundwatch-format", 1
"""The same: what streams and archive are written in. A version that knows a lower number would not find what
lies elsewhere by then: its provisioning and its gateways refuse, and nobody else records."""

NO_ROOM = (10023, 10047)
"""What a server says whose store, or disk, is smaller than the limits of its streams together."""

Change = Literal["created", "updated", "unchanged"]


class Provisioned(msgspec.Struct, frozen=True):
    """What became of one stream, consumer or bucket."""

    kind: str
    name: str
    change: Change


def reserved_bytes(cache: CacheSettings = CACHE) -> int:
    """What a server sets aside for streams and buckets that have a limit, from the start."""
    buckets = sum(spec.max_bytes or cache.max_bytes for spec in BUCKETS if spec.max_bytes or spec.drop_old)
    return buckets + sum(spec.max_bytes for spec in STREAMS)


async def provision(
    js: JetStreamContext,
    *,
    replicas: int = 1,
    partitions: int = 1,
    cache: CacheSettings = CACHE,
    held: Mapping[str, int] = MappingProxyType({}),
    archived: bool = False,
) -> list[Provisioned]:
    """Make the server hold what `topology` declares. Safe to repeat and while services work.

    With an archive (`archived`) streams that it keeps drop nothing for its age: what is archived leaves them.
    The number of `partitions` stays once anything is recorded. `held` says of stages how many messages their
    processes may hold together, in each partition, where that is not as declared.

    Everything is checked before anything is changed. Raises `ProvisionRefused` when a change would drop
    recorded events or skip waiting ones.
    """
    there = await partitions_there(js)
    if there not in (0, partitions) and await _is_recorded(js, there):
        raise ProvisionRefused(
            f"there are {there} partitions with what is recorded, and nats.partitions is {partitions}: their "
            "number is chosen before anything is recorded"
        )
    existing = {}
    wanted_streams = [
        msgspec.structs.replace(spec, max_age=0.0) if archived and kind_of(spec.name) in ARCHIVED else spec
        for spec in streams(partitions)
    ]
    wanted_consumers = list(consumers(partitions))
    for spec in wanted_streams:
        found = existing[spec.name] = await _config(js.stream_info(spec.name))
        if found is not None:
            await _refuse_loss(js, spec, found)
    for consumer in wanted_consumers:
        await _refuse_skipping(js, consumer)
    done = [
        await _put_stream(js, "stream", spec.name, wanted, existing[spec.name])
        for spec in wanted_streams
        for wanted in [stream_config(spec, replicas, max_payload=js._nc.max_payload)]
    ]
    for consumer in wanted_consumers:
        most = held.get(consumer.durable, consumer.max_ack_pending)
        done.append(
            await _put_consumer(js, msgspec.structs.replace(consumer, max_ack_pending=most), replicas)
        )
    done += [await _put_bucket(js, spec, replicas, cache) for spec in BUCKETS]
    config = (await js.stream_info(RESPONSES)).config
    metadata = own_metadata(config) | {PARTITIONS: str(partitions), FORMAT: str(KNOWN_FORMAT)}
    if metadata != own_metadata(config):
        await js.update_stream(config.evolve(metadata=metadata))
    return done


async def partitions_there(js: JetStreamContext) -> int:
    """How many partitions the streams were made for; 0 where there are none. Raises `ProvisionRefused` for
    those of a newer version, in a format that this one does not know."""
    found = await _config(js.stream_info(RESPONSES))
    if found is None:
        return 0
    told = found.metadata or {}
    if (written := int(told.get(FORMAT, "1"))) > KNOWN_FORMAT:
        raise ProvisionRefused(
            f"the streams are of a newer version of groundwatch (format {written}, and this one knows "
            f"{KNOWN_FORMAT}): go on with that version (docs/upgrade.md)"
        )
    return int(told.get(PARTITIONS, "1"))


async def _is_recorded(js: JetStreamContext, partitions: int) -> bool:
    """Whether anything was ever recorded, or asked."""
    for name in [name for kind in (RESPONSES, ASKED) for name in streams_of_kind(kind, partitions)]:
        with contextlib.suppress(nats.js.errors.NotFoundError):
            if (await js.stream_info(name)).state.last_seq:
                return True
    return False


async def bind_receiver(js: JetStreamContext, specs: Sequence[ConsumerSpec], replicas: int) -> None:
    """Make the consumers of a receiver, by partition: one that is new begins with what comes from now on. One
    that is there goes on where it was, whatever waits for it by then."""
    for spec in specs:
        if (found := await _config(js.consumer_info(spec.stream, spec.name))) is not None:
            if found.max_ack_pending != spec.max_ack_pending:
                # Of another version: the order in which a receiver is told hangs on it.
                bounded = found.evolve(max_ack_pending=spec.max_ack_pending, metadata=None)
                await js.add_consumer(spec.stream, bounded)
            continue
        config = consumer_config(spec, replicas).evolve(
            name=spec.name,
            deliver_policy=DeliverPolicy.NEW,
            filter_subjects=None,
            filter_subject=spec.filters[0],
        )
        await js.add_consumer(spec.stream, config)


async def missing(js: JetStreamContext, user: str = "", partitions: int = 1) -> list[str]:
    """Names of declared streams, consumers and buckets that the server lacks: all, or those of one user."""
    kinds = streams_of(user) if user else [spec.name for spec in STREAMS]
    names = [name for kind in kinds for name in streams_of_kind(kind, partitions)]
    absent = [name for name in names if await _config(js.stream_info(name)) is None]
    for spec in consumers(partitions):
        if user in ("", spec.service) and await _config(js.consumer_info(spec.stream, spec.name)) is None:
            absent.append(spec.name)
    for bucket in BUCKETS:
        if user in ("", *bucket.writers) and await _config(js.stream_info(bucket.stream)) is None:
            absent.append(bucket.name)
    return absent


def stream_config(spec: StreamSpec, replicas: int, *, max_payload: int) -> StreamConfig:
    return StreamConfig(
        name=spec.name,
        description=spec.description,
        subjects=list(spec.subjects),
        retention=RetentionPolicy.WORK_QUEUE if spec.work_queue else RetentionPolicy.LIMITS,
        storage=StorageType.FILE,
        # Writers are pushed back: what they were told is safe is never forgotten.
        discard=DiscardPolicy.NEW,
        max_age=spec.max_age or None,
        max_bytes=spec.max_bytes or -1,
        max_msgs=-1,
        max_msgs_per_subject=spec.max_per_subject or -1,
        discard_new_per_subject=spec.refuse_more,
        max_msg_size=max_payload - spec.headroom if spec.headroom else -1,
        duplicate_window=spec.duplicate_window,
        num_replicas=replicas,
        allow_direct=True,
    )


def consumer_config(spec: ConsumerSpec, replicas: int) -> ConsumerConfig:
    return ConsumerConfig(
        durable_name=spec.name,
        description=spec.description,
        filter_subjects=list(spec.filters),
        ack_policy=AckPolicy.EXPLICIT,
        deliver_policy=DeliverPolicy.ALL,
        ack_wait=spec.ack_wait,
        max_deliver=-1,
        max_ack_pending=spec.max_ack_pending,
        num_replicas=replicas,
    )


async def _config(asked: Awaitable[StreamInfo | ConsumerInfo]) -> Any:
    """Of the stream or consumer that was asked about; None where there is none."""
    try:
        return (await asked).config
    except nats.js.errors.NotFoundError:
        return None


async def _refuse_loss(js: JetStreamContext, spec: StreamSpec, found: StreamConfig) -> None:
    """Shrinking a limit, or no longer keeping a subject, drops what is there."""
    messages = (await js.stream_info(spec.name)).state.messages
    if messages == 0:
        return
    for field, wanted, current in (
        ("max_age", spec.max_age, found.max_age),
        ("max_bytes", spec.max_bytes, found.max_bytes),
        ("max_msgs_per_subject", spec.max_per_subject, found.max_msgs_per_subject),
    ):
        limit, old = wanted or 0, max(current or 0, 0)
        if limit and (old == 0 or limit < old):
            if field == "max_age" and not old and await _oldest(js, spec.name) > time.time() - limit:
                # The archive was switched off: by this limit nothing goes that is there.
                continue
            raise ProvisionRefused(
                f"stream {spec.name}: {field} would shrink from {old or 'no limit'} to {limit} and drop "
                f"recorded events ({messages} held); purge or export them first"
            )
    gone = set(found.subjects or ()) - set(spec.subjects)
    if gone:
        raise ProvisionRefused(f"stream {spec.name}: would no longer keep {', '.join(sorted(gone))}")
    if found.retention != (RetentionPolicy.WORK_QUEUE if spec.work_queue else RetentionPolicy.LIMITS):
        raise ProvisionRefused(
            f"stream {spec.name}: retention cannot change while it holds {messages} events"
        )


async def _oldest(js: JetStreamContext, stream: str) -> float:
    """When the oldest message of a stream was stored; the client library leaves that out."""
    answer = await js._nc.request(f"$JS.API.STREAM.INFO.{stream}", timeout=5.0)
    return datetime.fromisoformat(msgspec.json.decode(answer.data)["state"]["first_ts"]).timestamp()


async def _refuse_skipping(js: JetStreamContext, spec: ConsumerSpec) -> None:
    found = await _config(js.consumer_info(spec.stream, spec.name))
    if found is None:
        return
    filters = set(found.filter_subjects or ([found.filter_subject] if found.filter_subject else []))
    if filters != set(spec.filters):
        raise ProvisionRefused(
            f"consumer {spec.name}: its filter would change from {sorted(filters)} to {sorted(spec.filters)} "
            "and skip waiting events; drain it, delete it, then provision again"
        )


NAME_TAKEN = 10058
"""JetStream's code for a stream that is there with another configuration."""

FEWER_REPLICAS = 10126
"""The same for a consumer on more servers than its stream."""

GROWING_SECONDS = 60.0
"""How long a stream may take to be on more servers."""

_COMPARED = (
    "description",
    "subjects",
    "discard",
    "max_age",
    "max_bytes",
    "max_msgs_per_subject",
    "max_msg_size",
    "duplicate_window",
    "num_replicas",
    "allow_direct",
)
"""Keys of a stream that can be changed while it works."""


async def _put_stream(
    js: JetStreamContext, kind: str, name: str, wanted: StreamConfig, found: StreamConfig | None
) -> Provisioned:
    if found is not None:
        wanted = wanted.evolve(metadata=own_metadata(found) or None)
        if _same(found, wanted, _COMPARED):
            return Provisioned(kind, name, "unchanged")
    try:
        await (js.add_stream if found is None else js.update_stream)(wanted)
        if found is None and kind_of(name) in COPIED:
            await label(js, name, (await position_of(js, name)).made)
    except nats.js.errors.APIError as error:
        if error.err_code in NO_ROOM:
            raise ProvisionRefused(
                f"NATS has no room for {kind} {name}, which may take {(wanted.max_bytes or 0) / 1e9:.1f} GB "
                f"({error.description}): give JetStream a larger store, or this a lower limit"
            ) from error
        if found is not None or error.err_code != NAME_TAKEN:
            raise
        # By somebody who provisions at this moment, and labels it.
    return Provisioned(kind, name, "created" if found is None else "updated")


async def _put_consumer(js: JetStreamContext, spec: ConsumerSpec, replicas: int) -> Provisioned:
    found = await _config(js.consumer_info(spec.stream, spec.name))
    wanted = consumer_config(spec, replicas)
    if found and _same(
        found, wanted, ("description", "ack_wait", "max_ack_pending", "max_deliver", "num_replicas")
    ):
        return Provisioned("consumer", spec.name, "unchanged")
    deadline = time.monotonic() + GROWING_SECONDS
    while True:
        try:
            await js.add_consumer(spec.stream, wanted)
            return Provisioned("consumer", spec.name, "created" if found is None else "updated")
        except nats.js.errors.BadRequestError as error:
            if error.err_code != FEWER_REPLICAS or time.monotonic() >= deadline:
                raise
            # The stream was given more a moment ago.
            await asyncio.sleep(0.1)


async def _put_bucket(
    js: JetStreamContext, spec: BucketSpec, replicas: int, cache: CacheSettings
) -> Provisioned:
    found = await _config(js.stream_info(spec.stream))
    if spec.drop_old or spec.max_bytes:
        # The client library's own have no bound, and refuse when they are full.
        max_age = spec.max_age or (cache.ttl if spec.drop_old else 0.0)
        wanted = StreamConfig(
            name=spec.stream,
            description=spec.description,
            subjects=[f"$KV.{spec.name}.>"],
            storage=StorageType.FILE,
            discard=DiscardPolicy.OLD if spec.drop_old else DiscardPolicy.NEW,
            max_age=max_age or None,
            max_bytes=spec.max_bytes or cache.max_bytes,
            max_msgs=-1,
            max_msgs_per_subject=spec.history,
            duplicate_window=min(120.0, max_age or 120.0),
            num_replicas=replicas,
            allow_direct=True,
            allow_rollup_hdrs=True,
        )
        return await _put_stream(js, "bucket", spec.name, wanted, found)
    kind = "images" if spec.kind == "objects" else "bucket"
    if found is not None:
        if found.num_replicas == replicas:
            return Provisioned(kind, spec.name, "unchanged")
        await js.update_stream(found.evolve(num_replicas=replicas, metadata=own_metadata(found) or None))
        return Provisioned(kind, spec.name, "updated")
    if spec.kind == "objects":
        await js.create_object_store(spec.name, description=spec.description, replicas=replicas)
    else:
        await js.create_key_value(bucket=spec.name, description=spec.description, replicas=replicas)
    return Provisioned(kind, spec.name, "created")


def _same(found: object, wanted: object, keys: Iterable[str]) -> bool:
    return all(_plain(getattr(found, key)) == _plain(getattr(wanted, key)) for key in keys)


def _plain(value: object) -> object:
    """The server leaves out what is zero or without limit."""
    return None if value in (0, -1, 0.0, [], "") else value
