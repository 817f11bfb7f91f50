"""CloudEvents as KServe's logger sends them: requests and responses apart, joined when both are there."""

import base64
import binascii
import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal
from urllib.parse import unquote

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from groundwatch.conversations.conversation import Conversation, Unreadable, json_of, text_of
from groundwatch.conversations.openai import read_exchange
from groundwatch.counting import count_values
from groundwatch.errors import UNDECODED, TransientError
from groundwatch.gateway.auth import SEND, Caller
from groundwatch.gateway.core import GatewayCore
from groundwatch.gateway.http.requests import Route, body_of, caller_of, check_encoding, json, media_type
from groundwatch.gateway.intake.logged import INCOMPLETE
from groundwatch.gateway.receivers.joining import Family, Half, Head, Joiner
from groundwatch.gateway.refusals import Recorded, Refused, bounded
from groundwatch.keys import response_key
from groundwatch.runtime.delivery.bus import Stored
from groundwatch.runtime.delivery.streams import FAULTS

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


def read_events(media_type: str, headers: Mapping[str, str], body: bytes) -> Sequence[Callable[[], Event]]:
    """What reads each event of a request, which may raise `Refused`, as this does for no batch."""
    if media_type == BATCH:
        if count_values(body, MOST_VALUES) > MOST_VALUES:
            raise Refused("too_large", f"more than {MOST_VALUES:,} values in one batch")
        try:
            several = _RAW.decode(body)
        except UNDECODED as error:
            raise Refused("malformed", f"not a JSON array of events: {error}") from error
        if len(several) > MANY:
            raise Refused("too_large", f"{len(several)} events; at most {MANY} are taken at once")
        return [partial(_structured, bytes(event)) for event in several]
    if media_type == STRUCTURED:
        return [partial(_structured, body)]
    return [partial(_binary, headers, body)]


def _binary(headers: Mapping[str, str], body: bytes) -> Event:
    """Attributes stand in headers, percent-encoded where they are not ASCII."""
    attributes = {
        name: unquote(headers.get(f"ce-{name}", "")) for name in ("specversion", "id", "type", *TAGS)
    }
    return _event(attributes, body)


def _structured(text: bytes) -> Event:
    try:
        event = _ONE.decode(text)
        body = base64.b64decode(event.data_base64, validate=True) if event.data_base64 else bytes(event.data)
        if body[:1] == b'"':
            # Text that is no JSON, such as a stream of events, stands in a string.
            body = msgspec.json.decode(body, type=str).encode()
    except (*UNDECODED, binascii.Error) as error:
        raise Refused("malformed", f"not an event of CloudEvents 1.0: {error}") from error
    return _event({name: getattr(event, name) for name in ("specversion", "id", "type", *TAGS)}, body)


def _event(attributes: Mapping[str, str], body: bytes) -> Event:
    name = attributes["id"]
    side = SIDES.get(attributes["type"])
    if not name or len(name) > LONGEST_ID:
        message = f"has more than {LONGEST_ID} characters" if name else "is missing: send CloudEvents 1.0"
        raise Refused("invalid", message, field="ce-id")
    try:
        name.encode()
    except UnicodeEncodeError:
        message = "has a lone surrogate, which is no character"
        raise Refused("malformed", message, field="ce-id") from None
    if attributes["specversion"] != "1.0":
        raise Refused("invalid", "is not 1.0", id=name, field="ce-specversion")
    if side is None:
        raise Refused("invalid", f"is neither {' or '.join(SIDES)}", id=name, field="ce-type")
    tags = {
        tag: attributes[key][:LONGEST_TAG]
        for key, tag in TAGS.items()
        if attributes[key] and attributes[key].isprintable()
    }
    return Event(id=name, side=side, body=body, tags=tags)


_IMAGE = re.compile(rb'"data:[^"\\]{4096,}+"')
_PLACEHOLDER = b'"groundwatch:image_too_large"'


class CloudEventRoutes:
    """Takes requests and responses; says which of them never had the other."""

    def __init__(self, core: GatewayCore, joiner: Joiner) -> None:
        self._core = core
        self._joiner = joiner
        self._wait = core.settings.cloud_events.wait
        self._incomplete = dict.fromkeys(OTHER, 0)
        self._family = joiner.add(
            Family(
                source="kserve",
                whole=_is_whole,
                read=_read,
                record=self._record,
                wait=0.0,
                timeout=self._wait,
                crowded=self._wait,
            )
        )
        core.telling.append(self._notes)

    def routes(self) -> list[Route]:
        return [Route("/v1/cloudevents", self.post_events, SEND, methods=["POST"])]

    async def post_events(self, request: Request) -> Response:
        """Take one event, or a batch. 200 and not 202, which KServe's logger takes for an error."""
        check_encoding(request)
        kind, caller = media_type(request), caller_of(request)
        try:
            with self._counting():
                body = await body_of(request, self._core.settings.max_whole)
                events = read_events(kind, request.headers, body)
        except Refused as error:
            await self._core.batch_refused("kserve", error, caller)
            raise
        tenant = request.query_params.get("tenant", "")
        results: list[Any] = []
        for read in events:
            try:
                with self._counting():
                    event = read()
                    result = await self._take(event, caller, tenant)
            except Refused as error:
                result = error.but()
            if isinstance(result, Refused) and kind != BATCH:
                raise result.but()
            results.append(result.told() | {"status": "refused"} if isinstance(result, Refused) else result)
        return json(results if kind == BATCH else results[0])

    @contextlib.contextmanager
    def _counting(self) -> Iterator[None]:
        """Counts the refusal that the block raises."""
        try:
            with self._core.intake.counting():
                yield
        except Refused:
            self._core.logged.count("kserve", "refused")
            raise

    async def _take(self, event: Event, caller: Caller, tenant: str) -> Recorded | Refused | dict[str, str]:
        """Keep a half, and record the call if the other one is there. Raises `Refused` for a half that is not
        kept; what is returned has been counted."""
        owner = caller.owner(tenant, event.id) or "default"
        half = Half(
            key=response_key(owner, event.id),
            part=event.side,
            head=Head(owner, event.id, event.tags),
            holds=(event.side,),
            body=event.body,
        )
        if len(half.body) > self._core.bounds.line:
            half = _without_images(half)
        try:
            stored = await self._joiner.keep(self._family, half)
        except Refused as error:
            if error.reason != "too_large":
                raise
            # More than a message of NATS holds: the rest is recorded, and says what it lacks.
            half = _without_images(half)
            stored = await self._joiner.keep(self._family, half)
        try:
            async with bounded():
                if stored is Stored.EXISTED and await self._is_another(half):
                    message = f"another {event.side} was logged under the id '{event.id}'"
                    raise Refused("conflict", message, id=event.id, field="ce-id")
                ended = await self._joiner.join(self._family, half.key, OTHER)
        except (TransientError, *FAULTS):
            ended = None
        # They are stored: whoever sent them need not do it again. The other half has not come yet, or both
        # cannot be recorded now.
        if ended is None or (isinstance(ended, Refused) and ended.passing):
            return {"id": event.id, "status": "waiting"}
        return ended

    async def _is_another(self, half: Half) -> bool:
        there = await self._joiner.there(self._family, half.key, half.part)
        return there is not None and there != half.body

    async def _record(self, call: Conversation | Unreadable, caller: Caller, name: str) -> Recorded | Refused:
        ended = await self._core.logged.record_or_decline(call, caller, "kserve", name=name)
        lost = isinstance(ended, Refused) and not ended.passing
        if lost and isinstance(call, Unreadable) and call.reason in INCOMPLETE:
            self._incomplete[OTHER[call.reason.removeprefix("no_")]] += 1
        return ended

    def _notes(self) -> list[str]:
        return [
            f"{count:,} {side}s that KServe logged had no {OTHER[side]} within {self._wait:g} s: its logger "
            "must have the mode 'all'; what was answered with an error has no response"
            for side, count in self._incomplete.items()
            if count
        ]


def _without_images(half: Half) -> Half:
    """With a placeholder for each image that stands in it."""
    return msgspec.structs.replace(half, body=_IMAGE.sub(_PLACEHOLDER, half.body))


def _is_whole(sides: frozenset[str]) -> bool:
    return len(sides) == len(OTHER)


def _read(head: Head, bodies: Mapping[str, bytes]) -> Conversation | Unreadable:
    if len(bodies) < len(OTHER):
        [(side, body)] = bodies.items()
        held = json_of(body)
        model = text_of(held.get("model")) if isinstance(held, dict) else ""
        missing = OTHER[side]
        return Unreadable(f"no_{missing}", f"the {missing} to this {side} was not logged", head.id, model)
    call = read_exchange(bodies["request"], bodies["response"], id=head.id)
    if isinstance(call, Unreadable):
        return call
    return msgspec.structs.replace(call, tags=head.tags | call.tags, library="kserve")
