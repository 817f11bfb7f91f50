"""NATS goes away while a command is at work."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.support.command_line import CommandLine

from groundwatch.runtime.local.servers import NatsServer


class Cut:
    """A way to a server that ends for good as soon as a client asks for `word`."""

    def __init__(self, port: int, word: bytes) -> None:
        self._to, self._word = port, word
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> int:
        self._server = await asyncio.start_server(self._through, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()

    async def _through(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, on = await asyncio.open_connection("127.0.0.1", self._to)

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            while data := await source.read(65536):
                if self._word in data:
                    assert self._server is not None
                    self._server.close()
                    writer.transport.abort()
                    return
                sink.write(data)

        await asyncio.gather(pump(reader, on), pump(back, writer), return_exceptions=True)
        on.close()


@pytest.mark.slow
async def test_an_audit_that_could_not_count_is_not_unbalanced(
    nats_server: NatsServer, nobody: CommandLine, tmp_path: Path
) -> None:
    async with Cut(nats_server.port, b"$JS.API.STREAM.INFO.GW_RESPONSES") as port:
        url = nats_server.url.replace(str(nats_server.port), str(port))
        done = await asyncio.to_thread(nobody, "audit", "--nats", url, GROUNDWATCH_NATS__PUBLISH_TIMEOUT="1")
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    told = "groundwatch: could not count, which says nothing of the ledger: NATS at nats://…@127.0.0.1:"
    assert done.stderr.splitlines()[-1].startswith(told)
