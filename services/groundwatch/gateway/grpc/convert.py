"""Between the messages of the contract and what the core works with."""

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from groundwatch.events import ResponseRecorded, ResponseScored
from groundwatch.gateway.auth.callers import Caller
from groundwatch.gateway.grpc.generated import monitor_pb2 as pb
from groundwatch.gateway.intake.attachments import DIGEST, Attachment
from groundwatch.gateway.intake.parsing import Submission, take_submission
from groundwatch.gateway.intake.results import Recorded, Refused
from groundwatch.records import Limits

M = TypeVar("M", bound=Message)


def submission(sent: pb.Response, caller: Caller, bounds: Limits) -> Submission | Refused:
    tenant = caller.owner(sent.tenant, sent.id)
    if isinstance(tenant, Refused):
        return tenant
    values: dict[str, Any] = {
        "id": sent.id,
        "model": sent.model,
        "answer": sent.answer,
        "prompt": sent.prompt,
        "recorded_at": sent.recorded_at,
        "tenant": tenant,
    }
    if sent.protocols:
        values["protocols"] = tuple(sent.protocols)
    if sent.tags:
        values["tags"] = dict(sent.tags)
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
        case "sha256":
            message = "not the SHA-256 of an image in lower-case hex; send the image as data"
        case _:
            message = "has neither sha256 nor data"
    return Refused(reason="image", field=f"images[{index}]", message=message)


def result(ended: Recorded | Refused) -> pb.SubmitResult:
    others = {"status": "SUBMIT_STATUS_REFUSED"} if isinstance(ended, Refused) else {}
    return message(pb.SubmitResult, ended, **others)


def response(event: ResponseRecorded) -> pb.Response:
    return message(pb.Response, event, images=[pb.Image(sha256=image) for image in event.images])


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
    """What makes a field's value of one of ours."""
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
