"""Responses with all of their events, as stages left those of a few of them before.

A response that is made so says what one of the others said, under an id of its own. Its events are written
by the product's own encoders, and a client of its own acknowledges them in the stages' place.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing.process import BaseProcess

import msgspec

from groundwatch.events import ClaimsExtracted, ClaimsVerified, ResponseRecorded, ResponseScored
from groundwatch.runtime.delivery.bus import ENCODER
from groundwatch.runtime.delivery.outcomes import digest_of
from groundwatch.topology import (
    CONSUMERS,
    HEADER_DIGEST,
    HEADER_EXPECT_SEQUENCE,
    HEADER_MESSAGE_ID,
)
from wire.client import PlainClient

TOGETHER = 500
"""Responses that are published before the server is waited for."""

STAGES = ("extraction", "verification", "scoring")
"""Through which these responses would have gone."""

Headers = Mapping[str, str]
Message = tuple[str, Headers, bytes]


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """The four events of a response, with the headers and, for `{}` in place of the key, the subjects that
    they were published with."""

    recorded: ResponseRecorded
    extracted: ClaimsExtracted
    verified: ClaimsVerified
    outcome: ResponseScored
    subjects: tuple[str, str, str, str]
    headers: tuple[Headers, Headers, Headers, Headers]

    def again(self, name: str) -> Iterator[Message]:
        """The same four of another response, which is recorded now."""
        now = time.time()
        said = msgspec.structs.replace(self.recorded, id=name, recorded_at=0.0)
        recorded = msgspec.structs.replace(said, recorded_at=now)
        extracted = msgspec.structs.replace(self.extracted, response=recorded)
        verified = msgspec.structs.replace(self.verified, extracted=extracted)
        outcome = msgspec.structs.replace(self.outcome, id=name, recorded_at=now, scored_at=now)
        key = recorded.key
        own: Sequence[Headers] = ({HEADER_DIGEST: digest_of(said)}, {}, {}, {})
        events = (recorded, extracted, verified, outcome)
        for number, (subject, headers, more, event) in enumerate(
            zip(self.subjects, self.headers, own, events, strict=True)
        ):
            first = {HEADER_MESSAGE_ID: f"{key}{number}", HEADER_EXPECT_SEQUENCE: "0"}
            yield subject.format(key), {**headers, **more, **first}, ENCODER.encode(event)


def publish(url: str, examples: Sequence[Judged], count: int) -> None:
    """Publish so many responses, each as one of the examples."""
    with PlainClient(url) as client:
        for start in range(0, count, TOGETHER):
            client.publish(
                message
                for number in range(start, min(start + TOGETHER, count))
                for message in examples[number % len(examples)].again(f"made-{number}")
            )


def acknowledge(url: str, stream: str, consumer: str, count: int) -> None:
    with PlainClient(url) as client:
        client.acknowledge(stream, consumer, count)


def processes(url: str, examples: Sequence[Judged], count: int) -> list[BaseProcess]:
    """One that publishes so many, and for each stage one that acknowledges what it would have taken."""
    context = multiprocessing.get_context("spawn")
    made: list[BaseProcess] = [context.Process(target=publish, args=(url, examples, count), daemon=True)]
    made += [
        context.Process(target=acknowledge, args=(url, spec.stream, spec.name, count), daemon=True)
        for spec in CONSUMERS
        if spec.name in STAGES
    ]
    return made
