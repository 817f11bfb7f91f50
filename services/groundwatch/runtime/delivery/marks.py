"""Messages by which a stream is known again, after a server came back with an older state."""

import msgspec
from nats.js import JetStreamContext

from groundwatch.runtime.delivery.streams import LABEL, Position, own_metadata
from groundwatch.runtime.delivery.unanswered import message_from

PRECISION = 0.001
"""Seconds by which the time of one message may differ: it is rounded where it is written down."""


class Mark(msgspec.Struct, frozen=True, order=True):
    """A message of a stream: its sequence, and when the server stored it; 0 where that is not known."""

    sequence: int
    time: float = 0.0


async def mark_at(js: JetStreamContext, stream: str, sequence: int) -> Mark:
    """The message of this sequence. Raises what NATS raises."""
    found = await message_from(js, stream, sequence) if sequence else None
    return Mark(sequence, found[1] if found is not None and found[0] == sequence else 0.0)


async def is_same(js: JetStreamContext, stream: str, mark: Mark) -> bool | None:
    """Whether the stream has this message at its sequence; None where it has none there, or the mark has no
    time. Raises what NATS raises."""
    there = await mark_at(js, stream, mark.sequence)
    return abs(there.time - mark.time) <= PRECISION if there.time and mark.time else None


async def has_gone_back(js: JetStreamContext, stream: str, at: Position, mark: Mark) -> bool | None:
    """Whether the stream, which had this message once, does not come so far now or has another one there.
    None where that message has left it. Raises what NATS raises."""
    if mark.sequence > at.last:
        return True
    same = await is_same(js, stream, mark) if mark.sequence >= at.first else None
    return not same if same is not None else None


async def label(js: JetStreamContext, stream: str, created: int) -> None:
    """Write down when the stream was created, so that a restored one says so too. Raises what NATS raises."""
    config = (await js.stream_info(stream)).config
    await js.update_stream(config.evolve(metadata=own_metadata(config) | {LABEL: str(created)}))
