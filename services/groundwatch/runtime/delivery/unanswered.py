"""What consumers have not acknowledged yet."""

import msgspec
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerInfo

from groundwatch.errors import TransientError
from groundwatch.runtime.delivery.direct import next_of_leader
from groundwatch.topology import partitions

LISTED = 256
"""Consumers that the server tells of at once, at the most."""


class Unanswered(msgspec.Struct, frozen=True, kw_only=True):
    """The oldest message of a stream that a consumer has not acknowledged, or one before that."""

    stream: str
    consumer: str
    sequence: int
    time: float


async def unanswered_of(js: JetStreamContext, stream: str) -> list[Unanswered]:
    """Of each durable consumer of the stream that has anything left to do.

    Raises what NATS raises, and `TransientError` where not every consumer is known of.
    """
    found: list[Unanswered] = []
    for info in await consumers_of(js, stream):
        looked = [await next_of_leader(js, stream, done_up_to(info) + 1, one) for one in filters_of(info)]
        if first := min(filter(None, looked), key=lambda read: read.sequence, default=None):
            found.append(
                Unanswered(stream=stream, consumer=info.name or "", sequence=first.sequence, time=first.time)
            )
    return found


async def consumers_of(js: JetStreamContext, stream: str) -> list[ConsumerInfo]:
    """All that acknowledge: those of readers do not. Raises `TransientError` where one does not answer."""
    found: list[ConsumerInfo] = []
    at = total = 0
    while at <= total:
        # The client library leaves out which consumers of a cluster did not answer.
        answer = await js._api_request(f"$JS.API.CONSUMER.LIST.{stream}", b'{"offset":%d}' % at)
        found += map(ConsumerInfo.from_response, answer.get("consumers") or ())
        at, total = at + LISTED, answer.get("total", 0)
        if silent := [*(answer.get("missing") or ()), *(answer.get("offline") or ())]:
            raise TransientError(f"consumers of {stream} do not answer: {', '.join(sorted(silent))}")
    names = {info.name for info in found}
    if absent := [one.name for one in partitions.consumers_of(stream) if one.name not in names]:
        raise TransientError(f"{stream} has no consumer {', '.join(absent)}: run groundwatch admin provision")
    return [info for info in found if info.config.ack_policy != AckPolicy.NONE]


def filters_of(info: ConsumerInfo) -> list[str]:
    return info.config.filter_subjects or [info.config.filter_subject or ">"]


def done_up_to(info: ConsumerInfo) -> int:
    """Up to which sequence the consumer is done with everything.

    How many wait for it is not asked: of a large stream the server only estimates that.
    """
    floor = info.ack_floor.stream_seq if info.ack_floor else 0
    if not info.num_ack_pending and info.delivered:
        floor = max(floor, info.delivered.stream_seq)
    return floor
