"""What an OpenAI-compatible server sent, in our terms: an answer with its usage, or a fault.

The body is read here rather than by the client library, which passes an HTML page or a list through as if
it were a completion.
"""

import json
from typing import Any, TypeVar

import httpx
import msgspec
import openai

from groundwatch.errors import RateLimited, TransientError, Unscorable
from groundwatch.events import Usage
from groundwatch.models.asking.retry_policy import CallKind, Fault, retry_after
from groundwatch.models.openai.settings import ChatSettings
from groundwatch.models.replies import encodable

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


class _Tokens(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Body(msgspec.Struct):
    choices: list[_Choice]
    usage: _Tokens | None = None


def decoded(body: bytes, kind: type[T]) -> T:
    """The body of a reply as a value. Raises `ValueError` for what is none."""
    try:
        return msgspec.convert(json.loads(body), kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ValueError(str(error)) from error


def usage_of(asked: int | None, answered: int | None, settings: ChatSettings) -> Usage:
    """What one call used and cost by its tokens; a server that counts none costs nothing."""
    asked, answered = max(0, asked or 0), max(0, answered or 0)
    cost = (asked * settings.input_price + answered * settings.output_price) / 1_000_000
    return Usage(calls=1, input_tokens=asked, output_tokens=answered, cost=cost)


def read_answer(body: bytes, settings: ChatSettings) -> Answer:
    """Read the body of a successful response. Raises `ValueError` for what is no chat completion."""
    read = decoded(body, _Body)
    tokens = read.usage or _Tokens()
    usage = usage_of(tokens.prompt_tokens, tokens.completion_tokens, settings)
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
        return Fault(
            kind=CallKind.RATE_LIMITED,
            error=RateLimited(message, retry_after=wait),
            passes=True,
            retry_after=wait,
        )
    if status >= 500 or status in (408, 409, 425):
        return Fault(
            kind=CallKind.SERVER_ERROR,
            error=TransientError(message),
            passes=True,
            away=status == SERVICE_UNAVAILABLE,
            retry_after=wait,
        )
    return Fault(
        kind=CallKind.MISCONFIGURED, error=TransientError(f"check the settings: {message}"), away=True
    )


def _of_rejection(error: openai.APIStatusError, *, detail: str, message: str) -> Fault:
    """A bad request is the event's fault, unless the server names a parameter that settings chose."""
    if error.code in _FILTERED:
        return Fault(kind=CallKind.REFUSED, error=Unscorable(CallKind.REFUSED, detail))
    ours = error.param in _OURS and error.code != "context_length_exceeded"
    if ours or error.code == "invalid_api_key" or "api key" in detail.lower():
        return Fault(kind=CallKind.MISCONFIGURED, error=TransientError(f"check the settings: {message}"))
    return Fault(
        kind=CallKind.JUDGE_REJECTED_REQUEST,
        error=Unscorable(CallKind.JUDGE_REJECTED_REQUEST, detail),
    )


def _cause(error: Exception) -> str:
    cause = error.__cause__ or error
    return f"{type(cause).__name__}: {str(cause)[:_DETAIL]}" if str(cause) else type(cause).__name__


def _hide(text: str, key: str) -> str:
    return text.replace(key, "[key]") if key else text
