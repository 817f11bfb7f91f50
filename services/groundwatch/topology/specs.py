"""What a stream, a durable consumer and a channel are declared with."""

from typing import Literal

import msgspec

from groundwatch.events import Event
from groundwatch.topology.names import DAY, HEADER_EXPECT_SEQUENCE, HEADER_MESSAGE_ID


class StreamSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A stream as it must be. Ages in seconds, sizes in bytes; 0 means without limit.

    `refuse_when_full` refuses new events instead of dropping old ones: the source of truth must push
    back on its writers, never forget what they were told is safe.
    """

    name: str
    subjects: tuple[str, ...]
    description: str
    max_age: float = 30 * DAY
    max_bytes: int = 0
    max_per_subject: int = 0
    duplicate_window: float = 600.0
    work_queue: bool = False
    refuse_when_full: bool = True


class ConsumerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A durable pull consumer as it must be. `ack_wait` in seconds: so long after a process was killed, what
    it held is given to another. Stages say every third of it that they work.

    The server redelivers without end; giving up is the runtime's decision, since only it can write the
    dead letter. `max_ack_pending` bounds what all replicas of a stage hold together.
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


class ChannelSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A family of subjects: what is on it, and who puts it there.

    `address` has the variable tokens in braces. `events` empty means the bytes of another channel's event
    as they came, decodable or not. `readers` look without a durable consumer; those with one are in
    `CONSUMERS`. `lookups` ask for single messages by their subjects: a reader that is among them does
    nothing else. Every message carries `headers`, some carry `optional_headers`.
    """

    name: str
    address: str
    stream: str
    description: str
    publishers: tuple[str, ...]
    readers: tuple[str, ...] = ()
    lookups: tuple[str, ...] = ()
    events: tuple[type[Event], ...] = ()
    headers: tuple[str, ...] = (HEADER_MESSAGE_ID, HEADER_EXPECT_SEQUENCE)
    optional_headers: tuple[str, ...] = ()


class BucketSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A bucket of NATS' object store or key-value store, and who may use it.

    `writers` may read as well, and replace or erase what others wrote; `readers` may also watch.
    `drop_old`: what is oldest makes room for what is new, within `max_age` seconds and `max_bytes`; 0: what
    settings say for the cache. Only for what can be had again, or is of no use later.
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
