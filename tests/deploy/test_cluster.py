"""The chart in a real cluster, opt-in: `make test-cluster`, on a machine with kind and Docker.

The image is built, the small profile installed, an answer recorded, the release upgraded and rolled back, and
the ledger counted, as `helm test` does. Written against the rendered chart, and not run yet: it needs Docker.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.deploy.helm.charts import helm

from groundwatch.runtime.local.servers import free_port

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "groundwatch"
IMAGE = "groundwatch:cluster-test"
NAME = "groundwatch-test"
TOOLS = ("kind", "docker", "kubectl", "helm")
VALUES = [
    *("--values", str(CHART / "values-small.yaml")),
    *("--set", "image.repository=groundwatch", "--set", "image.tag=cluster-test"),
    *("--set", "image.pullPolicy=Never"),
    *("--set", "settings.extraction.engine=noop", "--set", "settings.verification.engine=noop"),
    *("--set", "settings.matching.engine=lexical"),
]
"""Judges that need no endpoint."""

absent = [tool for tool in TOOLS if shutil.which(tool) is None]


def test_what_is_installed_there_renders() -> None:
    done = helm("template", "groundwatch", str(CHART), *VALUES)
    assert done.returncode == 0, done.stderr
    assert IMAGE in done.stdout


def typed(*command: str, **environment: str) -> str:
    done = subprocess.run(command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}: {done.stdout[-2_000:]} {done.stderr[-2_000:]}"
    return done.stdout


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """The kubeconfig of a cluster that goes with the test."""
    config = str(tmp_path / "kubeconfig")
    typed("docker", "build", "--file", "docker/Dockerfile", "--tag", IMAGE, ".")
    typed("kind", "create", "cluster", "--name", NAME, "--kubeconfig", config, "--wait", "180s")
    try:
        typed("kind", "load", "docker-image", IMAGE, "--name", NAME)
        yield config
    finally:
        typed("kind", "delete", "cluster", "--name", NAME)


@contextlib.contextmanager
def forwarded(config: str) -> Iterator[str]:
    port = free_port()
    command = ["kubectl", "port-forward", "service/groundwatch-gateway", f"{port}:8787"]
    child = subprocess.Popen(command, env=os.environ | {"KUBECONFIG": config})
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        child.terminate()
        child.wait(30)


def send(config: str, name: str) -> None:
    """Record an answer, as soon as the port leads anywhere."""
    body = {"id": name, "model": "heron-7b", "answer": "There is a dog."}
    deadline = time.monotonic() + 120
    with forwarded(config) as gateway:
        while True:
            with contextlib.suppress(httpx.TransportError):
                if httpx.post(f"{gateway}/v1/responses", json=body, timeout=30).is_success:
                    return
            assert time.monotonic() < deadline, f"{name} was not taken"
            time.sleep(1)


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.skipif(not os.environ.get("DEPLOY_TESTS"), reason="opt-in: make test-cluster")
@pytest.mark.skipif(bool(absent), reason=f"needs {', '.join(absent)}")
def test_a_release_is_installed_upgraded_and_rolled_back(cluster: str) -> None:
    def chart(*command: str) -> None:
        typed("helm", *command, KUBECONFIG=cluster)

    chart("install", "groundwatch", str(CHART), *VALUES, "--wait", "--timeout", "15m")
    send(cluster, "installed")
    chart("test", "groundwatch", "--timeout", "10m")
    more = ("--set", "gateway.replicas=2", "--wait", "--timeout", "15m")
    chart("upgrade", "groundwatch", str(CHART), *VALUES, *more)
    send(cluster, "upgraded")
    chart("rollback", "groundwatch", "1", "--wait", "--timeout", "15m")
    send(cluster, "rolled-back")
    chart("test", "groundwatch", "--timeout", "10m")
