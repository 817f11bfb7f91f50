"""A recorded response as a message, whoever records it: the gateway, or captioning with an answer."""

from __future__ import annotations

import hashlib

import msgspec

from groundwatch.events import ResponseRecorded, digest
from groundwatch.runtime.bus import ENCODER, Outgoing
from groundwatch.topology import HEADER_DIGEST, HEADER_PROTOCOLS, recorded_subject

_CANONICAL = msgspec.json.Encoder(order="deterministic")


def digest_of(said: msgspec.Struct) -> str:
    """Digest of what a caller said: 32 hex digits that tell a repeat from a contradiction."""
    return hashlib.sha256(_CANONICAL.encode(said)).hexdigest()[:32]


def recorded(response: ResponseRecorded, said_digest: str = "") -> Outgoing:
    """The response on its way into the stream; `said_digest` where it is not of the response itself."""
    return Outgoing(
        subject=recorded_subject(response.run, response.key),
        payload=ENCODER.encode(response),
        message_id=digest(response.key, "recorded")[:32],
        headers={
            HEADER_PROTOCOLS: ",".join(response.protocols),
            HEADER_DIGEST: said_digest or digest_of(response),
        },
    )
