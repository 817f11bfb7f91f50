"""The project's stand-in judge as a process, told over HTTP how to behave: `POST /control {"mode": "500"}`.

What it makes of a statement is decided by the statement alone, and so is some of its misbehaviour: words of
`SPOILT` spoil the reply in the same way each time. A mode troubles everybody, until it is "ok" again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from types import MappingProxyType
from typing import Any

from tests.support.llm_server import LlmServer, Reply, _error, _json, _read

SPOILT = MappingProxyType(
    {
        "illegible": ("invalid", "unparsable_reply"),
        "unspeakable": ("refusal", "refused"),
        "unending": ("cutoff", "cut_off"),
        "unheard": ("empty", "empty_reply"),
    }
)
"""By word: what the reply is, and why the response is then unscored."""

MODES = ("500", "503", "429", "closed", "hang", "slow")
SLOW_SECONDS = 0.5
HANG_SECONDS = 120.0


class TroubledJudge(LlmServer):
    """Answers as the stand-in does, except when it is told to misbehave."""

    def __init__(self, port: int = 0) -> None:
        super().__init__(port)
        self._mode = "ok"

    async def _route(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Reply:
        if method == "POST" and path == "/control":
            self._mode = json.loads(body)["mode"]
            return _json(200, {"mode": self._mode})
        mode = self._mode
        if mode == "slow":
            await asyncio.sleep(SLOW_SECONDS)
        elif mode == "hang":
            for _ in range(int(HANG_SECONDS / 0.1)):
                if self._mode != "hang":
                    break
                await asyncio.sleep(0.1)
        elif mode in ("500", "503", "429"):
            return _error(int(mode), "not now", retry_after="0.2" if mode == "429" else "")
        reply = await super()._route(method, path, headers, body)
        for kept in (self.requests, self.times, self.headers):
            kept.clear()
        return reply

    def _reply(
        self, request: dict[str, Any], behaviour: str, argument: str, headers: dict[str, str]
    ) -> Reply:
        if self._mode == "closed":
            return super()._reply(request, "closed", "", headers)
        asked, _ = _read(request)
        spoilt = next((how for word, (how, _) in SPOILT.items() if word in asked), behaviour)
        return super()._reply(request, spoilt, argument, headers)


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    with TroubledJudge(parser.parse_args().port) as server:
        server.join()


if __name__ == "__main__":
    main()
