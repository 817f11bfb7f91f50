"""Who may control our own Triton: nobody from a web page, and over gRPC nobody without its key."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import signal
import stat
import tempfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest
import structlog
from tests.runtime.conftest import eventually
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


async def with_a_model(server: TritonServer) -> None:
    """Serves a model whose process computes nothing."""
    place = server.repository / "x"
    (place / "1").mkdir(parents=True)
    (place / "1" / "model.py").write_text(MODEL.format(mark=str(server.data_dir / "mark")))
    (place / "config.pbtxt").write_text(
        'name: "x" backend: "python" max_batch_size: 0\n'
        'input [{name: "a" data_type: TYPE_FP32 dims: [1]}]\n'
        'output [{name: "b" data_type: TYPE_FP32 dims: [1]}]\n'
    )
    await server.load("x")
    assert server.processes("x")


async def test_its_shared_memory_is_for_this_user_alone(server: TritonServer) -> None:
    await with_a_model(server)
    regions = server._shared_memory()
    assert regions
    assert {stat.S_IMODE(region.stat().st_mode) & 0o077 for region in regions} == {0}


async def test_its_key_is_in_no_command_line(server: TritonServer) -> None:
    said = " ".join(psutil.Process(server.pid).cmdline())
    assert "groundwatch-key=" in said and server._key not in said
    # It is in force all the same.
    await with_a_model(server)


async def test_killed_it_comes_back_and_says_what_ended_it(server: TritonServer) -> None:
    await with_a_model(server)
    (of_model,) = server.processes("x")
    with structlog.testing.capture_logs() as logs:
        looking = asyncio.create_task(server.look_after())
        assert server.problem == ""
        before = server.pid
        # As slow to go as one with gigabytes: it holds the folder's lock, as the server does.
        os.kill(of_model, signal.SIGSTOP)
        server.kill()
        await eventually(lambda: "tritonserver was ended by SIGKILL" in server.problem)
        await eventually(lambda: not server.problem, within=60)
        looking.cancel()
    assert server.pid not in (None, before)
    assert not psutil.pid_exists(of_model) or psutil.Process(of_model).status() == psutil.STATUS_ZOMBIE
    events = [one["event"] for one in logs]
    assert "triton.died" in events and "triton.not_restarted" not in events
    assert not any("another groundwatch" in str(one) for one in logs)


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
