"""CloudEvents 1.0 over HTTP, as KServe's logger sends them: one in the headers, one as JSON, or many."""

import base64
import binascii
from collections.abc import Mapping
from typing import Literal
from urllib.parse import unquote

import msgspec

from groundwatch.counting import count_values
from groundwatch.errors import UNDECODED
from groundwatch.gateway.refusals import Refused

STRUCTURED = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"
LONGEST_ID = 256
LONGEST_TAG = 256
MANY = 1_000
MOST_VALUES = 1_000_000

Side = Literal["request", "response"]
OTHER = {"request": "response", "response": "request"}
SIDES: dict[str, Side] = {
    "org.kubeflow.serving.inference.request": "request",
    "org.kubeflow.serving.inference.response": "response",
}
TAGS = {
    "inferenceservicename": "inference_service",
    "namespace": "namespace",
    "component": "component",
    "endpoint": "endpoint",
}
"""KServe's attributes of an event, and the tags that a response has of them."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """A request, or a response to one, that was logged under `id`. `body` is as it travelled."""

    id: str
    side: Side
    body: bytes
    tags: dict[str, str] = {}


class _Structured(msgspec.Struct):
    specversion: str = ""
    id: str = ""
    type: str = ""
    datacontenttype: str = "application/json"
    data: msgspec.Raw = msgspec.Raw(b"")
    data_base64: str = ""
    inferenceservicename: str = ""
    namespace: str = ""
    component: str = ""
    endpoint: str = ""


_ONE = msgspec.json.Decoder(_Structured)
_RAW = msgspec.json.Decoder(list[msgspec.Raw])


def read_events(media_type: str, headers: Mapping[str, str], body: bytes) -> list[Event | Refused]:
    """The events of a request, each read or refused on its own. Raises `Refused` where none can be told."""
    if media_type == BATCH:
        if count_values(body, MOST_VALUES) > MOST_VALUES:
            raise Refused(reason="too_large", message=f"more than {MOST_VALUES:,} values in one batch")
        try:
            several = _RAW.decode(body)
        except UNDECODED as error:
            raise Refused(reason="malformed", message=f"not a JSON array of events: {error}") from error
        if len(several) > MANY:
            raise Refused(
                reason="too_large", message=f"{len(several)} events; at most {MANY} are taken at once"
            )
        return [_structured(bytes(one)) for one in several]
    if media_type == STRUCTURED:
        return [_structured(body)]
    return [_binary(headers, body)]


def _binary(headers: Mapping[str, str], body: bytes) -> Event | Refused:
    """Attributes stand in headers, percent-encoded where they are not ASCII."""
    said = {name: unquote(headers.get(f"ce-{name}", "")) for name in ("specversion", "id", "type", *TAGS)}
    return _event(said, body)


def _structured(text: bytes) -> Event | Refused:
    try:
        event = _ONE.decode(text)
        body = base64.b64decode(event.data_base64, validate=True) if event.data_base64 else bytes(event.data)
        if body[:1] == b'"':
            # Text that is no JSON, such as a stream of events, stands in a string.
            body = msgspec.json.decode(body, type=str).encode()
    except (*UNDECODED, binascii.Error) as error:
        return Refused(reason="malformed", message=f"not an event of CloudEvents 1.0: {error}")
    return _event({name: getattr(event, name) for name in ("specversion", "id", "type", *TAGS)}, body)


def _event(said: Mapping[str, str], body: bytes) -> Event | Refused:
    name = said["id"]
    side = SIDES.get(said["type"])
    if not name or len(name) > LONGEST_ID:
        message = f"has more than {LONGEST_ID} characters" if name else "is missing: send CloudEvents 1.0"
        return Refused(reason="invalid", field="ce-id", message=message)
    try:
        name.encode()
    except UnicodeEncodeError:
        return Refused(
            reason="malformed", field="ce-id", message="has a lone surrogate, which is no character"
        )
    if said["specversion"] != "1.0":
        return Refused(reason="invalid", id=name, field="ce-specversion", message="is not 1.0")
    if side is None:
        wanted = " or ".join(SIDES)
        return Refused(reason="invalid", id=name, field="ce-type", message=f"is neither {wanted}")
    tags = {
        tag: said[key][:LONGEST_TAG] for key, tag in TAGS.items() if said[key] and said[key].isprintable()
    }
    return Event(id=name, side=side, body=body, tags=tags)
