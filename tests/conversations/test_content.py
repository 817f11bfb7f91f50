"""Parts of a message in the shapes that libraries and providers have."""

from __future__ import annotations

import pytest
from tests.conversations.made import BASE64, DATA_URL, PNG, URL

from groundwatch.conversations.conversation import ImageText, ImageUrl
from groundwatch.conversations.messages import read_content

IMAGES = {
    "GenAI blob": (
        {"type": "blob", "mime_type": "image/png", "modality": "image", "content": BASE64},
        ImageText(BASE64),
    ),
    "GenAI blob of bytes": ({"type": "blob", "mime_type": None, "modality": "image", "content": PNG}, PNG),
    "GenAI uri": ({"type": "uri", "mime_type": None, "modality": "image", "uri": URL}, ImageUrl(URL)),
    "GenAI uri of a bucket": (
        {"type": "uri", "modality": "image", "uri": "gs://b/i.png"},
        ImageUrl("gs://b/i.png"),
    ),
    "chat": ({"type": "image_url", "image_url": {"url": DATA_URL, "detail": "low"}}, ImageText(BASE64)),
    "chat, URL": ({"type": "image_url", "image_url": {"url": URL}}, ImageUrl(URL)),
    "chat, text": ({"type": "image_url", "image_url": DATA_URL}, ImageText(BASE64)),
    "responses": ({"type": "input_image", "image_url": DATA_URL, "detail": "auto"}, ImageText(BASE64)),
    "OpenInference": ({"type": "image", "url": URL}, ImageUrl(URL)),
    "Anthropic": (
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": BASE64}},
        ImageText(BASE64),
    ),
    "Anthropic, URL": ({"type": "image", "source": {"type": "url", "url": URL}}, ImageUrl(URL)),
    "Gemini": ({"inline_data": {"mime_type": "image/png", "data": BASE64}}, ImageText(BASE64)),
    "Gemini, file": (
        {"file_data": {"mime_type": "image/png", "file_uri": "gs://b/i.png"}},
        ImageUrl("gs://b/i.png"),
    ),
    "Bedrock": ({"type": "image", "image": {"format": "png", "source": {"bytes": PNG}}}, PNG),
    "pydantic-ai": ({"type": "binary", "media_type": "image/png", "content": BASE64}, ImageText(BASE64)),
    "not base64": ({"type": "image_url", "image_url": {"url": "data:image/svg+xml,%3Csvg%3E"}}, b"<svg>"),
    "inside a tool's result": (
        {"type": "tool_result", "content": [{"type": "image", "url": URL}]},
        ImageUrl(URL),
    ),
    "a file's data": ({"type": "input_file", "file_data": DATA_URL}, ImageText(BASE64)),
}

GONE = {
    "openinference_redacted": {"type": "image", "url": "__REDACTED__"},
    "langfuse_media": {
        "type": "image_url",
        "image_url": {"url": "@@@langfuseMedia:type=image/png|id=a|source=base64_data_uri@@@"},
    },
    "litellm_truncated": {
        "type": "image_url",
        "image_url": {"url": "data:image/png;base64,[base64_data truncated: 98.2KB]"},
    },
    "file_id": {"type": "file", "modality": "image", "file_id": "file-123"},
    "bare_image": {"type": "image"},
    "unknown_placeholder": {"type": "image_url", "image_url": {"url": "<image omitted>"}},
}

NONE = {
    "audio": {"type": "blob", "modality": "audio", "mime_type": "audio/wav", "content": BASE64},
    "a PDF": {"type": "file", "mime_type": "application/pdf", "file_id": "file-1"},
    "a PDF's data": {"type": "input_file", "file_data": f"data:application/pdf;base64,{BASE64}"},
    "audio at Langfuse": {
        "type": "input_audio",
        "input_audio": {"data": "@@@langfuseMedia:type=audio/wav|id=a|source=bytes@@@"},
    },
    "reasoning": {"type": "reasoning", "content": "Hm."},
    "what nobody knows": {"type": "hologram", "content": BASE64},
}


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_is_found_in_every_shape(name):
    part, image = IMAGES[name]
    read = read_content([part])
    assert (read.images, read.left_out, read.text) == ((image,), (), "")


@pytest.mark.parametrize("reason", GONE)
def test_an_image_that_is_not_there_has_its_reason(reason):
    read = read_content([GONE[reason]])
    assert (read.images, read.left_out, read.text) == ((), (reason,), "")


@pytest.mark.parametrize("name", NONE)
def test_other_parts_are_no_images(name):
    read = read_content([NONE[name]])
    assert (read.images, read.left_out, read.text) == ((), (), "")


def test_images_and_texts_keep_their_order():
    read = read_content(
        [{"type": "text", "text": "a"}, {"type": "image", "url": URL}, "b", {"type": "image", "data": PNG}]
    )
    assert (read.text, read.images) == ("a\nb", (ImageUrl(URL), PNG))
