"""Fetching what a response names by its address: from an allow-list only, and bounded in every way."""

import asyncio
import contextlib
import math
import socket
import ssl
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpcore
import httpx

from groundwatch.errors import InputError, MissingExtraError, SettingsError, TransientError
from groundwatch.gateway.refusals import bounded
from groundwatch.image_files import ImageFolders
from groundwatch.runtime.security.networks import Networks
from groundwatch.runtime.security.urls import PORTS, STORES, AllowList, Url, read_location, read_url, shown
from groundwatch.runtime.settings.gateway import FetchSettings
from groundwatch.runtime.stores.image_checks import Turns
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.runtime.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from obstore.store import GCSStore, S3Store

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""All addresses of a name. Raises `OSError`."""

HEADERS = (
    ("User-Agent", "groundwatch"),
    ("Accept", "*/*"),
    ("Accept-Encoding", "identity"),
    ("Connection", "close"),
)
REDIRECTS = frozenset({301, 302, 303, 307, 308})
PASSING = frozenset({408, 425, 429})
"""Statuses below 500 with which the same may be there later."""


def resolver(threads: Executor) -> Resolve:
    """The machine's own."""

    async def resolve(host: str, port: int) -> list[str]:
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(
            threads, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        )
        return list(dict.fromkeys(str(one[4][0]) for one in found))

    return resolve


class _Connections(httpcore.AsyncNetworkBackend):
    """Connects to addresses that are allowed, and to no name."""

    def __init__(self, networks: Networks, resolve: Resolve) -> None:
        self._networks = networks
        self._resolve = resolve
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        addresses = await self._addresses(host, port)
        failure: Exception = TransientError(f"{host} has no address")
        for address in addresses:
            began = time.monotonic()
            try:
                return await self._inner.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
            if timeout is not None:
                timeout = max(0.0, timeout - (time.monotonic() - began))
        raise failure

    async def _addresses(self, host: str, port: int) -> list[str]:
        try:
            found = await self._resolve(host, port)
        except socket.gaierror as error:
            if error.errno in (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)):
                raise InputError(f"no host has the name {host}") from error
            raise TransientError(f"the name {host} cannot be looked up now") from error
        except OSError as error:
            raise TransientError(f"the name {host} cannot be looked up now") from error
        allowed = [self._networks.allowed(one) for one in found]
        if None in allowed:
            # All or nothing: a name with an address of each kind is no accident.
            logger.warning("fetch.not_public", host=host, addresses=found[:8])
            raise InputError(
                f"{host} is at an address that is not public: the operator can list its network in "
                "gateway.fetch.networks"
            )
        return [one for one in allowed if one is not None]


class Web:
    def __init__(
        self,
        allowed: AllowList,
        networks: Networks,
        resolve: Resolve,
        *,
        at_once: int,
        max_redirects: int,
    ) -> None:
        self._allowed = allowed
        self._max_redirects = max_redirects
        # No proxy of the environment, and no connection that is used again: each is looked at anew.
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=httpx.create_ssl_context(),
            max_connections=at_once,
            max_keepalive_connections=0,
            network_backend=_Connections(networks, resolve),
        )

    async def close(self) -> None:
        await self._pool.aclose()

    async def get(self, url: Url, most: int) -> bytes:
        """The body. Raises `InputError` for what will not change, `TransientError` for what may."""
        first = url.shown
        for _ in range(self._max_redirects + 1):
            try:
                got = await self._one(url, most)
            except (httpcore.TimeoutException, httpcore.NetworkError, httpcore.RemoteProtocolError) as error:
                raise _failure(url, error) from error
            except httpcore.LocalProtocolError as error:
                raise InputError(f"{url.shown} cannot be asked for ({error})") from error
            if isinstance(got, bytes):
                return got
            url = self._follow(url, got)
        raise InputError(f"{first} leads on more than {self._max_redirects} times")

    async def _one(self, url: Url, most: int) -> bytes | str:
        """The body, or where it is said to be."""
        target = httpcore.URL(
            scheme=url.scheme.encode(), host=url.host.encode(), port=url.port, target=url.target.encode()
        )
        async with self._pool.stream("GET", target, headers=[("Host", url.place), *HEADERS]) as reply:
            said = httpx.Headers(reply.headers)
            if reply.status in REDIRECTS:
                return str(said.get("location", ""))
            if reply.status != 200:
                message = f"{url.shown} is answered with status {reply.status}"
                passing = reply.status >= 500 or reply.status in PASSING
                raise TransientError(message) if passing else InputError(message)
            if (coding := said.get("content-encoding", "identity").strip().lower()) not in ("", "identity"):
                raise InputError(f"{url.shown} is sent as {coding[:40]}, though it was asked for as it is")
            length = said.get("content-length", "")
            if length.isascii() and length.isdigit() and (len(length) > 18 or int(length) > most):
                raise _too_large(url, most)
            return await _body(url, reply.aiter_stream(), most)

    def _follow(self, url: Url, location: str) -> Url:
        if not location.isascii() or not location.isprintable() or not location:
            raise InputError(f"{url.shown} leads on to nowhere")
        try:
            target = read_location(url, location)
        except InputError:
            target = None
        if target is None or target.scheme not in PORTS or not self._allowed.covers(target):
            # Where somebody else's server leads is for the operator to know, not for who named the first.
            logger.warning("fetch.leads_on", url=url.shown, to=shown(location))
            raise InputError(f"{url.shown} leads on to where gateway.fetch.allow does not cover")
        return target


def _failure(url: Url, error: Exception) -> InputError | TransientError:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return InputError(f"{url.shown}: its certificate does not hold ({cause.verify_message})")
        cause = cause.__cause__ or cause.__context__
    return TransientError(f"{url.shown} cannot be fetched now ({str(error)[:200] or type(error).__name__})")


async def _body(url: Url, pieces: AsyncIterable[Any], most: int) -> bytes:
    body = bytearray()
    async for piece in pieces:
        body += piece
        if len(body) > most:
            raise _too_large(url, most)
    return bytes(body)


def _too_large(url: Url, most: int) -> InputError:
    return InputError(f"{url.shown} has more than {most} bytes")


PIECE = 256 * 1024


class Stores:
    """One client for each bucket of the allow-list; a bucket's name cannot be another's choice."""

    def __init__(self, buckets: set[tuple[str, str]], options: Mapping[Any, Mapping[str, Any]]) -> None:
        """Raises `MissingExtraError` without what it takes, `SettingsError` for options that cannot be."""
        self._stores = {
            (scheme, bucket): _store(scheme, bucket, options.get(scheme, {})) for scheme, bucket in buckets
        }

    async def get(self, url: Url, most: int) -> bytes:
        """The object's bytes. Raises `InputError` for what will not change, `TransientError` for what may."""
        import obstore
        from obstore import exceptions

        store = self._stores[url.scheme, url.host]
        try:
            found = await obstore.get_async(store, url.path[1:])
            if found.meta["size"] > most:
                raise _too_large(url, most)
            return await _body(url, found.stream(min_chunk_size=PIECE), most)
        except (exceptions.NotFoundError, FileNotFoundError) as error:
            raise InputError(f"{url.shown} is not there") from error
        except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError, PermissionError) as error:
            logger.warning("fetch.not_permitted", url=url.shown, error=_first_line(error))
            raise InputError(f"{url.shown} may not be read by this gateway") from error
        except exceptions.BaseError as error:
            logger.info("fetch.failed", url=url.shown, error=_first_line(error))
            raise TransientError(f"{url.shown} cannot be fetched now") from error


def _store(scheme: str, bucket: str, options: Mapping[str, Any]) -> "S3Store | GCSStore":
    try:
        from obstore.exceptions import BaseError
        from obstore.store import GCSStore, S3Store
    except ImportError as error:
        raise MissingExtraError("what fetches from s3:// and gs:// (obstore)", "archive") from error
    config: Any = dict(options)
    retry: Any = {"max_retries": 1}
    try:
        if scheme == "s3":
            return S3Store(bucket, config=config, retry_config=retry)
        return GCSStore(bucket, config=config, retry_config=retry)
    except (BaseError, ValueError, TypeError) as error:
        raise SettingsError(f"setting 'gateway.fetch.options': {scheme}: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


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
        async with bounded(self._settings.seconds, f"{url.shown} was not there"):
            if url.scheme in PORTS:
                return await self._web.get(url, most)
            if url.scheme in STORES:
                return await self._stores.get(url, most)
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, self._file, url, most)
        raise AssertionError

    def _file(self, url: Url, most: int) -> bytes:
        try:
            return ImageFolders(self._folders, max_bytes=most).read(url.path)
        except FileNotFoundError as error:
            raise InputError(f"{url.shown} is not there") from error
