"""The service image, really built and run: opt-in, as root, with buildah and debootstrap.

    DEPLOY_TESTS=1 python -m pytest tests/deploy/docker/test_image.py

Base images cannot be pulled everywhere, so a Debian root file system with Python takes the base's place;
every step of docker/Dockerfile is then run as it stands. KEEP_ROOT names a folder that keeps that file system
between runs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from groundwatch.runtime.local.servers import NatsServer, free_port

ROOT = Path(__file__).parents[3]
BASE = "localhost/groundwatch-test-base"
IMAGE = "localhost/groundwatch-test"
SUITE = "bookworm"
FROM_HERE = (
    (Path("/etc/ssl/certs"), "/etc/ssl/certs"),
    (Path.home() / ".config/pip/pip.conf", "/etc/pip.conf"),
)
TOOLS = ("buildah", "debootstrap")

pytestmark = [
    pytest.mark.timeout(3_600),
    pytest.mark.skipif(not os.environ.get("DEPLOY_TESTS"), reason="opt-in: set DEPLOY_TESTS=1"),
    pytest.mark.skipif(
        any(shutil.which(tool) is None for tool in TOOLS), reason=f"needs {' and '.join(TOOLS)}"
    ),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: chroot isolation"),
]


class Buildah:
    """buildah without a daemon, with a store of its own that goes with the test."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._environment = os.environ | {"STORAGE_DRIVER": "vfs", "BUILDAH_ISOLATION": "chroot"}

    def __call__(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run one command to its end."""
        done = subprocess.run(self.command(*arguments), env=self._environment, capture_output=True, text=True)
        assert not check or done.returncode == 0, (
            f"{arguments}\n{done.stdout[-2_000:]}\n{done.stderr[-4_000:]}"
        )
        return done

    def command(self, *arguments: str) -> list[str]:
        """The command line."""
        store = ("--root", str(self._folder / "store"), "--runroot", str(self._folder / "run"))
        return ["buildah", *store, *arguments]

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Run one command beside the test."""
        return subprocess.Popen(
            self.command(*arguments), env=self._environment, text=True, stderr=subprocess.PIPE
        )


@pytest.fixture(scope="module")
def buildah(tmp_path_factory: pytest.TempPathFactory) -> Buildah:
    """A fresh store."""
    return Buildah(tmp_path_factory.mktemp("buildah"))


@pytest.fixture(scope="module")
def image(buildah: Buildah, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The service image, built from the Dockerfile as it stands."""
    root = Path(os.environ.get("KEEP_ROOT") or tmp_path_factory.mktemp("debian") / "root")
    if not (root / "usr/bin/python3").exists():
        packages = "--include=python3,python3-venv,ca-certificates"
        subprocess.run(["debootstrap", "--variant=minbase", packages, SUITE, str(root)], check=True)
    container = buildah("from", "scratch").stdout.strip()
    buildah("add", "--quiet", container, str(root), "/")
    buildah("commit", "--quiet", "--rm", container, BASE)
    # The certificates and the package index of this machine, for the time of the build alone.
    volumes = [f"--volume={path}:{inside}:ro" for path, inside in FROM_HERE if path.exists()]
    buildah(
        "build",
        *volumes,
        f"--build-arg=BASE={BASE}",
        f"--file={ROOT / 'docker/Dockerfile'}",
        f"--tag={IMAGE}",
        str(ROOT),
    )
    return IMAGE


@pytest.fixture(scope="module")
def container(buildah: Buildah, image: str) -> Iterator[str]:
    """A container of the image, without its build."""
    name = buildah("from", image).stdout.strip()
    yield name
    buildah("rm", name)


@pytest.fixture
async def server(tmp_path: Path):
    """A NATS server with nothing on it."""
    server = NatsServer(tmp_path / "nats")
    await server.start()
    yield server
    await server.stop()


def variables(**values: object) -> list[str]:
    """As arguments of `buildah run`."""
    return [f"--env={name}={value}" for name, value in values.items()]


def test_the_image_runs_unprivileged_and_is_light(buildah: Buildah, container: str) -> None:
    assert buildah("run", container, "--", "id", "-u").stdout.strip() == "10001"
    told = buildah("run", container, "--", "groundwatch", "--version").stdout
    assert told.startswith("groundwatch ")
    script = "from importlib.util import find_spec; print(find_spec('torch'), find_spec('duckdb') is None)"
    assert buildah("run", container, "--", "python3", "-c", script).stdout.strip() == "None False"
    mounted = Path(buildah("mount", container).stdout.strip())
    size = sum(file.lstat().st_size for file in (mounted / "opt/groundwatch").rglob("*") if file.is_file())
    print(f"\n/opt/groundwatch: {size / 2**20:.0f} MiB")
    assert size < 600 * 2**20
    owners = {file.lstat().st_uid for file in (mounted / "opt/groundwatch").rglob("*")}
    assert owners == {0}, "the service could change its own code"


def test_an_engine_that_needs_more_says_so_in_one_line(buildah: Buildah, container: str) -> None:
    done = buildah(
        "run",
        container,
        "--",
        "groundwatch",
        "admin",
        "config",
        "check",
        "--stage",
        "extraction",
        check=False,
    )
    assert done.returncode == 2
    line = done.stderr.splitlines()[0]
    assert line.startswith("groundwatch: setting 'extraction.engine': reader does not run here: ")
    assert "pip install 'groundwatch[embedded]'" in line


async def test_the_entry_point_serves_and_is_healthy(buildah: Buildah, container: str, server) -> None:
    import asyncio

    url, port = server.url, free_port()
    entry = ("run", *variables(GROUNDWATCH_NATS__URL=url, GROUNDWATCH_TELEMETRY__PORT=port), container, "--")
    told = await asyncio.to_thread(buildah, *entry, "groundwatch", "admin", "provision")
    assert "created    stream    GW_RESPONSES" in told.stdout
    serving = buildah.start(*entry, "groundwatch", "serve", "scoring")
    try:
        reply = await asyncio.to_thread(ready, port)
        assert reply == {"ready": True, "problems": []}
        health = await asyncio.to_thread(buildah, *entry, "python3", "/opt/groundwatch/healthcheck.py")
        assert health.returncode == 0
    finally:
        serving.terminate()
        _, log = serving.communicate(timeout=60)
    assert '"service.started"' in log, log


async def test_a_service_whose_engine_is_missing_ends_with_one_line(
    buildah: Buildah, container: str, server
) -> None:
    import asyncio

    entry = ("run", *variables(GROUNDWATCH_NATS__URL=server.url), container, "--", "groundwatch")
    await asyncio.to_thread(buildah, *entry, "admin", "provision")
    # A service that does not end is told to, by `timeout` in the container, and its status is another.
    entry = (*entry[:-1], "timeout", "120", "groundwatch")
    for stage in ("extraction", "verification", "matching"):
        done = await asyncio.to_thread(lambda stage=stage: buildah(*entry, "serve", stage, check=False))
        assert done.returncode == 2
        told = [line for line in done.stderr.splitlines() if line.startswith("groundwatch: ")]
        assert len(told) == 1
        assert "pip install 'groundwatch[embedded]'" in told[0]
        assert "Traceback" not in done.stderr


def ready(port: int) -> dict[str, object]:
    """What /readyz says once it says yes."""
    deadline = time.monotonic() + 300
    while True:
        try:
            reply = httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=5)
            if reply.status_code == 200:
                return dict(reply.json())
        except httpx.TransportError:
            pass
        assert time.monotonic() < deadline, "not ready"
        time.sleep(0.5)
