"""One connection to the gateway, used by one thread."""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    import httpx

MAX_REPLY = 1024 * 1024
CONNECT_SECONDS = 3.0
ANSWER_SECONDS = 30.0
"""A gateway itself waits for a full stream for up to ten."""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    status: int
    body: bytes = b""
    retry_after: float | None = None


class Connection:
    """Posts to one gateway. Whatever is wrong on the way is raised as it comes."""

    def __init__(self, address: str, token: str) -> None:
        """Raises `ValueError` for what is no address or no token."""
        # Here, where the application makes its recorder: OpenAI's client looks for httpx among the modules
        # at each call, and fails where another thread is half way through importing it.
        import httpx  # noqa: F401

        parts = urllib.parse.urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(
                f"'{address}' is no address of a gateway: write http://HOST:PORT or https://HOST"
            )
        if token and not (token.isascii() and token.isprintable() and " " not in token):
            raise ValueError("the token has characters that no token has")
        self._address = address.rstrip("/")
        self._secure = parts.scheme == "https"
        self._host = parts.hostname
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._transport: httpx.HTTPTransport | None = None

    def post(self, path: str, content: Iterable[bytes] | bytes, media_type: str, seconds: float) -> Reply:
        """`seconds` bound connecting, and every wait for the gateway to take or say something."""
        import httpx

        # Not by `httpx.Client`: it tells of each request in the application's log.
        if self._transport is None:
            self._transport = httpx.HTTPTransport(verify=self._secure, proxy=self._proxy())
        timeout = {
            "connect": min(CONNECT_SECONDS, seconds),
            "read": seconds,
            "write": seconds,
            "pool": seconds,
        }
        request = httpx.Request(
            "POST",
            f"{self._address}{path}",
            headers={"Content-Type": media_type, **self._headers},
            content=content,
            extensions={"timeout": timeout},
        )
        response = self._transport.handle_request(request)
        try:
            return Reply(
                status=response.status_code,
                body=_read(response),
                retry_after=_seconds(response.headers.get("retry-after")),
            )
        finally:
            response.close()

    def close(self) -> None:
        """Whoever posts again connects again."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()

    def _proxy(self) -> Any:
        import urllib.request

        if urllib.request.proxy_bypass(self._host):
            return None
        return urllib.request.getproxies().get("https" if self._secure else "http")


def _read(response: httpx.Response) -> bytes:
    read = bytearray()
    for chunk in response.iter_bytes():
        read += chunk
        if len(read) > MAX_REPLY:
            break
    return bytes(read)


def _seconds(header: str | None) -> float | None:
    """A Retry-After in seconds; a date is taken for none."""
    try:
        return min(max(float(header), 0.0), 3600.0) if header else None
    except ValueError:
        return None
