"""Each emitter, at its newest release and set up as docs/connect.md says, through the real gateway."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from typing import Any

import pytest
from tests.emitters import page
from tests.emitters.calls import CALLS, MODEL
from tests.emitters.emitters import EMITTERS, installation
from tests.emitters.running import MASTER_KEY, base_environment, run_application, type_section, typed_proxy
from tests.emitters.stand_in import StandIn

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

CHAT = ("data", "url", "stream", "text", "large")
WHOLE = ("data", "url", "text", "large")
BOTH = (*CHAT, "responses", "responses-stream")
TOKEN = "t0ken-of-the-tests"
TOKENS = {"pictures": TOKEN, "json_array": "t0ken-of-the-arrays", "ndjson": "t0ken-of-the-lines"}
"""The tenant that most calls are of, and one for each further format of the LiteLLM proxy."""

KEEPING = {
    "genai-openai": BOTH,
    "openai-v2": CHAT,
    "openinference": BOTH,
    "openllmetry": BOTH,
    "langfuse": BOTH,
    "litellm": BOTH,
    "phoenix": BOTH,
    "logfire": CHAT,
    "mlflow": CHAT,
    # Its uploader of images wants Traceloop's own store.
    "traceloop": ("text",),
    # What LiteLLM installs by itself makes no calls of the responses API.
    "litellm-library": ("data", "stream", "text", "large"),
    "openai-client": ("data", "stream", "text", "large", "responses", "responses-stream"),
    "langchain": CHAT,
    "dspy": WHOLE,
    "openai-agents": (*WHOLE, "responses"),
    "llamaindex": CHAT,
    "langsmith": CHAT,
    "pydantic-ai": WHOLE,
    "anthropic": CHAT,
    "google-genai": CHAT,
    # Bedrock takes no addresses of images, but for those of its own store.
    "bedrock": ("data", "stream", "text", "large"),
    "strands": ("data", "text", "large"),
    "agent-framework": (*WHOLE, "responses"),
    "semantic-kernel": CHAT,
    "ai-sdk": CHAT,
    "openinference-js": CHAT,
}
"""What is recorded with its image when the page is followed."""

CUTTING = {
    "genai-openai": ("export OTEL_INSTRUMENTATION_GENAI_CAPTURE", "genai_no_content"),
    "openai-v2": ("export OTEL_INSTRUMENTATION_GENAI_CAPTURE", "openai_v2_no_content"),
    "openinference": ("export OPENINFERENCE_BASE64_IMAGE_MAX_LENGTH", "openinference_redacted"),
    "openllmetry": ("OpenAIInstrumentor(", "openllmetry_no_input"),
    "langfuse": ("export LANGFUSE_MEDIA_UPLOAD_ENABLED", "langfuse_media"),
}
"""Which line of the page somebody forgot, and the reason that is then told."""


def each(names: Any) -> list[Any]:
    """One group for each environment, so that it is made once and they are made side by side."""
    groups = {name: pytest.mark.xdist_group(f"emitter-{installation(name)[0]}") for name in names}
    return [pytest.param(name, marks=group) for name, group in groups.items()]


def digest(name: str) -> str:
    return hashlib.sha256(base64.b64decode(CALLS[name].image.partition(",")[2])).hexdigest()


@pytest.fixture
async def receiving(gateway_factory, tmp_path) -> Any:
    """A gateway that asks for a token."""
    tokens = tmp_path / "tokens"
    tokens.write_text("".join(f"{tenant} {token}\n" for tenant, token in TOKENS.items()))
    running = await gateway_factory(
        tokens_file=str(tokens), hosts=("*",), logged_calls={"join_timeout": 20.0}
    )
    running.http.headers["Authorization"] = f"Bearer {TOKEN}"
    return running


def addresses(running: Any) -> dict[str, str]:
    """What the page's addresses are here."""
    url = f"http://127.0.0.1:{running.service.port}"
    return {"http://127.0.0.1:8787": url}


async def recorded(running: Any, calls: int, tenant: str = "pictures", limit: float = 90.0) -> dict[str, Any]:
    """A tenant's responses by their answers, once there are as many."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + limit
    while True:
        events = [event for event in await running.events() if event.tenant == tenant]
        if len(events) >= calls or loop.time() > deadline:
            break
        await asyncio.sleep(0.1)
    assert len(events) == calls, [(event.id, event.answer, event.declined) for event in events]
    return {event.answer: event for event in events}


async def noted(running: Any, reason: str, limit: float = 90.0) -> None:
    """Wait until /readyz tells the reason."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + limit
    while True:
        notes = (await running.http.get("/readyz")).json().get("notes", [])
        if any(note.startswith(f"{reason}:") for note in notes):
            return
        assert loop.time() < deadline, notes
        await asyncio.sleep(0.1)


def check(by_answer: dict[str, Any], calls: tuple[str, ...], model: str = MODEL) -> None:
    """Each call is there once, with its image."""
    for name in calls:
        event = by_answer[CALLS[name].answer]
        assert (event.model, event.prompt) == (model, CALLS[name].prompt)
        if CALLS[name].image.startswith("https:"):
            # The gateway fetches nothing that is not on its list, and says so.
            assert event.images == ()
            assert set(event.declined.values()) == {"url_not_fetched"}
        else:
            assert event.images == ((digest(name),) if CALLS[name].image else ())
            assert not event.declined


@pytest.mark.parametrize("name", each(KEEPING))
async def test_what_the_page_says_records_the_image(name: str, environments, receiving) -> None:
    folder = environments.make(*installation(name))
    with StandIn() as model:
        environment = base_environment(folder, model.url, GROUNDWATCH_TOKEN=TOKEN, ASKS=EMITTERS[name].asks)
        await asyncio.to_thread(
            type_section, EMITTERS[name].section, folder, environment, addresses(receiving), KEEPING[name]
        )
    check(await recorded(receiving, len(KEEPING[name])), KEEPING[name], EMITTERS[name].model)


@pytest.mark.parametrize("name", each(CUTTING))
async def test_a_forgotten_line_is_a_reason(name: str, environments, receiving) -> None:
    line, reason = CUTTING[name]
    folder = environments.make(*installation(name))
    with StandIn() as model:
        environment = base_environment(folder, model.url, GROUNDWATCH_TOKEN=TOKEN)
        await asyncio.to_thread(
            type_section,
            EMITTERS[name].section,
            folder,
            environment,
            addresses(receiving),
            ("large",),
            without=line,
        )
    if reason.endswith("no_content"):
        # There is no answer: what it was is recorded and declined, once its log records may come no more.
        await noted(receiving, reason)
        events = await receiving.events()
        assert events and all(set(event.declined.values()) == {reason} for event in events)
        return
    (event,) = (await recorded(receiving, 1)).values()
    assert event.images == ()
    assert set(event.declined.values()) == {reason}
    await noted(receiving, reason)
    assert receiving.count("groundwatch_images_left_out_total", reason=reason) == 1


LOGGER = page.block("LiteLLM proxy", "yaml")


@pytest.mark.xdist_group("emitter-litellm")
async def test_the_proxy_of_litellm(environments, receiving) -> None:
    folder = environments.make(*installation("litellm"))
    # The same calls by three loggers, one for each format, and each with a tenant of its own.
    config = LOGGER.replace('["groundwatch"]', '["groundwatch", "json_array", "ndjson"]')
    settings = config.partition("groundwatch: ")[2]
    for log_format in ("json_array", "ndjson"):
        header = settings.replace("os.environ/GROUNDWATCH_AUTHORIZATION", f"Bearer {TOKENS[log_format]}")
        config += f"  {log_format}: {header.replace('single', log_format)}"
    with StandIn() as model:
        environment = base_environment(folder, model.url, GROUNDWATCH_TOKEN=TOKEN)

        async def logged() -> None:
            for tenant in TOKENS:
                check(await recorded(receiving, len(BOTH), tenant), BOTH)

        def call() -> None:
            with typed_proxy(folder, environment, config, addresses(receiving)) as url:
                asking = environment | {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": MASTER_KEY}
                run_application(folder, asking, "", BOTH, instrument=False)
                asyncio.run_coroutine_threadsafe(logged(), loop).result(300)

        loop = asyncio.get_running_loop()
        await asyncio.to_thread(call)


@pytest.mark.xdist_group("emitter-litellm")
async def test_the_proxy_of_litellm_cuts_images(environments, receiving) -> None:
    folder = environments.make(*installation("litellm"))
    with StandIn() as model:
        environment = base_environment(folder, model.url, GROUNDWATCH_TOKEN=TOKEN)

        def call() -> None:
            cut = typed_proxy(
                folder, environment, LOGGER, addresses(receiving), without="export MAX_BASE64_LENGTH"
            )
            with cut as url:
                asking = environment | {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": MASTER_KEY}
                run_application(folder, asking, "", ("data",), instrument=False)
                asyncio.run_coroutine_threadsafe(recorded(receiving, 1), loop).result(120)

        loop = asyncio.get_running_loop()
        await asyncio.to_thread(call)
    (event,) = (await recorded(receiving, 1)).values()
    assert set(event.declined.values()) == {"litellm_truncated"}
    assert event.prompt == CALLS["data"].prompt
