"""Who may control our own Triton: nobody from a web page, and over gRPC nobody without its key."""

from __future__ import annotations

import base64
import contextlib
import json
import stat
import tempfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest
from tests.support.browser import open_browser
from tests.support.triton import serving
from tritonclient.grpc import aio
from tritonclient.utils import InferenceServerException

from groundwatch.runtime.local.triton_server import TritonServer

MODEL = """
from pathlib import Path
Path({mark!r}).write_text("ran")
class TritonPythonModel:
    def execute(self, requests):
        return []
"""

CONFIG = '{"name": "x", "backend": "python", "max_batch_size": 0, "input": [], "output": []}'

ATTACK = """
async ([ports, body]) => {
    const seen = [];
    for (const port of ports) {
        for (const path of ['index', 'models/x/load', 'models/x/unload']) {
            const sent = {method: 'POST', mode: 'no-cors', body, headers: {'Content-Type': 'text/plain'}};
            try {
                await fetch(`http://127.0.0.1:${port}/v2/repository/${path}`, sent);
                seen.push(port);
            } catch {}
        }
    }
    return seen;
}
"""


@contextlib.contextmanager
def other_origin() -> Iterator[str]:
    """The address of a web page that is none of ours."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<p>Nothing to see here.</p>")

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def ports_of(process: psutil.Process) -> list[int]:
    """Where a process and its children listen."""
    family = [process, *process.children(recursive=True)]
    return [
        found.laddr.port
        for one in family
        for found in one.net_connections("tcp")
        if found.status == psutil.CONN_LISTEN
    ]


async def test_a_web_page_runs_nothing(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    code = base64.b64encode(MODEL.format(mark=str(mark)).encode()).decode()
    body = json.dumps({"parameters": {"config": CONFIG, "file:1/model.py": code}})
    async with serving(tmp_path / "triton", {}) as server, open_browser() as browser:
        ports = ports_of(psutil.Process(server.pid))
        assert ports, "else there is nothing to attack"
        with other_origin() as origin:
            page = await browser.new_page()
            await page.goto(origin)
            seen = await page.evaluate(ATTACK, [ports, body])
    assert seen, "nothing was reached, so nothing was tried"
    assert not mark.exists()
    assert ports == [server.metrics_port]


async def refused(call: object) -> bool:
    try:
        await call  # type: ignore[misc]
    except InferenceServerException as error:
        return "restricted" in error.message()
    return False


@pytest.fixture
async def server(tmp_path: Path):
    async with serving(tmp_path / "triton", {}) as server:
        yield server


async def test_grpc_without_the_key_controls_nothing(server: TritonServer) -> None:
    async with aio.InferenceServerClient(server.url) as client:
        assert await client.is_server_live()
        for headers in ({}, {"triton-grpc-protocol-groundwatch-key": "guessed"}):
            calls = (
                client.get_model_repository_index(headers=headers),
                client.load_model("x", headers=headers, config=CONFIG),
                client.unload_model("x", headers=headers),
                client.get_system_shared_memory_status(headers=headers),
                client.register_system_shared_memory("x", "/x", 8, headers=headers),
                client.get_cuda_shared_memory_status(headers=headers),
                client.update_trace_settings(settings={"trace_level": ["OFF"]}, headers=headers),
                client.update_log_settings({"log_info": True}, headers=headers),
                client.get_inference_statistics(headers=headers),
            )
            assert [await refused(call) for call in calls] == [True] * len(calls)


async def test_its_socket_is_for_this_user_alone(server: TritonServer) -> None:
    folder = Path(server.url.removeprefix("unix:")).parent
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    await server.stop()
    assert not folder.exists()


def test_its_sockets_path_is_short_whatever_tmpdir(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for folder, kept in ((Path("/var"), True), (tmp_path / ("d" * 100), False)):
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        url = TritonServer(tmp_path, {}, metrics_port=1).url
        assert url.startswith(f"unix:{folder}/") is kept
        assert len(url.removeprefix("unix:")) < 107
