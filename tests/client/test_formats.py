"""Exports of tracing systems in the shapes that their pages, APIs and tables have."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from groundwatch.client.files import AnswerFile
from groundwatch.client.files.formats import FORMATS, format_of, read_call
from groundwatch.conversations.conversation import Conversation, ImageText, ImageUrl, Unreadable
from groundwatch.errors import FileFormatError
from groundwatch.records import Refusal

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
DATA_URL = f"data:image/png;base64,{PIXEL}"
PROMPT, ANSWER = "What is in the image?", "A man rides a horse."
REPLY = {"role": "assistant", "content": ANSWER}
SPAN_ID, TRACE_ID = "b7ad6b7169203331", "0af7651916cd43dd8448eb211c80319c"
ENDED = 1772373602.5


def messages(url: str = DATA_URL) -> list[dict[str, Any]]:
    image = {"type": "image_url", "image_url": {"url": url}}
    return [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": PROMPT}, image]},
    ]


def langfuse(**changes: Any) -> dict[str, Any]:
    """As its public API and its page have an observation."""
    return {
        "id": SPAN_ID,
        "traceId": TRACE_ID,
        "type": "GENERATION",
        "name": "OpenAI-generation",
        "startTime": "2026-03-01T14:00:00.000Z",
        "endTime": "2026-03-01T14:00:02.500Z",
        "model": "heron-7b",
        "modelParameters": {"temperature": 1},
        "input": messages(),
        "output": REPLY,
        "level": "DEFAULT",
        "statusMessage": None,
        "metadata": {"user": "u"},
        "usageDetails": {"input": 3},
    } | changes


def of_events() -> dict[str, Any]:
    """As its page exports the newer table: input and output are text, the model is called otherwise."""
    record = langfuse(input=json.dumps(messages()), output=json.dumps(REPLY))
    record["providedModelName"] = record.pop("model")
    return record | {"startTime": "2026-03-01 14:00:00.000000", "endTime": "2026-03-01 14:00:02.500000"}


def of_storage() -> dict[str, Any]:
    """As it writes into a bucket."""
    record = of_events()
    return {
        "id": SPAN_ID,
        "trace_id": TRACE_ID,
        "type": "GENERATION",
        "start_time": record["startTime"],
        "end_time": record["endTime"],
        "provided_model_name": "heron-7b",
        "input": record["input"],
        "output": record["output"],
    }


IMAGE_URL = "llm.input_messages.0.message.contents.1.message_content.image.image.url"
CONTENTS = [
    {"message_content.type": "text", "message_content.text": PROMPT},
    {"message_content.type": "image", "message_content.image": {"image": {"url": DATA_URL}}},
]


def span(**attributes: Any) -> dict[str, Any]:
    """As Phoenix's API has a span."""
    return {
        "id": "U3BhbjoxMg==",
        "name": "ChatCompletion",
        "context": {"trace_id": TRACE_ID, "span_id": SPAN_ID},
        "span_kind": "LLM",
        "parent_id": None,
        "start_time": "2026-03-01T14:00:00+00:00",
        "end_time": "2026-03-01T14:00:02.500000+00:00",
        "status_code": "OK",
        "attributes": {
            "llm.model_name": "heron-7b",
            "llm.input_messages.0.message.role": "user",
            "llm.input_messages.0.message.contents.0.message_content.type": "text",
            "llm.input_messages.0.message.contents.0.message_content.text": PROMPT,
            "llm.input_messages.0.message.contents.1.message_content.type": "image",
            IMAGE_URL: DATA_URL,
            "llm.output_messages.0.message.role": "assistant",
            "llm.output_messages.0.message.content": ANSWER,
        }
        | attributes,
    }


def row(**changes: Any) -> dict[str, Any]:
    """As a row of the table that Phoenix's client makes."""
    return {
        "context.span_id": SPAN_ID,
        "name": "ChatCompletion",
        "span_kind": "LLM",
        "parent_id": None,
        "start_time": "2026-03-01 14:00:00+00:00",
        "end_time": "2026-03-01 14:00:02.500000+00:00",
        "context.trace_id": TRACE_ID,
        "attributes.llm.model_name": "heron-7b",
        "attributes.llm.input_messages": [{"message.role": "user", "message.contents": CONTENTS}],
        "attributes.llm.output_messages": [{"message.role": "assistant", "message.content": ANSWER}],
        "attributes.retrieval.documents": [{"document.content": "x"}],
    } | changes


def logged(**changes: Any) -> dict[str, Any]:
    """LiteLLM's StandardLoggingPayload."""
    return {
        "id": "chatcmpl-3f0a4b2c1d5e6f70",
        "litellm_call_id": "c1",
        "call_type": "acompletion",
        "status": "success",
        "model": "heron-7b",
        "messages": messages(),
        "response": {"choices": [{"message": REPLY}]},
        "startTime": ENDED - 2.5,
        "endTime": ENDED,
        "request_tags": ["a"],
        "metadata": {"user_api_key_alias": "k"},
    } | changes


def spent(**changes: Any) -> dict[str, Any]:
    """A row of LiteLLM's spend logs: `messages` is always empty, the request is beside it."""
    return {
        "request_id": "chatcmpl-3f0a4b2c1d5e6f70",
        "call_type": "acompletion",
        "api_key": "88dc28d0f030c55ed4ab77ed8faf098196cb1c05",
        "spend": 0.001,
        "model": "heron-7b",
        "startTime": "2026-03-01T14:00:00.000000Z",
        "endTime": "2026-03-01T14:00:02.500000Z",
        "messages": "{}",
        "proxy_server_request": {"model": "heron-7b", "messages": messages()},
        "response": json.dumps({"choices": [{"message": REPLY}]}),
        "status": "success",
        "metadata": '{"user_api_key_alias": "k"}',
        "request_tags": "[]",
    } | changes


SHAPES = {
    "langfuse": langfuse(),
    "langfuse events": of_events(),
    "langfuse storage": of_storage(),
    "phoenix": span(),
    "phoenix table": row(),
    "litellm": logged(),
    "litellm spend log": spent(),
}


def call(record: dict[str, Any], model: str = "") -> Conversation | Unreadable | None:
    format = format_of(record)
    assert format is not None
    return read_call(format, record, model)


@pytest.mark.parametrize("shape", SHAPES)
def test_each_shape_is_the_same_call(shape: str) -> None:
    found = call(SHAPES[shape])
    assert isinstance(found, Conversation), found
    assert (found.model, found.prompt, found.answer) == ("heron-7b", PROMPT, ANSWER)
    assert found.images == (ImageText(PIXEL),) and found.left_out == ()
    assert found.id and found.at == ENDED


def cell(value: Any, *, python: bool) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else str(value) if python else json.dumps(value)


@pytest.mark.parametrize("form", ["jsonl", "json", "api", "indented", "csv", "quoted", "pandas", "parquet"])
@pytest.mark.parametrize("shape", SHAPES)
def test_each_shape_in_each_kind_of_file(tmp_path: Path, shape: str, form: str) -> None:
    record = SHAPES[shape]
    path = tmp_path / "export"
    if form == "jsonl":
        path.write_text(json.dumps(record) + "\n" + json.dumps(record) + "\n")
    elif form in ("json", "api", "indented"):
        found = [record, record] if form == "json" else {"data": [record, record], "meta": {"page": 1}}
        path.write_text(json.dumps(found, indent=2 if form == "indented" else None))
    elif form == "parquet":
        try:
            made = pa.Table.from_pylist([record, record])
        except pa.ArrowInvalid:
            # Lists of texts and objects have no type there: who writes them writes JSON.
            cells = {name: cell(one, python=False) for name, one in record.items()}
            made = pa.Table.from_pylist([cells, cells])
        pq.write_table(made, path)
    else:
        quoting = csv.QUOTE_ALL if form == "quoted" else csv.QUOTE_MINIMAL
        cells = {name: cell(one, python=form == "pandas") for name, one in record.items()}
        with path.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, record, quoting=quoting)
            writer.writeheader()
            writer.writerows([cells, cells])
    records = list(AnswerFile(path))
    assert len(records) == 2
    for _, one in records:
        assert isinstance(one, dict), one
        assert (one["model"], one["prompt"], one["answer"]) == ("heron-7b", PROMPT, ANSWER)
        assert [image[:4] for image in one["images"]] == [b"\x89PNG"]
        assert one["recorded_at"] == ENDED


def test_what_is_no_call_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "export.jsonl"
    asks = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}
    lines = [
        langfuse(type="SPAN"),
        langfuse(),
        langfuse(output=asks),
        langfuse(output=None, level="ERROR", statusMessage="out of memory"),
        langfuse(type="EVENT"),
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    file = AnswerFile(path)
    assert [number for number, _ in file] == [2]
    assert sorted(file.told.lines()) == [
        "1 records are left out: answers that are calls of a tool",
        "1 records are left out: calls that failed",
        "2 records are left out: no calls of a model",
    ]
    path.write_text(json.dumps(langfuse(type="SPAN")))
    with pytest.raises(FileFormatError, match="has no answer of a model among its 1 records"):
        list(AnswerFile(path))


MEDIA = "@@@langfuseMedia:type=image/png|id=abc|source=base64_data_uri@@@"
CUT = f"{DATA_URL[:60]}... (litellm_truncated skipped 8015 chars) ...{DATA_URL[-40:]}"


@pytest.mark.parametrize(
    ("record", "reason", "setting"),
    [
        (langfuse(input=messages(MEDIA)), "langfuse_media", "LANGFUSE_MEDIA_UPLOAD_ENABLED=false"),
        (
            span(**{IMAGE_URL: "__REDACTED__"}),
            "openinference_redacted",
            "OPENINFERENCE_BASE64_IMAGE_MAX_LENGTH",
        ),
        (
            logged(messages=messages("data:image/png;base64,[base64_data truncated: 90 chars]")),
            "litellm_truncated",
            "MAX_BASE64_LENGTH_FOR_LOGGING=0",
        ),
        (
            spent(proxy_server_request={"messages": messages(CUT)}),
            "litellm_spend_log",
            "MAX_STRING_LENGTH_PROMPT_IN_DB",
        ),
    ],
)
def test_images_that_were_left_out_are_told(
    tmp_path: Path, record: dict[str, Any], reason: str, setting: str
) -> None:
    path = tmp_path / "export.jsonl"
    path.write_text(json.dumps(record) + "\n" + json.dumps(record))
    refusing = AnswerFile(path)
    for _, one in refusing:
        assert isinstance(one, Refusal) and one.field == "images"
        assert setting in one.message and 'without_image = "record"' in one.message
    assert refusing.told.left_out == {reason: 2}
    (told,) = refusing.told.lines()
    assert told.startswith("2 images are missing: ") and setting in told
    taking = AnswerFile(path, without_image="record")
    for _, one in taking:
        assert isinstance(one, dict) and one["answer"] == ANSWER and "images" not in one
    assert taking.told.left_out == {reason: 2}


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (langfuse(model=3), "as Langfuse has it: key 'model': expected text, not int"),
        (langfuse(endTime="soon"), "key 'endTime': 'soon' is no time"),
        (langfuse(output=None), "the answer was not logged"),
        (langfuse(model=None), "names no model"),
        (spent(response="{}", proxy_server_request="{}"), "store_prompts_in_spend_logs: true"),
        (
            spent(
                response={"choices": [{"message": {"content": "A (litellm_truncated skipped 9 chars) ..."}}]}
            ),
            "MAX_STRING_LENGTH_PROMPT_IN_DB",
        ),
        (row(**{"attributes.llm.input_messages": ["x"] * 100_001}), "has more than 100000 values"),
        ([7], "expected a JSON object"),
    ],
)
def test_what_is_wrong_with_a_record(tmp_path: Path, record: Any, message: str) -> None:
    path = tmp_path / "export.jsonl"
    path.write_text("\n".join(map(json.dumps, [SHAPES["langfuse"] if record == [7] else record, record])))
    _, (number, found) = AnswerFile(path)
    assert number == 2
    assert isinstance(found, Refusal) and message in str(found), found


def test_a_model_for_calls_that_name_none() -> None:
    for record in (langfuse(model=None), logged(model=""), spent(model="")):
        found = call(record, "owl-3b")
        assert isinstance(found, Conversation) and found.model == "owl-3b"
    for record in (langfuse(), logged(), span()):
        found = call(record, "owl-3b")
        assert isinstance(found, Conversation) and found.model == "heron-7b"


def test_addresses_of_images_are_kept() -> None:
    found = call(langfuse(input=messages("https://example.com/a.png")))
    assert isinstance(found, Conversation) and found.images == (ImageUrl("https://example.com/a.png"),)


def test_our_own_records_are_no_export() -> None:
    for keys in (["id", "model", "answer"], ["id", "input", "output"], ["name", "text"], []):
        assert format_of(dict.fromkeys(keys)) is None


DEEP = "[" * 5_000 + "]" * 5_000
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.just(DEEP),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=8,
)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.sampled_from(sorted(SHAPES)), st.data())
def test_whatever_a_record_holds_nothing_is_raised(shape: str, data: st.DataObject) -> None:
    record = dict(SHAPES[shape])
    for key in data.draw(st.sets(st.sampled_from(sorted(record)), min_size=1, max_size=3)):
        record[key] = data.draw(VALUES)
    for format in FORMATS:
        found = read_call(format, record)
        assert found is None or isinstance(found, Conversation | Unreadable)


@pytest.mark.parametrize("text", ["-" * 100_000 + "1", "[" * 100_000, "{" * 5_000, "nan]", "'a' 'b'\n {}]"])
def test_notation_that_is_none_is_text(text: str) -> None:
    found = call(row(**{"attributes.llm.output_messages": f"[{text}"}))
    assert found is None or isinstance(found, Conversation | Unreadable)
