from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import httpx
import httpx2
import openai
import pytest
from tests.support.llm_server import LlmServer, picture, running

from groundwatch.errors import RateLimited, TransientError, Unavailable, Unscorable
from groundwatch.events import Usage
from groundwatch.models.asking import MAX_RETRY_AFTER, CallKind, retry_after
from groundwatch.models.openai import ChatModel, Completion, fault_of
from groundwatch.models.settings import ChatSettings
from groundwatch.protocols.prompts import Form, Step, fence, numbered, reply_schema


class Judged(Form, frozen=True):
    index: int
    verdict: Literal["supported", "refuted", "undecided"]


class Verdicts(Form, frozen=True):
    verdicts: list[Judged]


FACTS = fence("facts", numbered([(0, "There is a dog.")]))
STEP = Step(name="verify", system="Check the facts.", user=FACTS, form=Verdicts)
REFUTED = {"verdicts": [{"index": 0, "verdict": "refuted"}]}
SUPPORTED = {"verdicts": [{"index": 0, "verdict": "supported"}]}
CAT = (picture("cat"), "image/png")


@pytest.fixture
def server() -> Iterator[LlmServer]:
    with running() as started:
        yield started


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-key")


class Calls:
    """What `on_call` was told."""

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self.seconds: list[float] = []
        self.usage = Usage()

    def __call__(self, kind: str, seconds: float, usage: Usage) -> None:
        self.kinds.append(kind)
        self.seconds.append(seconds)
        self.usage += usage


@asynccontextmanager
async def chat(server: LlmServer, script: str, **changes: Any) -> AsyncIterator[tuple[ChatModel, Calls]]:
    calls = Calls()
    changes = {"base_url": server.base_url, "first_wait": 0.01, "patience": 1.0, "timeout": 5.0, **changes}
    settings = ChatSettings(model=script, **changes)
    model = ChatModel(settings, on_call=calls)
    try:
        yield model, calls
    finally:
        await model.close()


async def complete(server: LlmServer, script: str, **changes: Any) -> tuple[Completion, Calls]:
    async with chat(server, script, **changes) as (model, calls):
        return await model.complete(STEP, [CAT]), calls


async def test_asks_with_schema_image_key_and_limits(server: LlmServer) -> None:
    completion, calls = await complete(server, "ok", max_tokens=77)

    (asked,) = server.requests
    assert completion.reply == REFUTED
    assert asked["temperature"] == 0
    assert asked["seed"] == 0
    assert asked["max_tokens"] == 77
    assert asked["response_format"]["json_schema"] == {
        "name": "verify",
        "schema": reply_schema(Verdicts),
        "strict": True,
    }
    assert asked["messages"][0] == {"role": "system", "content": "Check the facts."}
    image, text = asked["messages"][1]["content"]
    assert image["image_url"]["url"].startswith("data:image/png;base64,iVBOR")
    assert text == {"type": "text", "text": FACTS}
    assert server.headers[0]["authorization"] == "Bearer sk-secret-key"
    assert calls.kinds == ["ok"]


async def test_tokens_and_cost_are_counted_over_both_requests(server: LlmServer) -> None:
    completion, calls = await complete(server, "invalid,ok", input_price=2.5, output_price=10.0)

    assert completion.usage.calls == 2
    assert completion.usage.input_tokens == 200
    assert completion.usage.output_tokens == 20
    assert completion.usage.cost == pytest.approx((200 * 2.5 + 20 * 10.0) / 1_000_000)
    assert calls.usage == completion.usage
    assert calls.kinds == ["unparsable_reply", "ok"]


async def test_usage_is_zero_where_the_server_counts_nothing(server: LlmServer) -> None:
    completion, _ = await complete(server, "nousage", input_price=1.0)
    assert completion.usage == Usage(calls=1)


@pytest.mark.parametrize(("structured", "sent"), [("json_object", {"type": "json_object"}), ("none", None)])
async def test_servers_without_schemas_are_told_it_in_words(
    server: LlmServer, structured: str, sent: object
) -> None:
    completion, _ = await complete(server, "ok", structured=structured)

    (asked,) = server.requests
    assert completion.reply == REFUTED
    assert asked.get("response_format") == sent
    assert '"additionalProperties":false' in asked["messages"][0]["content"]


async def test_parameters_that_a_server_refuses_can_be_left_out(server: LlmServer) -> None:
    await complete(server, "ok", omit=("temperature", "seed"), token_limit="max_completion_tokens")
    assert set(server.requests[0]) == {"messages", "model", "max_completion_tokens", "response_format"}


@pytest.mark.parametrize("spoiled", ["invalid", "wrongschema", "cutoff"])
async def test_one_repair_shows_the_reply_and_what_is_wrong_with_it(server: LlmServer, spoiled: str) -> None:
    completion, _ = await complete(server, f"{spoiled},ok")

    assert completion.reply == REFUTED
    first, second = server.requests
    assert [message["role"] for message in second["messages"]] == ["system", "user", "assistant", "user"]
    assert second["messages"][:2] == first["messages"]
    wrong = {"invalid": "Expected `object`", "wrongschema": "unknown field `result`", "cutoff": "was cut off"}
    assert wrong[spoiled] in second["messages"][3]["content"]


@pytest.mark.parametrize(
    ("spoiled", "reason"),
    [("invalid", "unparsable_reply"), ("wrongschema", "unparsable_reply"), ("cutoff", "cut_off")],
)
async def test_there_is_exactly_one_repair(server: LlmServer, spoiled: str, reason: str) -> None:
    async with chat(server, f"{spoiled},{spoiled},ok") as (model, calls):
        with pytest.raises(Unscorable) as caught:
            await model.complete(STEP, [CAT])
    assert caught.value.reason == reason
    assert len(server.requests) == 2
    assert calls.kinds == [reason, reason]
    assert calls.usage.input_tokens == 200


async def test_what_the_caller_rejects_is_repaired_once_too(server: LlmServer) -> None:
    def check(reply: object) -> None:
        raise ValueError("fact 7 is missing")

    async with chat(server, "ok") as (model, _):
        with pytest.raises(Unscorable, match="unparsable_reply: fact 7 is missing"):
            await model.complete(STEP, [CAT], check=check)
    assert len(server.requests) == 2
    assert "fact 7 is missing" in server.requests[1]["messages"][3]["content"]


async def test_the_last_valid_json_in_prose_counts(server: LlmServer) -> None:
    completion, _ = await complete(server, "prose")
    assert completion.reply == REFUTED
    assert len(server.requests) == 1


async def test_a_yes_in_prose_is_no_verdict(server: LlmServer) -> None:
    async with chat(server, "echo:Yes! It is supported. 1") as (model, _):
        with pytest.raises(Unscorable, match="no JSON object or array"):
            await model.complete(STEP, [CAT])


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("refusal", "refused"),
        ("filtered", "refused"),
        ("400:content_filter", "refused"),
        ("empty", "empty_reply"),
        ("nochoices", "empty_reply"),
        ("400", "judge_rejected_request"),
        ("400:context_length_exceeded:max_tokens", "judge_rejected_request"),
        ("413", "judge_rejected_request"),
        ("422", "judge_rejected_request"),
    ],
)
async def test_what_the_event_causes_is_unscorable_at_once(
    server: LlmServer, script: str, reason: str
) -> None:
    async with chat(server, script) as (model, calls):
        with pytest.raises(Unscorable) as caught:
            await model.complete(STEP, [CAT])
    assert caught.value.reason == reason
    assert calls.kinds == [reason]
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "script",
    [
        "401",
        "402",
        "403",
        "404",
        "400:unsupported_value:temperature",
        "400:invalid_api_key",
        "429:insufficient_quota",
    ],
)
async def test_what_the_operator_must_mend_loses_nothing_and_is_not_hammered(
    server: LlmServer, script: str
) -> None:
    async with chat(server, script) as (model, calls):
        with pytest.raises(TransientError, match="check the settings") as caught:
            await model.complete(STEP, [CAT])
    assert not isinstance(caught.value, RateLimited)
    assert calls.kinds == ["misconfigured"]


async def test_a_missing_key_is_named_and_a_key_never_told(
    server: LlmServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    async with chat(server, "echoauth") as (model, _):
        with pytest.raises(TransientError) as caught:
            await model.complete(STEP)
        assert "sk-secret-key" not in repr(model)
    assert "wrong key: Bearer [key]" in str(caught.value)
    assert "sk-secret-key" not in caplog.text

    monkeypatch.delenv("OPENAI_API_KEY")
    nameless = ChatModel(ChatSettings(base_url=server.base_url, model="401"))
    with pytest.raises(TransientError, match="no key in OPENAI_API_KEY"):
        await nameless.complete(STEP)
    await nameless.close()


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        ("500", "server_error"),
        ("503", "server_error"),
        ("closed", "unreachable"),
        ("html", "not_a_completion"),
        ("notachat", "not_a_completion"),
    ],
)
async def test_faults_that_pass_are_retried_within_bounds(server: LlmServer, script: str, kind: str) -> None:
    completion, calls = await complete(server, f"{script},{script},ok", retries=2)
    assert completion.reply == REFUTED
    assert calls.kinds == [kind, kind, "ok"]
    assert completion.usage.calls == 1

    async with chat(server, script, retries=1) as (model, calls):
        with pytest.raises(TransientError):
            await model.complete(STEP, [CAT])
    assert calls.kinds == [kind, kind]


async def test_retries_are_shared_by_question_and_repair(server: LlmServer) -> None:
    async with chat(server, "500,invalid,500,ok", retries=1) as (model, calls):
        with pytest.raises(TransientError):
            await model.complete(STEP, [CAT])
    assert calls.kinds == ["server_error", "unparsable_reply", "server_error"]


async def test_a_slow_judge_is_given_up_and_tried_again(server: LlmServer) -> None:
    completion, calls = await complete(server, "ok:5,ok", timeout=0.6)
    assert completion.reply == REFUTED
    assert calls.kinds == ["timeout", "ok"]

    async with chat(server, "ok:4", timeout=0.1, retries=1) as (model, calls):
        with pytest.raises(TransientError, match="did not answer in time"):
            await model.complete(STEP)
    assert calls.kinds == ["timeout", "timeout"]
    assert all(0.09 < seconds < 3.0 for seconds in calls.seconds)


async def test_nobody_listening_is_transient() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://user:hidden@127.0.0.1:{taken.getsockname()[1]}/v1"
        settings = ChatSettings(base_url=url, model="m", first_wait=0.01, retries=1)
        model = ChatModel(settings)
        with pytest.raises(TransientError, match="cannot be reached") as caught:
            await model.complete(STEP)
        await model.close()
    assert "hidden" not in str(caught.value)
    # Nobody was there, whatever it was that was asked: no other event need find that out.
    assert isinstance(caught.value, Unavailable)


@pytest.mark.parametrize("library", [httpx, httpx2])
def test_nobody_was_there_in_the_words_of_either_library(library: Any) -> None:
    for name, away in (("ConnectError", True), ("ConnectTimeout", True), ("ReadError", False)):
        error = openai.APIConnectionError(request=httpx2.Request("POST", "http://localhost"))
        error.__cause__ = getattr(library, name)("no")
        assert fault_of(error, key="", whom="model").away == away


@pytest.mark.parametrize("script", ["429:0.2,ok", "429date,ok", "503,ok", "429,429,ok"])
async def test_rate_limits_are_waited_out(server: LlmServer, script: str) -> None:
    completion, _ = await complete(server, script, patience=3.0)
    assert completion.reply == REFUTED
    if script == "429:0.2,ok":
        assert server.times[1] - server.times[0] >= 0.2


async def test_a_longer_rate_limit_is_handed_back_with_its_wait(server: LlmServer) -> None:
    async with chat(server, "429:30") as (model, calls):
        started = time.monotonic()
        with pytest.raises(RateLimited) as caught:
            await model.complete(STEP, [CAT])
        assert time.monotonic() - started < 5
        assert caught.value.retry_after == 30
        assert calls.kinds == ["rate_limited"]

        with pytest.raises(RateLimited) as later:
            await model.complete(STEP, [CAT])
    assert later.value.retry_after == pytest.approx(30, abs=1)
    assert len(server.requests) == 1, "the pause is everybody's: nobody asks again before it is over"


async def test_a_rate_limit_without_end_exhausts_patience(server: LlmServer) -> None:
    async with chat(server, "429", patience=0.3, first_wait=0.02) as (model, calls):
        with pytest.raises(RateLimited) as caught:
            await model.complete(STEP, [CAT])
    assert caught.value.retry_after is None
    assert 3 <= len(server.requests) <= 8
    assert set(calls.kinds) == {"rate_limited"}


async def test_no_more_requests_at_once_than_allowed(server: LlmServer) -> None:
    async with chat(server, "ok:0.05", concurrency=3) as (model, calls):
        await asyncio.gather(*(model.complete(STEP, [CAT]) for _ in range(12)))
    assert server.peak == 3
    assert calls.kinds == ["ok"] * 12


async def test_cancelling_some_waiters_leaves_the_others_alone(server: LlmServer) -> None:
    async with chat(server, "ok:0.2", concurrency=2) as (model, _):
        tasks = [asyncio.create_task(model.complete(STEP, [CAT])) for _ in range(8)]
        await asyncio.sleep(0.03)
        for doomed in (tasks[0], tasks[3], tasks[5]):
            doomed.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        again = await asyncio.wait_for(model.complete(STEP, [CAT]), 5)

    cancelled = [isinstance(result, asyncio.CancelledError) for result in results]
    assert cancelled == [True, False, False, True, False, True, False, False]
    assert all(result.reply == REFUTED for result in results if isinstance(result, Completion))
    assert again.reply == REFUTED


async def test_half_surrogate_pairs_travel_neither_way(server: LlmServer) -> None:
    step = Step(
        name="verify", system="a\udc00", user=f"half \ud83d whole \ud83d\ude00 {FACTS}", form=Verdicts
    )
    async with chat(server, "ok") as (model, _):
        await model.complete(step)
    messages = server.requests[0]["messages"]
    assert messages[0]["content"] == "a\ufffd"
    assert messages[1]["content"].startswith("half \ufffd whole \U0001f600 <<<facts")


@pytest.mark.parametrize(
    ("key", "value"),
    [("base_url", "localhost:1"), ("model", ""), ("timeout", 0), ("concurrency", 0), ("retries", -1)],
)
def test_a_wrong_setting_is_named(key: str, value: object) -> None:
    right: dict[str, Any] = {"base_url": "http://localhost/v1", "model": "m"}
    with pytest.raises(ValueError, match=key):
        ChatSettings(**{**right, key: value})


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "9", "retry-after-ms": "250"}, 0.25),
        ({"retry-after": "999999999"}, MAX_RETRY_AFTER),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"retry-after": "Wed, 21 Oct 2999 07:28:00 GMT"}, MAX_RETRY_AFTER),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "soon"}, None),
        ({}, None),
    ],
)
def test_retry_after_in_all_its_forms(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds


def test_kinds_are_a_bounded_set_of_slugs() -> None:
    assert all(kind.value.replace("_", "").isalpha() for kind in CallKind)
