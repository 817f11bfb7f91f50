"""The SDK stands on the ground by itself: who sends answers installs httpx and msgspec, and nothing else."""

from __future__ import annotations

import subprocess
import sys

import pytest

ALONE = """
import pkgutil, sys

NEEDED = {"groundwatch", "httpx", "msgspec"}
OF_HTTPX = {"anyio", "certifi", "h11", "httpcore", "idna", "sniffio"}


class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in sys.stdlib_module_names | NEEDED | OF_HTTPX:
            raise ImportError(f"{name} is not installed")


sys.meta_path.insert(0, Blocked())
import groundwatch.client

for found in pkgutil.walk_packages(groundwatch.client.__path__, "groundwatch.client."):
    __import__(found.name)
    print(found.name)
try:
    import rich
except ImportError:
    print("blocked")
"""


@pytest.mark.slow
def test_the_client_needs_httpx_and_msgspec_alone():
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert {"groundwatch.client.files.submitting", "blocked"} <= set(done.stdout.split())
