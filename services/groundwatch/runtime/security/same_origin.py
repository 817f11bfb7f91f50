"""Which requests may come from a browser: those of pages that this very server sent.

Somebody else's page can make its reader's browser ask any address that the browser reaches. Two things
tell such a request: the `Host` that it was sent to, where a foreign name was made to resolve to us (DNS
rebinding), and the page that sent it. A browser says both, and no page can change what it says.
"""

import ipaddress
import re
from collections.abc import Callable, Iterable

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from groundwatch.runtime.telemetry.logs import logger

PROBES = frozenset({"/healthz", "/readyz"})
"""Answered under any name: a load balancer's probe must not fail for a setting, and they hold no data."""

STATUS = {"no_host": 400, "cross_site": 403, "host": 421}
"""Of each reason for a refusal."""

TOLD = 100
"""So many foreign names are written to the log."""

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(?::([0-9]{1,5}))?", re.IGNORECASE)
_ORIGIN = re.compile(r"(https?)://(.+)", re.IGNORECASE)
_PORTS = {"http": "80", "https": "443"}


class Hosts:
    """The names under which a server is reached.

    Loopback names and addresses in digits always belong to them: a page under an address was sent from
    there, so no name was made to resolve to it.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        wanted = [pattern.lower().rstrip(".") for pattern in patterns]
        self._all = "*" in wanted
        self._names = frozenset(pattern for pattern in wanted if not pattern.startswith("*"))
        self._suffixes = tuple(pattern[1:] for pattern in wanted if pattern.startswith("*."))

    def named(self, name: str) -> bool:
        name = name.lower().rstrip(".")
        return self._all or name in self._names or name.endswith(self._suffixes)

    def served(self, name: str) -> bool:
        if self.named(name):
            return True
        name = name.lower().rstrip(".")
        return name == "localhost" or name.endswith(".localhost") or _is_address(name)


class SameOrigin:
    """Answers requests to names that are served, and of browsers those of its own pages alone."""

    def __init__(
        self, app: ASGIApp, hosts: Iterable[str], *, setting: str, pages: Callable[[str], bool] | None = None
    ) -> None:
        """`setting` is the key where the names stand, for those who are refused.

        `pages` says of a path whether other sites may send a reader there: a link to it is followed, nothing
        of it is read, and asking for it must change nothing.
        """
        self._app = app
        self._pages = pages or _no_page
        self._hosts = Hosts(hosts)
        self._setting = setting
        self._told: set[str] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        wrong = None if scope["path"] in PROBES else self._refusal(scope)
        await (wrong or self._app)(scope, receive, send)

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        headers = Headers(scope=scope)
        sent_to = headers.getlist("host")
        host = _HOST.fullmatch(sent_to[0]) if len(sent_to) == 1 else None
        if host is None:
            return _refused("no_host", "send one Host header with the name of this server")
        if not self._hosts.served(host[1]):
            self._tell(host[1])
            message = (
                f"Host '{sent_to[0][:200]}' is not served here: if it is yours, name it in {self._setting}"
            )
            return _refused("host", message)
        if self._is_own(scope, headers, sent_to[0]):
            return None
        message = (
            "a page of another site sent this: only pages of this server may ask it "
            f"(its names are in {self._setting})"
        )
        return _refused("cross_site", message)

    def _is_own(self, scope: Scope, headers: Headers, host: str) -> bool:
        """Whether no page sent it, or one of ours."""
        site = headers.get("sec-fetch-site")
        if site is None:
            # Older browsers, and all where there is no TLS: who writes, or reads across sites, says `Origin`.
            origin = headers.get("origin")
            return origin is None or self._is_origin(origin, host)
        return site.lower() in ("same-origin", "none") or (
            scope["method"] in ("GET", "HEAD")
            and headers.get("sec-fetch-mode") == "navigate"
            and headers.get("sec-fetch-dest") == "document"
            and self._pages(scope["path"])
        )

    def _is_origin(self, origin: str, host: str) -> bool:
        """Whether this is the origin of what `host` serves; a proxy before us may have changed `host`."""
        parts = _ORIGIN.fullmatch(origin)
        there = _HOST.fullmatch(parts[2]) if parts else None
        here = _HOST.fullmatch(host)
        if parts is None or there is None or here is None:
            return False
        usual = _PORTS[parts[1].lower()]
        if there[1].lower() == here[1].lower() and (there[2] or usual) == (here[2] or usual):
            return True
        return there[2] is None and self._hosts.named(there[1])

    def _tell(self, name: str) -> None:
        if name not in self._told and len(self._told) < TOLD:
            self._told.add(name)
            logger.warning("http.host", host=name[:200], setting=self._setting)


def _no_page(path: str) -> bool:
    return False


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _refused(reason: str, message: str) -> JSONResponse:
    return JSONResponse({"error": message, "reason": reason}, STATUS[reason])
