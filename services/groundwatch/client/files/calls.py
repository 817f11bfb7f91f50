"""Calls that another system logged, as records of ours."""

import base64
import binascii
from collections import Counter
from typing import Any, Literal

import msgspec

from groundwatch.conversations.conversation import (
    REASONS,
    Conversation,
    Image,
    ImageDigest,
    ImageText,
    ImageUrl,
    Unreadable,
)
from groundwatch.conversations.exports import Export, read_export
from groundwatch.records import Refusal

_OTHERS = {"failed": "calls that failed", "tool_call": "answers that are calls of a tool"}
"""By the reason for which such a record is no response, which is nobody's mistake."""

WithoutImage = Literal["decline", "record"]


class Told(msgspec.Struct):
    """What an export does not have: images, by the reason why they were left out; and other records."""

    left_out: Counter[str] = msgspec.field(default_factory=Counter)
    others: Counter[str] = msgspec.field(default_factory=Counter)

    def lines(self) -> list[str]:
        """A line for each, with the setting of the library that keeps what is missing."""
        found = [
            f"{number} images are missing: {why_left_out(name)}"
            for name, number in self.left_out.most_common()
        ]
        return found + [
            f"{number} records are left out: {what}" for what, number in self.others.most_common()
        ]


def why_left_out(name: str) -> str:
    reason = REASONS[name]
    return f"{reason.library} {reason.did}; what keeps it: {reason.setting}"


def record_of(
    export: Export, values: dict[str, Any], told: Told, without_image: WithoutImage, model: str
) -> dict[str, Any] | Refusal | None:
    """None where it is no call of a model, or one without an answer to judge."""
    call = read_export(export, values, model)
    if call is None or (isinstance(call, Unreadable) and call.reason in _OTHERS):
        told.others[_OTHERS[call.reason] if call is not None else "no calls of a model"] += 1
        return None
    if isinstance(call, Unreadable):
        return Refusal(message=call.message, id=call.id[:256])
    told.left_out.update(call.left_out)
    if call.references:
        where = ", ".join(f"{side} at {url[:200]}" for side, url in call.references.items())
        return Refusal(message=f"its messages lie elsewhere: {where}", id=call.id[:256])
    if not call.answer:
        why = f": {why_left_out(call.left_out[0])}" if call.left_out else ""
        return Refusal(field="answer", message=f"is missing in what was logged{why}", id=call.id[:256])
    if call.left_out and without_image == "decline":
        message = (
            f"is missing: {why_left_out(call.left_out[0])}. With gateway.logged_calls.without_image = "
            '"record" it is taken without'
        )
        return Refusal(field="images", message=message, id=call.id[:256])
    return _record(call)


def _record(call: Conversation) -> dict[str, Any] | Refusal:
    record: dict[str, Any] = {"id": call.id, "answer": call.answer, "tags": call.tags, "recorded_at": call.at}
    for name in ("model", "prompt"):
        if value := getattr(call, name):
            record[name] = value
    images: list[dict[str, str] | bytes | str] = []
    for index, image in enumerate(call.images):
        try:
            images.append(_image(image))
        except (binascii.Error, ValueError) as error:
            return Refusal(field=f"images[{index}]", message=f"not base64: {error}", id=call.id[:256])
    if images:
        record["images"] = images
    return record


def _image(image: Image) -> dict[str, str] | bytes | str:
    if isinstance(image, ImageText):
        return base64.b64decode("".join(image.base64.split()), validate=True)
    if isinstance(image, ImageDigest):
        return image.sha256
    return {"url": image.url} if isinstance(image, ImageUrl) else image
