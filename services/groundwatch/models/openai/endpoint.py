"""A model's endpoint, OpenAI-compatible: how it is asked, within which bounds, and what its faults mean.

Three kinds of trouble end three ways. What the event itself causes (a refusal, a reply that cannot be
read, a request that is too long) makes the response unscored. What passes (rate limits, timeouts, a server
that is down) is tried again here within bounds and then handed back to the runtime. A wrong key or model
name is the operator's to mend, so it is handed back too: nothing is lost while they do. The body of a reply
is read here rather than by the client library, which passes an HTML page or a list through as if it were a
completion.
"""

import asyncio
import base64
import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar

import httpx
import msgspec
import openai

from groundwatch.addresses import shown_address, shown_variable
from groundwatch.errors import RateLimited, TransientError, Unscorable
from groundwatch.events import Usage
from groundwatch.models.asking import CALL_HEADERS, CallKind, Calls, Fault, RetryPolicy, retry_after
from groundwatch.models.replies import Image, encodable
from groundwatch.models.settings import ChatSettings, OnCall

T = TypeVar("T")

SERVICE_UNAVAILABLE = 503
_DETAIL = 300
_OURS = ("model", "response_format", "temperature", "seed", "max_tokens", "max_completion_tokens")
_FILTERED = ("content_filter", "content_policy_violation")
_CUT_OFF = ("length", "max_tokens")
_PLACES = 8
"""Tokens of an answer whose alternatives are kept: who asks for them looks at its first word."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What the model said. `refusal` says why it would not; `cut_off` that it ran out of tokens.

    `tokens` are the likeliest tokens of each place in the answer with their log-probabilities, where they
    were asked for and given.
    """

    text: str = ""
    refusal: str = ""
    cut_off: bool = False
    usage: Usage = Usage()
    tokens: tuple[tuple[tuple[str, float], ...], ...] = ()


class _Message(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None
    logprobs: Any = None


class _Alternative(msgspec.Struct):
    token: str
    logprob: float


class _TokenPlace(_Alternative):
    top_logprobs: list[_Alternative] | None = None


class _Logprobs(msgspec.Struct):
    content: list[_TokenPlace] | None = None


class Tokens(msgspec.Struct):
    """Those of what was asked and answered: pages of chat call them otherwise than pages of images."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None


class _Body(msgspec.Struct):
    choices: list[_Choice]
    usage: Tokens | None = None


def decoded(body: bytes, kind: type[T]) -> T:
    """The body of a reply as a value. Raises `ValueError` for what is none."""
    try:
        return msgspec.convert(json.loads(body), kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ValueError(str(error)) from error


def usage_of(tokens: Tokens | None, settings: ChatSettings) -> Usage:
    """What one call used and cost by its tokens; a server that counts none costs nothing."""
    tokens = tokens or Tokens()
    asked = max(0, tokens.prompt_tokens or tokens.input_tokens or 0)
    answered = max(0, tokens.completion_tokens or tokens.output_tokens or 0)
    cost = (asked * settings.input_price + answered * settings.output_price) / 1_000_000
    return Usage(calls=1, input_tokens=asked, output_tokens=answered, cost=cost)


def read_answer(body: bytes, settings: ChatSettings) -> Answer:
    """Read the body of a successful response. Raises `ValueError` for what is no chat completion."""
    read = decoded(body, _Body)
    usage = usage_of(read.usage, settings)
    if not read.choices:
        return Answer(usage=usage)
    choice = read.choices[0]
    refusal = choice.message.refusal or ""
    if choice.finish_reason in _FILTERED:
        refusal = refusal or "stopped by the endpoint's content filter"
    return Answer(
        text=choice.message.content or "",
        refusal=encodable(refusal[:_DETAIL]),
        cut_off=choice.finish_reason in _CUT_OFF,
        usage=usage,
        tokens=_tokens(choice.logprobs),
    )


def _tokens(logprobs: Any) -> tuple[tuple[tuple[str, float], ...], ...]:
    """The alternatives at each of the first places; nothing where servers write something else there.

    The token that was taken is not always among its own alternatives.
    """
    try:
        read = msgspec.convert(logprobs, _Logprobs)
    except msgspec.ValidationError:
        return ()
    return tuple(
        tuple({one.token: one.logprob for one in (place, *(place.top_logprobs or ()))}.items())
        for place in (read.content or ())[:_PLACES]
    )


def fault_of(error: Exception, *, key: str, whom: str, wanted: str = "chat completion") -> Fault:
    """What a failed request means. `whom` says whom we asked; `key` is kept out of every message.

    `wanted` is what was to come back. A status that the event cannot have caused never costs the event its
    score.
    """
    if isinstance(error, openai.APIStatusError):
        return _of_status(error, key=key, whom=whom)
    if isinstance(error, (TimeoutError, openai.APITimeoutError)):
        kind, what = CallKind.TIMEOUT, "did not answer in time"
    elif isinstance(error, openai.APIConnectionError):
        kind, what = CallKind.UNREACHABLE, f"cannot be reached ({_cause(error)})"
    else:
        kind, what = CallKind.NOT_A_COMPLETION, f"sent no {wanted} ({_cause(error)})"
    # A connection that was never made says nothing of what was to be asked over it; one that broke may.
    away = isinstance(error.__cause__, httpx.ConnectError | httpx.ConnectTimeout)
    return Fault(kind=kind, error=TransientError(_hide(f"{whom} {what}", key)), passes=True, away=away)


def _of_status(error: openai.APIStatusError, *, key: str, whom: str) -> Fault:
    status = error.status_code
    detail = _hide(encodable(error.message[:_DETAIL]), key)
    message = f"{whom} answered {status}: {detail}"
    if status in (400, 413, 415, 422):
        return _of_rejection(error, detail=detail, message=message)
    wait = retry_after(dict(error.response.headers))
    if status == 429 and error.code != "insufficient_quota":
        limited = RateLimited(message, retry_after=wait)
        return Fault(kind=CallKind.RATE_LIMITED, error=limited, passes=True, retry_after=wait)
    if status >= 500 or status in (408, 409, 425):
        kind, away, broken = CallKind.SERVER_ERROR, status == SERVICE_UNAVAILABLE, TransientError(message)
        return Fault(kind=kind, error=broken, passes=True, away=away, retry_after=wait)
    wrong = TransientError(f"check the settings: {message}")
    return Fault(kind=CallKind.MISCONFIGURED, error=wrong, away=True)


def _of_rejection(error: openai.APIStatusError, *, detail: str, message: str) -> Fault:
    """A bad request is the event's fault, unless the server names a parameter that settings chose."""
    if error.code in _FILTERED:
        return Fault(kind=CallKind.REFUSED, error=Unscorable(CallKind.REFUSED, detail))
    ours = error.param in _OURS and error.code != "context_length_exceeded"
    if ours or error.code == "invalid_api_key" or "api key" in detail.lower():
        return Fault(kind=CallKind.MISCONFIGURED, error=TransientError(f"check the settings: {message}"))
    kind = CallKind.JUDGE_REJECTED_REQUEST
    return Fault(kind=kind, error=Unscorable(kind, detail))


def _cause(error: Exception) -> str:
    cause = error.__cause__ or error
    return f"{type(cause).__name__}: {str(cause)[:_DETAIL]}" if str(cause) else type(cause).__name__


def _hide(text: str, key: str) -> str:
    return text.replace(key, "[key]") if key else text


Message: TypeAlias = dict[str, object]


class Endpoint:
    """A model behind an OpenAI-compatible server; one for each endpoint and loop.

    It may be asked by any number of tasks: no more than `concurrency` requests are under way at once, and
    a server that asks for a pause is given it by all of them. Every question raises `Unscorable` (refused,
    empty_reply, judge_rejected_request, and what its reading says), `RateLimited` with the wait asked for,
    `Unavailable` while the model is away, or `TransientError`.
    """

    def __init__(self, settings: ChatSettings, *, on_call: OnCall | None = None) -> None:
        self.settings = settings
        self._key = os.environ.get(settings.api_key_env, "")
        self._client = openai.AsyncOpenAI(
            base_url=settings.base_url, api_key=self._key or "none", timeout=settings.timeout, max_retries=0
        )
        # Without what an address may hold of credentials.
        key = "" if self._key else f" (no key in {shown_variable(settings.api_key_env)})"
        self._whom = f"model '{settings.model}' at {shown_address(settings.base_url)}{key}"
        slots = asyncio.Semaphore(settings.concurrency)
        self._calls = Calls(settings.model, settings, slots=slots, on_call=on_call)

    @property
    def model(self) -> str:
        return self.settings.model

    async def close(self) -> None:
        await self._client.close()

    async def _chat(
        self,
        messages: Sequence[Message],
        form: Mapping[str, object] | None = None,
        policy: RetryPolicy | None = None,
    ) -> tuple[Answer, float]:
        """A chat completion and the seconds it took, still to be `_checked`.

        `form` are further parameters of the request.
        """
        settings = self.settings
        body: dict[str, object] = {
            "messages": messages,
            "model": settings.model,
            "temperature": settings.temperature,
            "seed": settings.seed,
            settings.token_limit: settings.max_tokens,
            **(form or {}),
        }
        read = partial(read_answer, settings=settings)
        return await self._post("/chat/completions", body, read, "chat completion", policy)

    async def _post(
        self,
        path: str,
        body: Mapping[str, object],
        read: Callable[[bytes], T],
        what: str,
        policy: RetryPolicy | None = None,
    ) -> tuple[T, float]:
        """What is read of the reply and the seconds it took, still to be `_checked`.

        `path` is below the endpoint's address; `read` raises `ValueError` for what is not `what`, such as
        "image".
        """
        sent = {name: value for name, value in body.items() if value != "" and name not in self.settings.omit}

        async def request() -> T | Fault:
            try:
                async with asyncio.timeout(self.settings.timeout):
                    response = await self._client.post(
                        path, cast_to=httpx.Response, body=sent, options={"headers": {**CALL_HEADERS.get()}}
                    )
                return read(response.content)
            except (TimeoutError, openai.APIError, ValueError) as error:
                return fault_of(error, key=self._key, whom=self._whom, wanted=what)

        return await self._calls.persist(request, policy or RetryPolicy(self.settings))

    def _checked(self, check: Callable[[], T], seconds: float, usage: Usage) -> T:
        """What `check` makes of a reply, recorded by what becomes of it. Raises `Unscorable` as it does."""
        try:
            found = check()
        except Unscorable as error:
            self._calls.record(CallKind(error.reason), seconds, usage)
            raise
        self._calls.record(CallKind.OK, seconds, usage)
        return found


def user_message(text: str, images: Sequence[Image]) -> Message:
    urls = (f"data:{media_type};base64,{base64.b64encode(data).decode()}" for data, media_type in images)
    question: list[Message] = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    text = encodable(text)
    return {"role": "user", "content": [*question, {"type": "text", "text": text}] if question else text}
