"""Callbacks for the router of vLLM's production stack:

    GROUNDWATCH_URL=http://127.0.0.1:8787 vllm-router --callbacks groundwatch.client.vllm_router.callbacks …

The token is that of the environment's GROUNDWATCH_TOKEN. Nothing of the router's is imported here.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from typing import Any, Protocol

from groundwatch.client.lines import Line
from groundwatch.client.openai import exchange_line
from groundwatch.client.recorder import Recorder

logger = logging.getLogger("groundwatch.client")

URL_VARIABLE = "GROUNDWATCH_URL"
RECORDED = ("/chat/completions", "/responses")
"""How the paths end whose answers are recorded; the router serves embeddings and more besides."""

ANSWERING = (b'"choices"', b'"output"')
"""One of these is in every answer. The router tells no status; a body without them is that of a failure."""


class Request(Protocol):
    """What is used of a request of starlette's."""

    @property
    def url(self) -> Any: ...

    @property
    def state(self) -> Any: ...


class RouterCallbacks:
    """Records each chat completion and response that the router passes on, with its images."""

    def __init__(self, recorder: Recorder | None, *, tags: Mapping[str, str] | None = None) -> None:
        """`tags` go with every response. Without a recorder nothing is recorded."""
        self._recorder = recorder
        self._tags = dict(tags or {})

    def pre_request(self, request: Request, request_body: bytes, request_json: Any) -> None:
        """Keep the request as it came; on the event loop. None lets the router go on."""
        try:
            if self._recorder is not None and request.url.path.endswith(RECORDED):
                # The same object comes back with the answer. The router may change the JSON meanwhile.
                request.state.groundwatch_body = bytes(request_body)
        except Exception:
            return

    def post_request(self, request: Request, response_content: bytes | bytearray) -> None:
        """Hand the exchange over; in a thread of the router's, when the answer is sent."""
        recorder = self._recorder
        if recorder is None:
            return
        try:
            if not request.url.path.endswith(RECORDED):
                return
            asked = request.state.groundwatch_body
            answered = bytes(response_content)
            arguments = (recorder, asked, answered, self._tags, recorder.new_id(), time.time())
            recorder.take(len(asked) + len(answered), answered_line, arguments)
        except Exception:
            recorder.lose("unreadable")


def answered_line(
    recorder: Recorder, asked: bytes, answered: bytes, tags: Mapping[str, str], name: str, at: float
) -> Line | None:
    """None for a body that is no answer."""
    if not any(key in answered for key in ANSWERING):
        return None
    return exchange_line(recorder, asked, answered, tags, name, at)


def from_environment() -> RouterCallbacks:
    """For the gateway at GROUNDWATCH_URL. A wrong address is told in the log, and stops no router."""
    address = os.environ.get(URL_VARIABLE, "").strip()
    if not address:
        logger.error("nothing is recorded: set %s to the gateway's address, http://HOST:PORT", URL_VARIABLE)
        return RouterCallbacks(None)
    try:
        return RouterCallbacks(Recorder(address))
    except Exception as error:
        logger.error("nothing is recorded: %s", error)
        return RouterCallbacks(None)


callbacks = from_environment()
