"""`POST /v1/litellm`: where the proxy's `generic_api` logger sends."""

import re
from collections.abc import Iterator
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from groundwatch.conversations.conversation import Conversation, Unreadable
from groundwatch.conversations.litellm import read_call
from groundwatch.counting import MOST_VALUES, TooLong, count_values, has_more_values
from groundwatch.errors import UNDECODED
from groundwatch.gateway.auth import SEND
from groundwatch.gateway.core import GatewayCore
from groundwatch.gateway.http.requests import Route, body_of, caller_of, json, problem
from groundwatch.gateway.intake.logged import NOT_LOST
from groundwatch.gateway.intake.window import MAX_ERRORS
from groundwatch.gateway.refusals import Recorded, Refused, one_line, refusal_of

MOST_RECORDS = 10_000
MOST_TOGETHER = 1_000_000
"""Records of one body, and values of all of them."""

_SEVERAL = msgspec.json.Decoder(list[msgspec.Raw])
_LINE = re.compile(rb"[^\r\n]+")


class LiteLlmRoutes:
    def __init__(self, core: GatewayCore) -> None:
        self._core = core

    def routes(self) -> list[Route]:
        return [Route("/v1/litellm", self.post_calls, SEND, methods=["POST"])]

    async def post_calls(self, request: Request) -> Response:
        """Record every call of a body: one object, an array of them, or one on each line.

        The logger repeats a request after a status of 5xx alone, so that nothing else ends in one.
        """
        logged, caller = self._core.logged, caller_of(request)
        try:
            body = await body_of(request, self._core.settings.max_whole)
            calls, ignored = await self._core.threads.run(caller.sender, _read_calls, body)
        except (Refused, TooLong) as error:
            await self._core.batch_refused("litellm", refusal_of(error), caller)
            raise
        del body
        logged.count("litellm", "ignored", ignored)
        try:
            ended = await logged.record_all(calls, caller, "litellm")
        except Refused as error:
            return problem(503, error.message, {"Retry-After": str(error.retry_after)}, reason=error.reason)
        errors = [one for one in ended if isinstance(one, Refused)]
        refused = sum(not one.kept for one in errors)
        again = sum(isinstance(one, Recorded) and one.status == "duplicate" for one in ended)
        told = {
            "accepted": len(ended) - again - refused,
            "duplicates": again,
            "refused": refused,
            "ignored": ignored,
            "errors": [one.told() for one in errors[:MAX_ERRORS]],
        }
        return json(told, 422 if refused and refused == len(ended) and not ignored else 200)


def _read_calls(body: bytes) -> tuple[list[Conversation | Unreadable], int]:
    """The calls of a body, and how many records are of something else. Raises `TooLong`."""
    calls: list[Conversation | Unreadable] = []
    ignored = 0
    for number, record in enumerate(_records(body)):
        if number == MOST_RECORDS:
            raise TooLong(f"the body has more than {MOST_RECORDS:,} calls: send smaller batches")
        call = record if isinstance(record, Unreadable) else read_call(record)
        if call is None or (isinstance(call, Unreadable) and call.reason in NOT_LOST):
            ignored += 1
        else:
            calls.append(call)
    return calls, ignored


def _records(body: bytes) -> Iterator[Any]:
    """Each decoded when it is asked for. Whatever `log_format` is, the content type is application/json."""
    if count_values(body, MOST_TOGETHER) > MOST_TOGETHER:
        raise TooLong(f"the body has more than {MOST_TOGETHER:,} values: send smaller batches")
    try:
        whole = msgspec.json.decode(body, type=msgspec.Raw)
        several = _SEVERAL.decode(whole) if bytes(memoryview(whole)[:1]) == b"[" else [whole]
    except UNDECODED:
        yield from (_record(line[0]) for line in _LINE.finditer(body) if line[0].strip())
        return
    yield from (_record(bytes(record)) for record in several)


def _record(text: bytes) -> Any:
    if has_more_values(text):
        return Unreadable("unreadable", f"has more than {MOST_VALUES:,} values")
    try:
        return msgspec.json.decode(text)
    except UNDECODED as error:
        return Unreadable("unreadable", f"not JSON ({one_line(str(error))})")
