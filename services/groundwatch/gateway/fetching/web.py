"""Fetching over http(s): a name is resolved once, and what is connected to is what was looked at."""

import asyncio
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Executor

import httpcore
import httpx

from groundwatch.errors import InputError, TransientError
from groundwatch.runtime.security.networks import Networks
from groundwatch.runtime.security.urls import PORTS, AllowList, Url, read_location, shown
from groundwatch.runtime.telemetry.logs import logger

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
        headers = [("Host", url.place), *HEADERS]
        async with self._pool.stream("GET", target, headers=headers) as reply:
            said = {name.lower().decode("latin-1"): text.decode("latin-1") for name, text in reply.headers}
            if reply.status in REDIRECTS:
                return said.get("location", "")
            if reply.status != 200:
                message = f"{url.shown} is answered with status {reply.status}"
                if reply.status >= 500 or reply.status in PASSING:
                    raise TransientError(message)
                raise InputError(message)
            if (coding := said.get("content-encoding", "identity").strip().lower()) not in ("", "identity"):
                raise InputError(f"{url.shown} is sent as {coding[:40]}, though it was asked for as it is")
            length = said.get("content-length", "")
            if length.isascii() and length.isdigit() and (len(length) > 18 or int(length) > most):
                raise InputError(f"{url.shown} has more than {most} bytes")
            body = bytearray()
            async for piece in reply.aiter_stream():
                body += piece
                if len(body) > most:
                    raise InputError(f"{url.shown} has more than {most} bytes")
            return bytes(body)

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
