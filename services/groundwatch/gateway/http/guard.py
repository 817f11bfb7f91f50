"""The outermost layer: whatever goes wrong inside, the caller gets one line of JSON and we get a log."""

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from groundwatch.gateway.http.replies import problem
from groundwatch.runtime.telemetry.logs import logger


class Guard:
    """Answers for exceptions; a caller who went away is no error."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            try:
                await send(message)
            except RuntimeError as error:
                # uvloop's word for a connection that was cut before uvicorn heard of it.
                if "handler is closed" not in str(error):
                    raise
                raise ClientDisconnect from error

        try:
            await self._app(scope, receive, watched)
        except ClientDisconnect:
            return
        except Exception as error:
            logger.error("gateway.request", path=scope.get("path"), error=repr(error), exc_info=error)
            if not started:
                await problem(500, "the gateway failed; its log says why")(scope, receive, send)
