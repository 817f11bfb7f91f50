"""Fetching by address: what may be fetched, from where, how much at once and for how long."""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from groundwatch.errors import InputError, TransientError
from groundwatch.gateway.fetching.stores import Stores
from groundwatch.gateway.fetching.web import Resolve, Web, resolver
from groundwatch.image_files import ImageFolders
from groundwatch.runtime.security.networks import Networks
from groundwatch.runtime.security.urls import PORTS, STORES, AllowList, Url, read_url
from groundwatch.runtime.settings.gateway import FetchSettings
from groundwatch.runtime.stores.image_checks import Turns
from groundwatch.runtime.telemetry.metrics import Metrics

WAIT_SECONDS = 5.0
"""How long a fetch waits for its turn before its sender is told to come again."""

SILENT_SECONDS = 30.0
"""How long a machine waits for name servers that are silent: three of them, each twice for five seconds."""

SETTING = "gateway.fetch.allow"


class Fetcher:
    """Fetches addresses that `gateway.fetch.allow` covers, with senders taking turns."""

    def __init__(self, settings: FetchSettings, metrics: Metrics, *, resolve: Resolve | None = None) -> None:
        """Raises `UsageError` where what the list needs is not installed or cannot be set so."""
        self._settings = settings
        self._metrics = metrics
        self._allowed = AllowList(settings.allow)
        self._turns = Turns(settings.at_once)
        self._threads = ThreadPoolExecutor(settings.at_once, thread_name_prefix="fetch")
        # A look-up that was given up holds its thread on: there are as many as can be given up meanwhile.
        given_up = math.ceil(SILENT_SECONDS / settings.seconds)
        self._looking_up = ThreadPoolExecutor(settings.at_once * (1 + given_up), thread_name_prefix="look-up")
        self._web = Web(
            self._allowed,
            Networks(settings.networks),
            resolve or resolver(self._looking_up),
            at_once=settings.at_once,
            max_redirects=settings.max_redirects,
        )
        self._stores = Stores(
            {(one.scheme, one.host) for one in self._allowed.patterns if one.scheme in STORES},
            settings.options,
        )
        self._folders = [Path(one.path) for one in self._allowed.patterns if one.scheme == "file"]
        for result in ("fetched", "not_allowed", "refused", "failed"):
            metrics.fetches.labels(result)

    async def close(self) -> None:
        await self._web.close()
        for threads in (self._threads, self._looking_up):
            threads.shutdown(wait=False, cancel_futures=True)

    def refusal(self, url: str) -> str:
        """Why this address is not fetched whatever is there; empty if it is."""
        try:
            self._read(url)
        except InputError as error:
            self._metrics.fetches.labels("not_allowed").inc()
            return str(error)
        return ""

    async def fetch(self, url: str, sender: str, *, most: int) -> bytes:
        """The bytes there, `most` at most. Raises as `fetched` does."""
        async with self.fetched(url, sender, most=most) as data:
            return data

    @contextlib.asynccontextmanager
    async def fetched(self, url: str, sender: str, *, most: int) -> AsyncIterator[bytes]:
        """The bytes there; as long as the block works with them, they count among what is fetched at once.

        Raises `InputError` for what stays as it is, `TransientError` for what may be otherwise later.
        """
        read = self._read(url)
        async with contextlib.AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(self._turns.turn(sender, WAIT_SECONDS))
                data = await self._get(read, most)
            except TimeoutError as error:
                self._metrics.fetches.labels("failed").inc()
                raise TransientError("too many addresses wait to be fetched; send it again") from error
            except TransientError:
                self._metrics.fetches.labels("failed").inc()
                raise
            except InputError:
                self._metrics.fetches.labels("refused").inc()
                raise
            self._metrics.fetches.labels("fetched").inc()
            yield data

    def _read(self, url: str) -> Url:
        if not self._allowed.patterns:
            raise InputError(f"addresses are not fetched here: list what may be fetched in {SETTING}")
        read = read_url(url)
        if not self._allowed.covers(read):
            raise InputError(f"{read.shown} is not covered by {SETTING}")
        return read

    async def _get(self, url: Url, most: int) -> bytes:
        seconds = self._settings.seconds
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                if url.scheme in PORTS:
                    return await self._web.get(url, most)
                if url.scheme in STORES:
                    return await self._stores.get(url, most)
                loop = asyncio.get_running_loop()
                return await loop.run_in_executor(self._threads, self._file, url, most)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise TransientError(f"{url.shown} was not there within {seconds:g} s") from error

    def _file(self, url: Url, most: int) -> bytes:
        try:
            return ImageFolders(self._folders, max_bytes=most).read(url.path)
        except FileNotFoundError as error:
            raise InputError(f"{url.shown} is not there") from error
