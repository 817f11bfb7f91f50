"""Ids of calls, and what repeats have in common."""

from __future__ import annotations

import base64

import pytest
from tests.conversations.made import BASE64, PNG, SPAN, TRACE, URL

from groundwatch.conversations.conversation import (
    Conversation,
    ImageText,
    ImageUrl,
    content_digest,
    repeat_key,
    stable_id,
)

CALL = Conversation(prompt="What?", answer="A dog.", images=(ImageText(BASE64),), trace_id=TRACE)


@pytest.mark.parametrize(
    ("given", "made"),
    [
        (("chatcmpl-0123456789ab", TRACE, SPAN, "d"), "chatcmpl-0123456789ab"),
        (("chatcmpl-998", TRACE, SPAN, "d"), f"{TRACE}:chatcmpl-998"),
        (("chatcmpl-998", "", "", "d"), "d:chatcmpl-998"),
        (("", TRACE, SPAN, "d"), f"{TRACE}:{SPAN}"),
        (("", TRACE, "", "d"), ""),
        (("", "", "", "d"), ""),
    ],
)
def test_ids(given, made):
    assert stable_id(*given) == made


def test_a_long_id_is_a_digest():
    assert len(stable_id("x" * 300, "", "", "")) == 64
    assert stable_id("x" * 300, "", "", "") != stable_id("x" * 301, "", "", "")


@pytest.mark.parametrize(
    "same",
    [
        {"images": (PNG,)},
        {"images": (ImageText(BASE64.rstrip("=")),)},
        {"prompt": " What?\n"},
        {"id": "x", "model": "y", "library": "z", "at": 3.0, "tags": {"a": "b"}},
    ],
)
def test_content_is_the_same_in_every_dialect(same):
    other = Conversation(**{"prompt": "What?", "answer": "A dog.", "images": CALL.images, **same})
    assert content_digest(other) == content_digest(CALL)


@pytest.mark.parametrize(
    "different",
    [
        {"images": ()},
        {"images": (ImageUrl(URL),)},
        {"images": (base64.b64decode(BASE64)[:-1],)},
        {"images": (*CALL.images, *CALL.images)},
        {"prompt": "What"},
        {"prompt": "What?A dog.", "answer": ""},
    ],
)
def test_other_content_is_another_call(different):
    other = Conversation(**{"prompt": "What?", "answer": "A dog.", "images": CALL.images, **different})
    assert content_digest(other) != content_digest(CALL)


def test_without_trace_answer_or_image_nobody_can_tell():
    assert repeat_key(CALL)
    for change in ({"trace_id": ""}, {"answer": ""}, {"left_out": ("langfuse_media",)}):
        fields = {name: getattr(CALL, name) for name in CALL.__struct_fields__}
        assert repeat_key(Conversation(**fields | change)) == ""
