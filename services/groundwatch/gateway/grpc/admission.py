"""What comes before a call's work: its token, and that its message is there in time and is one.

grpc reads a call's one message before anybody is asked. Here each such call is taken as a stream of one, so
that its token is looked at first, so that few are read at a time, and none for ever.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from groundwatch.gateway.auth.callers import NotAllowed, Tokens
from groundwatch.gateway.grpc.statuses import Failure, invalid, not_allowed

Handler = Any
"""`grpc.RpcMethodHandler`, whose attributes its types do not know."""


class Admission(grpc.aio.ServerInterceptor):
    """Before every call of one service."""

    def __init__(self, service: str, tokens: Tokens, *, calls: int, timeout: float) -> None:
        """`calls` messages are read at once, each for at most `timeout` seconds."""
        self._prefix = f"/{service}/"
        self._tokens = tokens
        self._timeout = timeout
        self._reading = asyncio.Semaphore(calls)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """The handler, with this before it."""
        handler = await continuation(handler_call_details)
        if handler is None or not handler_call_details.method.startswith(self._prefix):
            return handler
        decode = handler.request_deserializer

        async def message(requests: AsyncIterator[bytes], context: Any) -> Any:
            async with self._reading:
                try:
                    async with asyncio.timeout(self._timeout):
                        return decode(await anext(requests))
                except TimeoutError:
                    await _end(context, _slow(self._timeout))
                except StopAsyncIteration:
                    await _end(context, invalid("", "the call has no message"))
                except DecodeError:
                    await _end(context, NO_MESSAGE)

        async def one(requests: AsyncIterator[bytes], context: Any) -> Any:
            await self._let_in(context)
            return await handler.unary_unary(await message(requests, context), context)

        async def many(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[Any]:
            await self._let_in(context)
            async for answer in handler.unary_stream(await message(requests, context), context):
                yield answer

        if handler.request_streaming:
            return handler._replace(request_deserializer=partial(_or_none, decode))
        if handler.response_streaming:
            return grpc.stream_stream_rpc_method_handler(many, None, handler.response_serializer)
        return grpc.stream_unary_rpc_method_handler(one, None, handler.response_serializer)

    async def _let_in(self, context: Any) -> None:
        said = dict(context.invocation_metadata() or ()).get("authorization")
        try:
            self._tokens.bearer(None if said is None else str(said))
        except NotAllowed as error:
            await _end(context, not_allowed(error))


NO_MESSAGE = invalid("", "is no message of this call: it does not decode")


def _or_none(decode: Callable[[bytes], Any], data: bytes) -> Any:
    """One message of a stream, whose reader is given None in place of what does not decode."""
    try:
        return decode(data)
    except DecodeError:
        return None


def _slow(seconds: float) -> Failure:
    message = f"the call's message was not there after {seconds:g} s"
    return Failure(grpc.StatusCode.DEADLINE_EXCEEDED, "slow", message, again=True)


async def _end(context: Any, failure: Failure) -> None:
    await context.abort(failure.code, failure.message, failure.trailing)
