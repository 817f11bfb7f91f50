"""The contract's messages made of what the core works with, and its errors as statuses of gRPC."""

from collections.abc import Callable
from functools import cache
from typing import Any, NoReturn, TypeAlias, TypeVar

import grpc
import msgspec
from google.protobuf import duration_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.rpc import error_details_pb2, status_pb2

from groundwatch.conversations.conversation import ImageUrl
from groundwatch.counting import FIELD_BYTES, TooLong, count_fields
from groundwatch.events import ResponseScored
from groundwatch.gateway.access.access import Access, host_of
from groundwatch.gateway.callers import Caller
from groundwatch.gateway.grpc.generated import monitor_pb2 as pb
from groundwatch.gateway.intake.results import Recorded
from groundwatch.gateway.intake.submissions import (
    DIGEST,
    Attachment,
    Submission,
    take_submission,
    wrong_image,
)
from groundwatch.gateway.refusals import Refused, one_line
from groundwatch.records import Limits

DOMAIN = "groundwatch"
DETAILS = "grpc-status-details-bin"

PASSING = frozenset(
    {grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}
)
"""With which the same call may succeed later."""

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


async def end(context: Context, refused: Refused) -> NoReturn:
    """End the call, with the details as metadata, where clients of every language look for them."""
    code = grpc.StatusCode[refused.status.grpc]
    message = one_line(f"{refused.field}: {refused.message}" if refused.field else refused.message)
    status = status_pb2.Status(code=code.value[0], message=message)
    reason = refused.reason.upper()
    known = {"id": refused.id} if refused.id else {}
    details: list[Message] = [error_details_pb2.ErrorInfo(reason=reason, domain=DOMAIN, metadata=known)]
    if refused.field:
        violation = error_details_pb2.BadRequest.FieldViolation(
            field=refused.field, description=message, reason=reason
        )
        details.append(error_details_pb2.BadRequest(field_violations=[violation]))
    if code in PASSING:
        delay = duration_pb2.Duration(seconds=refused.retry_after)
        details.append(error_details_pb2.RetryInfo(retry_delay=delay))
    for detail in details:
        status.details.add().Pack(detail)
    await context.abort(code, message, ((DETAILS, status.SerializeToString()),))
    raise AssertionError


def caller_of(access: Access, context: Context) -> Caller:
    """Who calls. Raises `Refused`."""
    said = dict(context.invocation_metadata() or ()).get("authorization")
    peer = context.peer() or ""
    caller = access.bearer(None if said is None else str(said), host_of(peer))
    return msgspec.structs.replace(caller, peer=peer)


M = TypeVar("M", bound=Message)


_RESPONSE: Any = pb.Response.DESCRIPTOR
MOST_FIELDS = 200_000
MOST_RESPONSES = 10_000


def weigh(data: bytes, form: Descriptor) -> int:
    """How many bytes a message will take. Raises `TooLong` for one that holds too much, `InputError` for what
    is none."""
    fields, responses = count_fields(data, form, _RESPONSE, MOST_FIELDS)
    if fields > MOST_FIELDS or responses > MOST_RESPONSES:
        raise TooLong(f"holds more than {MOST_RESPONSES:,} responses, or {MOST_FIELDS:,} fields")
    return len(data) + fields * FIELD_BYTES


def submission(sent: pb.Response, caller: Caller, bounds: Limits) -> Submission | Refused:
    values = {
        name: getattr(sent, name) for name in ("id", "model", "answer", "prompt", "recorded_at", "tenant")
    }
    values |= {"protocols": tuple(sent.protocols), "tags": dict(sent.tags)}
    if sent.HasField("reference"):
        known = sent.reference
        values["reference"] = {
            "facts": [{"text": fact.text, "holds": fact.holds} for fact in known.facts],
            "objects": list(known.objects),
            "triplets": [(one.subject, one.relation, one.object) for one in known.triplets],
            "complete": known.complete,
        }
    return take_submission(values, [_image(image, i) for i, image in enumerate(sent.images)], bounds, caller)


def _image(image: pb.Image, index: int) -> Attachment | Refused:
    match image.WhichOneof("source"):
        case "data":
            return image.data
        case "sha256" if DIGEST.match(image.sha256):
            return image.sha256
        case "url":
            return ImageUrl(image.url)
        case "sha256":
            return wrong_image(index, "not the SHA-256 of an image in lower-case hex; send the image as data")
    return wrong_image(index, "has neither sha256 nor data nor url")


def result(ended: Recorded | Refused) -> pb.SubmitResult:
    others = {"status": "SUBMIT_STATUS_REFUSED"} if isinstance(ended, Refused) else {}
    return message(pb.SubmitResult, ended, **others)


def outcome(event: ResponseScored) -> pb.Outcome:
    return message(pb.Outcome, event, kind=f"OUTCOME_KIND_{event.outcome.upper()}")


def message(kind: type[M], value: object, /, **others: Any) -> M:
    """The message with all that `value` has under the names of its fields; `others` have other names there.

    A tuple has the fields in their order; a choice is its enum's value of the same name.
    """
    fields = _fields(kind.DESCRIPTOR)
    if isinstance(value, tuple):
        return kind(**dict(zip(fields, value, strict=True)))
    for name, written in fields.items():
        found = getattr(value, name, None)
        if found is not None and name not in others:
            others[name] = written(found)
    return kind(**others)


@cache
def _fields(descriptor: Descriptor) -> dict[str, Callable[[Any], Any]]:
    return {field.name: _writer(field) for field in descriptor.fields}


def _writer(field: FieldDescriptor) -> Callable[[Any], Any]:
    if field.enum_type is not None:
        prefix = field.enum_type.values[0].name.removesuffix("UNSPECIFIED")
        return lambda value: prefix + value.upper()
    inner = field.message_type
    if inner is None:
        return lambda value: value
    if inner.GetOptions().map_entry:
        write = _writer(inner.fields_by_name["value"])
        return lambda value: {key: write(one) for key, one in value.items()}
    kind = GetMessageClass(inner)
    if field.is_repeated:
        return lambda value: [message(kind, one) for one in value]
    return lambda value: message(kind, value)
