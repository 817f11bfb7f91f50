"""`wrap_openai` with OpenAI's own client, a server of its API, and a real gateway."""

from __future__ import annotations

import asyncio
import base64
import gc
import hashlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import openai
import pytest
from tests.client.openai_server import ANSWER, openai_server, words

from groundwatch.client import Recorder, wrap_openai

PROMPT = "What is in the image?"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with openai_server() as address:
        yield address


@pytest.fixture
async def recorder(gateway: Any) -> Any:
    async with Recorder(gateway.service.url, sender="test") as recorder:
        yield recorder


@pytest.fixture
def client(url: str, recorder: Recorder) -> openai.OpenAI:
    return wrap_openai(openai.OpenAI(base_url=url, api_key="x"), recorder, tags={"app": "shop"})


@pytest.fixture
def later(url: str, recorder: Recorder) -> openai.AsyncOpenAI:
    return wrap_openai(openai.AsyncOpenAI(base_url=url, api_key="x"), recorder, tags={"app": "shop"})


@pytest.fixture
def data_url(pictures: Any) -> str:
    return f"data:image/png;base64,{base64.b64encode(pictures.encoded('PNG')).decode()}"


def chat(data_url: str) -> dict[str, Any]:
    image = {"type": "image_url", "image_url": {"url": data_url}}
    content = [{"type": "text", "text": PROMPT}, image]
    return {"model": "heron-7b", "messages": [{"role": "user", "content": content}]}


def response(data_url: str) -> dict[str, Any]:
    image = {"type": "input_image", "image_url": data_url, "detail": "auto"}
    content = [{"type": "input_text", "text": PROMPT}, image]
    return {"model": "heron-7b", "input": [{"role": "user", "content": content}]}


async def the_one(gateway: Any, recorder: Recorder) -> Any:
    assert await recorder.aflush(60)
    assert recorder.lost == {}
    (event,) = await gateway.events()
    return event


Call = Callable[[Any, str], Any]


def _chat(client: Any, image: str) -> Any:
    return client.chat.completions.create(**chat(image)).choices[0].message.content


def _chat_stream(client: Any, image: str) -> Any:
    chunks = client.chat.completions.create(**chat(image), stream=True)
    return "".join(one.choices[0].delta.content or "" for one in chunks)


def _chat_raw(client: Any, image: str) -> Any:
    raw = client.chat.completions.with_raw_response.create(**chat(image))
    assert raw.status_code == 200
    return raw.parse().choices[0].message.content


def _chat_raw_stream(client: Any, image: str) -> Any:
    raw = client.chat.completions.with_raw_response.create(**chat(image), stream=True)
    return "".join(one.choices[0].delta.content or "" for one in raw.parse())


def _chat_streaming_response(client: Any, image: str) -> Any:
    with client.chat.completions.with_streaming_response.create(**chat(image)) as raw:
        return raw.parse().choices[0].message.content


def _chat_helper(client: Any, image: str) -> Any:
    with client.chat.completions.stream(**chat(image)) as stream:
        return stream.get_final_completion().choices[0].message.content


def _chat_parse(client: Any, image: str) -> Any:
    return client.chat.completions.parse(**chat(image)).choices[0].message.content


def _chat_options(client: Any, image: str) -> Any:
    return _chat(client.with_options(timeout=20), image)


def _response(client: Any, image: str) -> Any:
    return client.responses.create(**response(image)).output_text


def _response_stream(client: Any, image: str) -> Any:
    events = client.responses.create(**response(image), stream=True)
    return "".join(one.delta for one in events if one.type == "response.output_text.delta")


def _response_helper(client: Any, image: str) -> Any:
    with client.responses.stream(**response(image)) as stream:
        return stream.get_final_response().output_text


CALLS: list[Call] = [
    _chat,
    _chat_stream,
    _chat_raw,
    _chat_raw_stream,
    _chat_streaming_response,
    _chat_helper,
    _chat_parse,
    _chat_options,
    _response,
    _response_stream,
    _response_helper,
]


@pytest.mark.parametrize("call", CALLS)
async def test_each_way_of_calling_is_recorded_once(
    call: Call, client: Any, recorder: Recorder, gateway: Any, data_url: str
) -> None:
    assert await asyncio.to_thread(call, client, data_url) == ANSWER
    event = await the_one(gateway, recorder)
    assert (event.model, event.prompt, event.answer) == ("heron-7b", PROMPT, ANSWER)
    image = base64.b64decode(data_url.partition(",")[2])
    assert event.images == (hashlib.sha256(image).hexdigest(),)
    assert event.tags["app"] == "shop" and "finish_reason" not in event.tags


async def _later_chat(client: Any, image: str) -> Any:
    return (await client.chat.completions.create(**chat(image))).choices[0].message.content


async def _later_chat_stream(client: Any, image: str) -> Any:
    chunks = await client.chat.completions.create(**chat(image), stream=True)
    return "".join([one.choices[0].delta.content or "" async for one in chunks])


async def _later_raw(client: Any, image: str) -> Any:
    raw = await client.chat.completions.with_raw_response.create(**chat(image))
    return raw.parse().choices[0].message.content


async def _later_parse(client: Any, image: str) -> Any:
    return (await client.chat.completions.parse(**chat(image))).choices[0].message.content


async def _later_helper(client: Any, image: str) -> Any:
    async with client.chat.completions.stream(**chat(image)) as stream:
        return (await stream.get_final_completion()).choices[0].message.content


async def _later_response(client: Any, image: str) -> Any:
    return (await client.responses.create(**response(image))).output_text


async def _later_response_stream(client: Any, image: str) -> Any:
    events = await client.with_options(timeout=9).responses.create(**response(image), stream=True)
    return "".join([one.delta async for one in events if one.type == "response.output_text.delta"])


LATER = [
    _later_chat,
    _later_chat_stream,
    _later_raw,
    _later_parse,
    _later_helper,
    _later_response,
    _later_response_stream,
]


@pytest.mark.parametrize("call", LATER)
async def test_each_way_of_awaiting_is_recorded_once(
    call: Callable[[Any, str], Awaitable[Any]], later: Any, recorder: Recorder, gateway: Any, data_url: str
) -> None:
    assert await call(later, data_url) == ANSWER
    event = await the_one(gateway, recorder)
    assert (event.prompt, event.answer, len(event.images)) == (PROMPT, ANSWER, 1)


@pytest.mark.parametrize("end", ["close", "forget"])
async def test_a_stream_that_is_left_is_recorded_as_far_as_it_was_read(
    end: str, client: Any, recorder: Recorder, gateway: Any, data_url: str
) -> None:
    def leave() -> None:
        stream = client.chat.completions.create(**chat(data_url), stream=True)
        for _ in range(3):
            next(stream)
        if end == "close":
            stream.close()
        del stream
        gc.collect()

    await asyncio.to_thread(leave)
    event = await the_one(gateway, recorder)
    assert event.answer and ANSWER.startswith(event.answer)
    if event.answer != ANSWER:
        # The network may have brought more than was asked for.
        assert event.tags["finish_reason"] == "incomplete"


async def test_a_stream_that_nobody_reads_is_not_recorded(
    client: Any, recorder: Recorder, gateway: Any, data_url: str
) -> None:
    stream = await asyncio.to_thread(lambda: client.chat.completions.create(**chat(data_url), stream=True))
    stream.close()
    assert await recorder.aflush(60)
    assert (await gateway.events(), recorder.lost, recorder.buffer.held) == ([], {}, 0)


async def test_what_the_caller_changes_later_is_recorded_as_it_was(
    client: Any, recorder: Recorder, gateway: Any, data_url: str
) -> None:
    asked = chat(data_url)

    def talk() -> None:
        message = client.chat.completions.create(**asked).choices[0].message
        asked["messages"][0]["content"].clear()
        asked["messages"].append(message)
        message.content = "changed"

    await asyncio.to_thread(talk)
    event = await the_one(gateway, recorder)
    assert (event.prompt, event.answer, len(event.images)) == (PROMPT, ANSWER, 1)


async def test_messages_may_be_objects_of_the_client(
    client: Any, recorder: Recorder, gateway: Any, data_url: str
) -> None:
    def talk() -> None:
        first = client.chat.completions.create(**chat(data_url))
        messages = [
            *chat(data_url)["messages"],
            first.choices[0].message,
            {"role": "user", "content": "Sure?"},
        ]
        client.chat.completions.create(model="heron-7b", messages=messages)

    await asyncio.to_thread(talk)
    assert await recorder.aflush(60)
    assert sorted(event.prompt for event in await gateway.events()) == sorted([PROMPT, "Sure?"])


async def test_what_is_no_answer_is_neither_recorded_nor_lost(
    client: Any, recorder: Recorder, gateway: Any
) -> None:
    def fail() -> None:
        with pytest.raises(openai.BadRequestError):
            client.chat.completions.create(model="broken", messages=[{"role": "user", "content": "?"}])
        client.chat.completions.create(model="caller", messages=[{"role": "user", "content": "?"}])

    await asyncio.to_thread(fail)
    assert await recorder.aflush(60)
    assert (await gateway.events(), recorder.lost) == ([], {})


async def test_an_address_of_an_image_is_the_gateways_to_fetch_or_to_leave_out(
    client: Any, recorder: Recorder, gateway: Any
) -> None:
    await asyncio.to_thread(_chat, client, "http://images.example/a.png")
    assert await recorder.aflush(60)
    (event,) = await gateway.events()
    assert (event.declined, recorder.lost) == ({"faithscore": "url_not_fetched"}, {})


async def test_messages_that_can_be_read_once_are_the_clients_alone(
    client: Any, recorder: Recorder, data_url: str
) -> None:
    """The generator is not touched, so the call goes well and the prompt is not known."""
    asked = chat(data_url)
    asked["messages"] = iter(asked["messages"])
    answer = await asyncio.to_thread(lambda: client.chat.completions.create(**asked))
    assert answer.choices[0].message.content == ANSWER
    assert await recorder.aflush(60)
    assert recorder.lost == {"unreadable": 1}


def test_wrapping_twice_records_once(url: str) -> None:
    recorder = Recorder("http://127.0.0.1:9")
    client = wrap_openai(openai.OpenAI(base_url=url, api_key="x"), recorder)
    create = client.chat.completions.create
    assert wrap_openai(client, recorder) is client
    assert client.chat.completions.create is create
    recorder.close(0)


def test_what_is_no_client_is_told() -> None:
    with pytest.raises(TypeError, match="str is no client of OpenAI's API"):
        wrap_openai("client", Recorder("http://127.0.0.1:9"))


def test_the_words_of_a_stream_are_several() -> None:
    assert len(words()) > 5
