"""A recorded response as a message, whoever records it: the gateway, or captioning with an answer."""

import hashlib

import msgspec

from groundwatch.events import ResponseRecorded
from groundwatch.records import Limits, Refusal, read_record
from groundwatch.runtime.delivery.bus import ENCODER, Outgoing
from groundwatch.runtime.settings import IntakeSettings
from groundwatch.topology import HEADER_DIGEST, HEADER_PROTOCOLS, recorded_subject

_CANONICAL = msgspec.json.Encoder(order="deterministic")


def limits(settings: IntakeSettings) -> Limits:
    """The gateway's limits, so that a response meets the same ones on every way in."""
    return Limits(
        line=settings.max_line,
        answer=settings.max_answer,
        prompt=settings.max_prompt,
        images=settings.max_images,
        reference=settings.max_reference_items,
    )


def digest_of(said: msgspec.Struct) -> str:
    """Digest of what a caller said: 32 hex digits that tell a repeat from a contradiction."""
    return hashlib.sha256(_CANONICAL.encode(said)).hexdigest()[:32]


def recorded(response: ResponseRecorded, said_digest: str = "") -> Outgoing:
    """The response on its way into the stream; `said_digest` where it is not of the response itself."""
    return Outgoing(
        subject=recorded_subject(response.run, response.key),
        payload=ENCODER.encode(response),
        message_id=(response.key, "recorded"),
        headers={
            HEADER_PROTOCOLS: ",".join(response.protocols),
            HEADER_DIGEST: said_digest or digest_of(response),
        },
    )


def check_recorded(response: ResponseRecorded, bounds: Limits) -> Refusal | None:
    """What is wrong with a response that came as an event: the gateway's own rules, and images by digest."""
    if response.unanswered is not None:
        # A model under test that said nothing: only there an answer may be missing.
        response = msgspec.structs.replace(response, answer=response.answer or "-")
    read = read_record(ENCODER.encode(response), msgspec.structs.replace(bounds, digests=True))
    return read if isinstance(read, Refusal) else None
