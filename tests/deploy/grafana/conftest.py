"""One running system under one Prometheus, for every query of every dashboard."""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.deploy.grafana.live import Watched, prometheus_binary, watched


@pytest.fixture(scope="session")
def observed() -> Iterator[Watched]:
    """The system after all of its traffic, still scraped; on a thread, since it outlives the tests' loops."""
    if prometheus_binary() is None:
        if os.environ.get("CI"):
            pytest.fail("prometheus is not installed")
        pytest.skip("needs the program prometheus (Debian: apt install prometheus)")
    ready: threading.Event = threading.Event()
    done = asyncio.Event()
    found: list[Watched] = []
    errors: list[BaseException] = []
    loop = asyncio.new_event_loop()

    async def work(folder: Path) -> None:
        async with watched(folder, seconds=10.0, thin=2) as one:
            found.append(one)
            ready.set()
            await done.wait()

    def serve(folder: Path) -> None:
        try:
            loop.run_until_complete(work(folder))
        except BaseException as error:
            errors.append(error)
        finally:
            ready.set()

    with tempfile.TemporaryDirectory(prefix="groundwatch-dashboards-", ignore_cleanup_errors=True) as folder:
        thread = threading.Thread(target=serve, args=(Path(folder),), name="observed", daemon=True)
        thread.start()
        ready.wait(500)
        if errors or not found:
            raise RuntimeError("the system did not run") from (errors[0] if errors else None)
        yield found[0]
        loop.call_soon_threadsafe(done.set)
        thread.join(60)
        loop.close()
