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
    "Bedrock, untyped": ({"image": {"format": "png", "source": {"bytes": BASE64}}}, ImageText(BASE64)),
    "Bedrock, in a bucket": (
        {"image": {"format": "png", "source": {"s3Location": {"uri": "s3://b/i.png"}}}},
        ImageUrl("s3://b/i.png"),
    ),
    "Bedrock, of a tool": (
        {
            "toolResult": {
                "toolUseId": "1",
                "content": [{"image": {"format": "png", "source": {"bytes": PNG}}}],
            }
        },
        PNG,
    ),
    "Gemini, as JavaScript has it": (
        {"inlineData": {"mimeType": "image/png", "data": BASE64}},
        ImageText(BASE64),
    ),
    "a Buffer of Node": (
        {"type": "file", "mediaType": "image/png", "data": {"type": "Buffer", "data": [*PNG]}},
        PNG,
    ),
    "an array of bytes": ({"type": "image", "image": {str(at): one for at, one in enumerate(PNG)}}, PNG),
    "Mistral": ({"type": "image_url", "image_url": DATA_URL}, ImageText(BASE64)),
    "in a part that nobody knows": ({"type": "attachment", "preview": {"src": DATA_URL}}, ImageText(BASE64)),
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

OTHER = {
    "audio": {"type": "blob", "modality": "audio", "mime_type": "audio/wav", "content": BASE64},
    "audio, at Langfuse": {
        "type": "image",
        "data": "@@@langfuseMedia:type=audio/wav|id=a|source=bytes@@@",
    },
    "audio, of a chat": {"type": "input_audio", "input_audio": {"data": BASE64, "format": "wav"}},
    "document": {"type": "file", "mime_type": "application/pdf", "file_id": "file-1"},
    "document, its data": {"type": "input_file", "file_data": f"data:application/pdf;base64,{BASE64}"},
    "document, of Bedrock": {"document": {"format": "pdf", "name": "x", "source": {"bytes": BASE64}}},
    "video, of a chat": {"type": "video_url", "video_url": {"url": "https://x/a.mp4"}},
    "video, as an image": {"type": "image_url", "image_url": {"url": "data:video/mp4;base64,AAAA"}},
    "video, in a bucket": {
        "type": "uri",
        "modality": "video",
        "mime_type": "video/mp4",
        "uri": "gs://b/a.mp4",
    },
    "video, of Gemini": {"fileData": {"mimeType": "video/mp4", "fileUri": "gs://b/a.mp4"}},
    "video, of Bedrock": {"video": {"format": "mp4", "source": {"bytes": BASE64}}},
}

NONE = {
    "reasoning": {"type": "reasoning", "content": "Hm."},
    "a thought of Gemini": {"text": "Hm.", "thought": True},
    "reasoning of Bedrock": {"reasoningContent": {"reasoningText": {"text": "Hm."}}},
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


@pytest.mark.parametrize("name", OTHER)
def test_what_is_no_image_is_told_by_its_kind(name):
    read = read_content([OTHER[name]])
    assert (read.images, read.left_out, read.text) == ((), (name.partition(",")[0],), "")


@pytest.mark.parametrize("name", NONE)
def test_other_parts_are_no_images(name):
    read = read_content([NONE[name]])
    assert (read.images, read.left_out, read.text) == ((), (), "")


def test_images_and_texts_keep_their_order():
    read = read_content(
        [{"type": "text", "text": "a"}, {"type": "image", "url": URL}, "b", {"type": "image", "data": PNG}]
    )
    assert (read.text, read.images) == ("a\nb", (ImageUrl(URL), PNG))


WRAPPED = "\n".join(BASE64[at : at + 76] for at in range(0, len(BASE64), 76))
SHOWN = {
    "Markdown": f"![a dog]({DATA_URL})",
    "Markdown, with a title": f'![a dog]({DATA_URL} "a dog")',
    "HTML": f'<img alt="a dog" src="{DATA_URL}" width=8>',
    "in capitals": f"![a dog](DATA:image/PNG;base64,{BASE64})",
    "in lines": f"![a dog](data:image/png;base64,{WRAPPED})",
}


@pytest.mark.parametrize("name", SHOWN)
@pytest.mark.parametrize("role", ["user", "tool"])
def test_an_image_may_stand_in_what_a_user_or_a_tool_says(name, role):
    read = read_content(f"What? {SHOWN[name]}", role)
    (image,) = read.images
    assert isinstance(image, ImageText) and "".join(image.base64.split()) == BASE64
    assert (read.text, read.left_out) == ("What?", ())


@pytest.mark.parametrize("name", SHOWN)
def test_nothing_is_cut_out_of_an_answer(name):
    for said in (SHOWN[name], f"Use {SHOWN[name]} here"):
        read = read_content(said, "assistant")
        assert (read.text, read.images) == (said, ())


def test_an_image_that_is_only_quoted_is_a_text():
    said = f"Why is background:url({DATA_URL}) slow?"
    read = read_content(said, "user")
    assert (read.text, read.images, read.left_out) == (said, (), ())
