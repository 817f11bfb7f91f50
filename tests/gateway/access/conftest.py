"""Somebody with a browser, as far as cookies and forms go."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.oidc import Provider, open_provider

TOKENS = """
*     every-token-0123456789
acme  acme-token-0123456789
*     ann-token-0123456789     reviewer  Ann
*     view-token-0123456789    viewer    Vi
*     send-token-0123456789    sender    proxy
"""


class Person:
    """Asks as a browser does which has loaded a page."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http

    async def open(self, path: str, **options: Any) -> httpx.Response:
        return await self.http.get(
            path, headers={"Accept": "text/html"} | options.pop("headers", {}), **options
        )

    async def log_in(self, token: str, goal: str = "/") -> httpx.Response:
        form = {"token": token, "next": goal}
        return await self.http.post("/login", data=form, headers={"Accept": "text/html"})


@pytest.fixture
def tokens_file(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.write_text(TOKENS)
    return path


@pytest.fixture
async def person_factory() -> AsyncIterator[Any]:
    """Makes people, each with a browser of their own, at a gateway."""
    async with contextlib.AsyncExitStack() as stack:

        async def make(gateway: Any) -> Person:
            base = f"http://127.0.0.1:{gateway.service.port}"
            return Person(await stack.enter_async_context(httpx.AsyncClient(base_url=base, timeout=30)))

        yield make


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    async with open_provider() as opened:
        yield opened
