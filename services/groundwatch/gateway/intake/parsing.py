"""What a caller writes, read into events and attachments."""

import uuid
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from groundwatch.errors import InputError
from groundwatch.events import ResponseRecorded, Strategy
from groundwatch.gateway.auth.callers import EVERYBODY, Caller
from groundwatch.gateway.intake.attachments import Attachment, Encoded, read_attachment
from groundwatch.gateway.intake.results import Reason, Refused
from groundwatch.records import (
    Described,
    Limits,
    Refusal,
    check_record,
    convert_record,
    decode_record,
    recorded,
)
from groundwatch.runtime.delivery.recording import limits

__all__ = ["Submission", "limits", "read_question", "read_submission", "take_submission"]


class Sent(Described, frozen=True, kw_only=True):
    """A response as HTTP brings it: the id may be left to us, and images may come inside."""

    id: Annotated[str, msgspec.Meta(max_length=256)] = ""
    images: tuple[str | Encoded, ...] = ()


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """A response ready for `Intake.record`. Images that are not stored yet are not in the response.

    `sender` is behind whom its images wait.
    """

    response: ResponseRecorded
    images: tuple[Attachment, ...] = ()
    sender: str = ""


class SentQuestion(Sent, frozen=True, kw_only=True):
    """A question as HTTP brings it: what a response has, but for the answer."""

    answer: str = ""
    strategy: Strategy = Strategy.DIRECT


class Question(Submission, frozen=True, kw_only=True):
    """A question ready for `Intake.ask`."""

    strategy: Strategy


_SENT = msgspec.json.Decoder(Sent)
_QUESTION = msgspec.json.Decoder(SentQuestion)


def read_submission(line: bytes, bounds: Limits, caller: Caller = EVERYBODY) -> Submission | Refused:
    """Read one JSON object of `caller`'s; a missing id is made up."""
    sent = decode_record(line, _SENT, bounds)
    if isinstance(sent, Refusal):
        return _refused(sent, "malformed" if not sent.field else "invalid")
    return _submission(sent, bounds, caller)


def take_submission(
    values: dict[str, Any], images: Sequence[Attachment | Refused], bounds: Limits, caller: Caller
) -> Submission | Refused:
    """The same for a response that came as values, beside its images, which are looked at in their turn."""
    sent = convert_record(values, Sent)
    if isinstance(sent, Refusal):
        return _refused(sent, "invalid")
    name = sent.id or uuid.uuid4().hex
    if wrong := check_record(sent, name, images, bounds):
        return _refused(wrong, "invalid")
    given: list[Attachment] = []
    for image in images:
        if isinstance(image, Refused):
            return msgspec.structs.replace(image, id=name)
        given.append(image)
    return Submission(response=recorded(sent, name, ()), images=tuple(given), sender=caller.sender)


def read_question(line: bytes, bounds: Limits, caller: Caller = EVERYBODY) -> Question | Refused:
    """Read one JSON object that asks for an answer instead of bringing one."""
    sent = decode_record(line, _QUESTION, bounds)
    if isinstance(sent, Refusal):
        return _refused(sent, "malformed" if not sent.field else "invalid")
    for field, wrong in (("answer", bool(sent.answer)), ("prompt", not sent.prompt.strip())):
        if wrong:
            message = "is what is asked for: leave it out" if field == "answer" else "is missing"
            return Refused(id=sent.id, reason="invalid", field=field, message=message)
    read = _submission(sent, bounds, caller)
    if isinstance(read, Refused):
        return read
    return Question(response=read.response, images=read.images, sender=read.sender, strategy=sent.strategy)


def _submission(sent: Sent, bounds: Limits, caller: Caller) -> Submission | Refused:
    name = sent.id or uuid.uuid4().hex
    tenant = caller.owner(sent.tenant, name)
    if isinstance(tenant, Refused):
        return tenant
    if tenant != sent.tenant:
        sent = msgspec.structs.replace(sent, tenant=tenant)
    if wrong := check_record(sent, name, sent.images, bounds):
        return _refused(wrong, "invalid")
    images: list[Attachment] = []
    for index, given in enumerate(sent.images):
        try:
            images.append(read_attachment(given))
        except InputError as error:
            return Refused(id=name, reason="image", field=f"images[{index}]", message=str(error))
    return Submission(response=recorded(sent, name, ()), images=tuple(images), sender=caller.sender)


def _refused(refusal: Refusal, reason: Reason) -> Refused:
    message = refusal.message
    if refusal.field.startswith("images[") and message.startswith("Expected"):
        message += ' (an image is a SHA-256, a data: URL or {"base64": "..."})'
    return Refused(id=refusal.id, reason=reason, field=refusal.field, message=message)
