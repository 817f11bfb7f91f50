"""Runs an emitter's application, and the LiteLLM proxy, each in its environment."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
MASTER_KEY = "sk-" + "5f2c9a" * 8
"""What clients of the LiteLLM proxy send: it refuses to start without one, and with a weak one."""


def base_environment(folder: Path, model: str, **more: str) -> dict[str, str]:
    """The variables of every application: its own programs first, and the stand-in for OpenAI."""
    return {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "HOME": os.environ.get("HOME", "/"),
        "OPENAI_BASE_URL": model,
        "OPENAI_API_BASE": model,
        "OPENAI_API_KEY": "sk-stand-in",
        "NO_PROXY": "127.0.0.1,localhost",
        "LITELLM_MASTER_KEY": MASTER_KEY,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        **more,
    }


def run_application(
    folder: Path, environment: dict[str, str], setup: str, calls: tuple[str, ...], *, instrument: bool = True
) -> str:
    """Let an application make `calls` and end; what it printed. `setup` are lines of Python it runs first."""
    with tempfile.TemporaryDirectory() as place:
        lines = Path(place) / "setup.py"
        lines.write_text(setup)
        command = [str(folder / "bin" / "python"), str(HERE / "application.py"), str(lines), *calls]
        wrapper = folder / "bin" / "opentelemetry-instrument"
        if instrument and wrapper.exists():
            command = [str(wrapper), *command]
        ended = subprocess.run(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=180,
            check=False,
        )
    if ended.returncode:
        raise AssertionError(f"the application ended with {ended.returncode}:\n{ended.stdout}")
    return ended.stdout


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@contextlib.contextmanager
def litellm_proxy(folder: Path, environment: dict[str, str], config: str) -> Iterator[str]:
    """A running LiteLLM proxy with `config`, its YAML; yields the URL that clients use."""
    port = free_port()
    with tempfile.TemporaryDirectory() as place:
        file, log = Path(place) / "config.yaml", Path(place) / "log"
        file.write_text(config)
        with log.open("wb") as output:
            child = subprocess.Popen(
                [folder / "bin" / "litellm", "--config", file, "--host", "127.0.0.1", "--port", str(port)],
                env=environment,
                cwd=place,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            _wait_ready(f"http://127.0.0.1:{port}/health/liveliness", child, log)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            child.send_signal(signal.SIGINT)
            try:
                child.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait(10)


def _wait_ready(url: str, child: subprocess.Popen[bytes], log: Path, limit: float = 180) -> None:
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        if child.poll() is not None:
            break
        with contextlib.suppress(urllib.error.URLError, OSError), urllib.request.urlopen(url, timeout=5):
            return
        time.sleep(0.3)
    raise AssertionError(f"the proxy did not start:\n{log.read_text()[-4000:]}")
