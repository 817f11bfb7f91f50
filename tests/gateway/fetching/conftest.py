"""Fetchers, and a name server of our own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.support.image_server import Server

from groundwatch.gateway.fetching import Fetcher
from groundwatch.runtime.settings.gateway import FetchSettings
from groundwatch.runtime.telemetry.metrics import Metrics


@pytest.fixture
def server(image_server: Server) -> Server:
    return image_server


class Names:
    """A name server: each name's addresses, one set for each time it is asked, the last for ever."""

    def __init__(self, **names: list[list[str]]) -> None:
        self.names = {name.replace("_", "."): sets for name, sets in names.items()}
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> list[str]:
        self.asked.append(host)
        sets = self.names.get(host, [["127.0.0.1"]])
        return sets.pop(0) if len(sets) > 1 else sets[0]


@pytest.fixture
async def fetcher_factory() -> AsyncIterator[Callable[..., Fetcher]]:
    """Makes fetchers that may connect to 127.0.0.1; keyword arguments are settings of `[gateway.fetch]`.

    Without `own_names` it is the machine that resolves them.
    """
    made: list[Fetcher] = []

    def make(resolve: Any = None, *, own_names: bool = True, **changes: Any) -> Fetcher:
        settings = FetchSettings(**{"networks": ("127.0.0.1",), "seconds": 5.0} | changes)
        fetcher = Fetcher(settings, Metrics(), resolve=resolve or (Names() if own_names else None))
        made.append(fetcher)
        return fetcher

    yield make
    for one in made:
        await one.close()
