"""The wheel `groundwatch-client`, installed where nothing else is, records through a real gateway."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SLOW = 300

PROGRAM = """
import base64, sys
import groundwatch.client
from groundwatch.client import Recorder
from groundwatch.client.openai import exchange_line
import groundwatch.client.litellm
import groundwatch.client.vllm_router

installed = groundwatch.client.__file__
assert "groundwatch_client" in installed, installed
recorder = Recorder(sys.argv[1])
image = sys.stdin.buffer.read()
recorder.record(model="m", answer="A dog.", prompt="What?", images=[image], id="recorded")
content = [{"type": "text", "text": "What?"}, {"type": "image_url", "image_url": {
    "url": "data:image/png;base64," + base64.b64encode(image).decode()}}]
request = {"model": "m", "messages": [{"role": "user", "content": content}]}
message = {"role": "assistant", "content": "A dog."}
answer = {"id": "c", "model": "m", "choices": [{"index": 0, "message": message}]}
recorder.take(1, exchange_line, (recorder, request, answer, {"way": "wrapped"}, "name", 0.0))
assert recorder.flush(30), recorder.lost
assert recorder.lost == {}, recorder.lost
"""


def python(folder: Path, *arguments: Any, **options: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [folder / "bin" / "python", *arguments], capture_output=True, timeout=SLOW, check=False, **options
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    built = subprocess.run(
        [*command, "-w", folder, ROOT / "clients" / "python"], capture_output=True, text=True, timeout=SLOW
    )
    assert built.returncode == 0, built.stderr
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def alone(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel, and httpx and msgspec with what they need, linked from this one."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    here = Path(sysconfig.get_path("purelib"))
    there = next(folder.glob("lib/python*/site-packages"))
    for name in ("httpx", "httpcore", "h11", "anyio", "certifi", "idna", "msgspec", "typing_extensions.py"):
        (there / name).symlink_to(here / name)
    install = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install", "--quiet"]
    subprocess.run([*install, "--no-deps", "--no-index", wheel], check=True, timeout=SLOW)
    return folder


def test_the_wheel_holds_the_client_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(next(name for name in names if name.endswith("/METADATA"))).decode()
        assert archive.testzip() is None
    needed = [line for line in metadata.splitlines() if line.startswith("Requires-Dist")]
    assert needed == ["Requires-Dist: httpx>=0.28", "Requires-Dist: msgspec>=0.22"]
    assert {"groundwatch_client/groundwatch/py.typed", "groundwatch_client.pth"} <= set(names)
    packages = {"/".join(name.split("/")[:3]) for name in names if name.count("/") > 2}
    inside = {"groundwatch_client/groundwatch/client", "groundwatch_client/groundwatch/conversations"}
    assert {name for name in packages if ".dist-info" not in name} == inside
    assert not any("/files/" in name for name in names)


async def test_it_records_where_groundwatch_is_not_installed(
    alone: Path, gateway: Any, pictures: Any
) -> None:
    image = pictures.encoded("PNG")
    done = await asyncio.to_thread(python, alone, "-I", "-c", PROGRAM, gateway.service.url, input=image)
    assert done.returncode == 0, done.stderr.decode()
    events = await gateway.events()
    assert sorted(event.tags.get("way", "") for event in events) == ["", "wrapped"]
    assert {(event.answer, event.prompt, len(event.images)) for event in events} == {("A dog.", "What?", 1)}


def test_with_groundwatch_itself_that_one_is_taken(alone: Path, tmp_path: Path) -> None:
    """As in an environment that has both: the package's own place comes first on the path."""
    found = "import groundwatch.client, groundwatch.cli; print(groundwatch.client.__file__)"
    there = next(alone.glob("lib/python*/site-packages"))
    link = there / "groundwatch"
    link.symlink_to(ROOT / "services" / "groundwatch")
    try:
        done = python(alone, "-I", "-c", found.replace(", groundwatch.cli", ""))
    finally:
        link.unlink()
    assert done.stdout.decode().strip() == str(link / "client" / "__init__.py"), done.stderr.decode()
    again = python(alone, "-I", "-c", found.replace(", groundwatch.cli", ""))
    assert "groundwatch_client" in again.stdout.decode()


def test_it_is_found_where_no_pth_file_is_read(wheel: Path, alone: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    pth = next(alone.glob("lib/python*/site-packages/groundwatch_client.pth"))
    aside = pth.rename(tmp_path / "aside")
    program = (
        f"import sys; sys.path.append({str(tmp_path)!r}); import groundwatch_client; "
        "from groundwatch.client import Recorder; print(Recorder.__module__)"
    )
    try:
        done = python(alone, "-I", "-c", program)
    finally:
        aside.rename(pth)
    assert done.stdout.decode().strip() == "groundwatch.client.recorder", done.stderr.decode()
