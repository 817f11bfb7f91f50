"""Calls that other systems logged become submissions, and what is missing in them is told."""

from __future__ import annotations

import base64

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwatch.client import Recorder
from groundwatch.client.openai import exchange_line
from groundwatch.conversations.conversation import Conversation, ImageText, ImageUrl, Unreadable
from groundwatch.gateway.auth import EVERYBODY, Caller
from groundwatch.gateway.intake.logged import LeftOut, submission_of
from groundwatch.gateway.intake.submissions import Encoded, Submission
from groundwatch.gateway.refusals import Recorded, Refused
from groundwatch.records import DEFAULT_LIMITS
from groundwatch.runtime.settings.gateway import LoggedCallsSettings
from groundwatch.runtime.telemetry.metrics import Metrics

CALL = Conversation(id="call-1", model="heron-7b", prompt="What is it?", answer="A dog.")


def taken(
    call: Conversation = CALL,
    caller: Caller = EVERYBODY,
    **changes: object,
) -> Submission:
    call = msgspec.structs.replace(call, **changes)
    return submission_of(call, caller, DEFAULT_LIMITS)


def refused(*arguments: object, **changes: object) -> Refused:
    with pytest.raises(Refused) as caught:
        taken(*arguments, **changes)
    return caught.value


def test_what_was_logged_is_submitted():
    images = (b"bytes", ImageText(base64="YQ=="), ImageUrl(url="https://example.com/a.png"))
    found = taken(images=images, tags={"key": "value"})
    response = found.response
    assert (response.id, response.model, response.prompt, response.answer, response.tenant) == (
        "call-1",
        "heron-7b",
        "What is it?",
        "A dog.",
        "default",
    )
    assert response.tags == {"key": "value"}
    assert found.images == (b"bytes", Encoded(base64="YQ=="), images[2])
    assert found.left_out == ()


def test_the_span_of_a_call_is_among_its_tags():
    found = taken(trace_id="5b" * 16, span_id="ee" * 8, response_id="chatcmpl-1", tags={"key": "value"})
    assert found.response.tags == {
        "key": "value",
        "trace_id": "5b" * 16,
        "span_id": "ee" * 8,
        "response_id": "chatcmpl-1",
    }
    assert refused(response_id="\ud800").reason == "malformed"


@pytest.mark.parametrize("name", ["", "x" * 257])
def test_an_id_that_cannot_be_is_a_digest(name):
    first, same = (taken(id=name, at=5.0).response.id for _ in range(2))
    assert first == same and len(first) == 64
    assert taken(id=name, at=5.0, answer="A cat.").response.id != first or name


@pytest.mark.parametrize("field", ["model", "answer"])
def test_what_is_missing_is_named(field):
    found = refused(**{field: ""})
    assert (found.reason, found.field, found.id) == ("invalid", field, "call-1")


def test_bounds_are_those_of_every_response():
    assert refused(model="x" * 257).field == "model"
    assert refused(answer="\ud800").reason == "malformed"


def test_what_is_beyond_a_bound_is_cut_off_and_left_out():
    bounds = DEFAULT_LIMITS
    found = taken(answer="x" * (bounds.answer + 1), prompt="y" * (bounds.prompt + 1), left_out=("file_id",))
    assert (len(found.response.answer), len(found.response.prompt)) == (bounds.answer, bounds.prompt)
    assert found.left_out == ("file_id", "prompt_too_long", "answer_too_long")
    found = taken(images=(b"",) * 17, tags={"a": "x" * 2000, "b" * 2000: "c"})
    assert (len(found.images), found.left_out) == (16, ("too_many_images",))
    assert [len(name) + len(value) for name, value in found.response.tags.items()] == [bounds.tag]
    found = taken(tags={f"tag{number}": "x" for number in range(100)})
    assert len(found.response.tags) == bounds.tags


def test_a_call_is_of_the_tenant_who_logs_it():
    assert taken(caller=Caller(only="acme")).response.tenant == "acme"


def test_an_image_that_was_left_out_declines_by_setting():
    decline, record = (
        LeftOut(LoggedCallsSettings(without_image=what), Metrics()) for what in ("decline", "record")
    )
    assert decline.declined(("some_reason", "another")) == "some_reason"
    assert record.declined(("some_reason",)) == decline.declined(()) == ""
    assert record.declined(("some_reason", "answer_too_long")) == "answer_too_long"


@given(st.builds(Conversation, images=st.tuples(st.binary() | st.builds(ImageText, base64=st.text()))))
def test_whatever_was_logged_is_taken_or_refused(call):
    try:
        name = taken(call).response.id
    except Refused as error:
        name = error.id
    assert len(name) <= 256


async def test_missing_images_end_in_an_outcome_and_a_note(gateway, pictures):
    logged = gateway.service.core.logged
    assert (await gateway.http.get("/readyz")).json() == {"ready": True, "problems": []}
    call = msgspec.structs.replace(CALL, left_out=("some_reason", "some_reason"))
    image = ImageText(base64=base64.b64encode(pictures.encoded("PNG")).decode())
    assert isinstance(await logged.record(call, EVERYBODY, "otlp"), Recorded)
    again = await logged.record(call, EVERYBODY, "otlp")
    assert again == Recorded(id="call-1", status="duplicate")
    whole = msgspec.structs.replace(CALL, id="call-2", images=(image,))
    assert isinstance(await logged.record(whole, EVERYBODY, "otlp"), Recorded)
    odd = await logged.record_or_decline(Unreadable("shape", "is a list"), EVERYBODY, "otlp")
    assert isinstance(odd, Refused) and (odd.message, odd.kept) == ("is a list", False)

    first, second = await gateway.events()
    assert first.declined == {"faithscore": "some_reason"}
    assert (second.declined, len(second.images)) == ({}, 1)
    for result in ("without_image", "duplicate", "recorded", "unreadable"):
        assert gateway.count("groundwatch_logged_calls_total", source="otlp", result=result) == 1
    assert gateway.count("groundwatch_images_left_out_total", reason="some_reason") == 2
    told = (await gateway.http.get("/readyz")).json()
    assert told["ready"] and len(told["notes"]) == 2
    assert "some_reason" in told["notes"][0] and "not read (shape)" in told["notes"][1]


async def test_each_choice_is_a_response_of_its_own(gateway, pictures):
    """By a door that reads here, and by a client that reads itself."""
    url = f"data:image/png;base64,{base64.b64encode(pictures.encoded('PNG')).decode()}"
    content = [{"type": "text", "text": "What?"}, {"type": "image_url", "image_url": {"url": url}}]
    request = {"model": "m", "messages": [{"role": "user", "content": content}]}
    choices = [
        {"index": at, "finish_reason": "stop", "message": {"role": "assistant", "content": answer}}
        for at, answer in enumerate(("A dog.", "A cat."))
    ]
    for _ in range(2):
        logged = {"id": "x" * 20, "call_type": "completion", **request, "response": {"choices": choices}}
        assert (await gateway.http.post("/v1/litellm", json=logged)).status_code == 200
    async with Recorder(gateway.service.url) as recorder:
        response = {"id": "y" * 20, "model": "m", "choices": choices}
        recorder.take(1_000, exchange_line, (recorder, request, response, {}, "y", 1.0))
        assert await recorder.aflush(60) and recorder.lost == {}
    events = {event.id: (event.answer, len(event.images)) for event in await gateway.events()}
    assert events == {
        f"{name * 20}{choice}": (answer, 1)
        for name in "xy"
        for choice, answer in (("", "A dog."), ("#1", "A cat."))
    }
