"""Runs an emitter's application, and the LiteLLM proxy, each in its environment."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from tests.emitters import page
from tests.emitters.calls import CALLS

HERE = Path(__file__).parent
MASTER_KEY = "sk-" + "5f2c9a" * 8
"""What clients of the LiteLLM proxy send: it refuses to start without one, and with a weak one."""


def base_environment(folder: Path, model: str, **more: str) -> dict[str, str]:
    """The variables of every application: its own programs first, and the stand-in for each vendor."""
    return {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "HOME": os.environ.get("HOME", "/"),
        "OPENAI_BASE_URL": model,
        "OPENAI_API_BASE": model,
        "OPENAI_API_KEY": "sk-stand-in",
        "ANTHROPIC_BASE_URL": model.removesuffix("/v1"),
        "ANTHROPIC_API_KEY": "sk-ant-stand-in",
        "GOOGLE_GEMINI_BASE_URL": model.removesuffix("/v1"),
        "GEMINI_API_KEY": "stand-in",
        "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": model.removesuffix("/v1"),
        "AWS_ACCESS_KEY_ID": "stand-in",
        "AWS_SECRET_ACCESS_KEY": "stand-in",
        "AWS_DEFAULT_REGION": "eu-central-1",
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


def _typed(text: str, addresses: dict[str, str], without: str) -> str:
    """Lines of the page with the addresses that are meant, but for those that begin like `without`."""
    for written, real in addresses.items():
        text = text.replace(written, real)
    return "\n".join(line for line in text.splitlines() if not without or not line.startswith(without))


def type_section(
    section: str,
    folder: Path,
    environment: dict[str, str],
    addresses: dict[str, str],
    calls: tuple[str, ...],
    *,
    without: str = "",
) -> str:
    """Do what a section of docs/connect.md says, as it stands but for its addresses; what that printed.

    The application is ours, which makes `calls`; the section's lines of Python, or its `telemetry.mjs`, come
    before. Lines that begin like `without` are forgotten.
    """
    with tempfile.TemporaryDirectory() as place:
        if (folder / "node_modules").exists():
            (Path(place) / "node_modules").symlink_to(folder / "node_modules")
            (Path(place) / "telemetry.mjs").write_text(page.block(section, "js"))
            shutil.copy(HERE / "application.mjs", place)
            asked = [dataclasses.asdict(CALLS[name]) for name in calls]
            (Path(place) / "calls.json").write_text(json.dumps(asked))
        (Path(place) / "setup.py").write_text(_typed(page.block(section, "python"), addresses, without))
        (Path(place) / "application.py").write_text(
            f"import runpy, sys\n"
            f"sys.argv = ['application.py', 'setup.py', *{calls!r}]\n"
            f"sys.path[0] = {str(HERE)!r}\n"
            f"runpy.run_path({str(HERE / 'application.py')!r}, run_name='__main__')\n"
        )
        ended = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", _typed(page.commands(section), addresses, without)],
            cwd=place,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=180,
            check=False,
        )
    assert not ended.returncode, f"what {section} says ended with {ended.returncode}:\n{ended.stdout}"
    return ended.stdout


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


MODELS = """model_list:
  - model_name: gpt-4o-mini
    litellm_params: {model: openai/gpt-4o-mini}
"""
PROXY = "litellm --config config.yaml"


def typed_proxy(
    folder: Path, environment: dict[str, str], config: str, addresses: dict[str, str], *, without: str = ""
) -> contextlib.AbstractContextManager[str]:
    """The LiteLLM proxy, started as its section says."""
    typed = _typed(page.commands("LiteLLM proxy"), addresses, without)
    return litellm_proxy(folder, environment, MODELS + _typed(config, addresses, ""), typed)


@contextlib.contextmanager
def litellm_proxy(
    folder: Path, environment: dict[str, str], config: str, typed: str = PROXY
) -> Iterator[str]:
    """A running LiteLLM proxy with `config`, its YAML; yields the URL that clients use."""
    port = free_port()
    assert PROXY in typed
    command = typed.replace(PROXY, f"exec {PROXY} --host 127.0.0.1 --port {port}")
    with tempfile.TemporaryDirectory() as place:
        log = Path(place) / "log"
        (Path(place) / "config.yaml").write_text(config)
        with log.open("wb") as output:
            child = subprocess.Popen(
                ["bash", "-euo", "pipefail", "-c", command],
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
