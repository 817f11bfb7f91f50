"""Who calls, over HTTP and gRPC: by a token, by a session, or from where nobody is asked."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping
from typing import TYPE_CHECKING

from groundwatch.gateway.access.sessions import Cookies, LoginRefused, OidcAttempt, Session
from groundwatch.gateway.callers import EVERYBODY, Caller, Tokens
from groundwatch.gateway.refusals import Refused
from groundwatch.runtime.settings.gateway import GatewaySettings
from groundwatch.runtime.settings.login import ALL, LoginSettings, OidcGroup, is_loopback

if TYPE_CHECKING:
    from groundwatch.gateway.access.oidc import OidcProvider

CALLBACK = "/login/oidc/callback"
"""Where the provider sends browsers back."""

ELSEWHERE = (
    "this gateway asks nobody who they are, and so answers its own machine alone: set gateway.tokens_file or "
    "gateway.login.oidc, or gateway.open = true where whoever reaches it may do everything"
)


class Access:
    """Everybody whom a gateway knows. Raises `SettingsError` for what its settings name and is not there."""

    def __init__(self, settings: GatewaySettings) -> None:
        self.tokens = Tokens(settings.tokens_file)
        self.cookies = Cookies(settings.login)
        self.oidc = settings.login.oidc
        self.provider = _provider(settings.login)
        self._open = settings.open
        self._host = settings.host
        self._marks: dict[str, bytes] = {}

    @property
    def asks(self) -> bool:
        """Whether anybody is asked who they are."""
        return self.tokens.wanted or self.oidc is not None

    @property
    def notes(self) -> list[str]:
        """That others than this machine reach a gateway which answers none of them."""
        return [ELSEWHERE] if not (self.asks or self._open or is_loopback(self._host)) else []

    def bearer(self, authorization: str | None, host: str) -> Caller:
        """Who says `Bearer TOKEN` at `host`. Raises `Refused`."""
        return self.tokens.bearer(authorization) if self.asks else self.unasked(host)

    def unasked(self, host: str) -> Caller:
        """Anybody, where nobody is asked. Raises `Refused` for who comes from elsewhere."""
        if not (self._open or is_loopback(host)):
            raise Refused("elsewhere", ELSEWHERE)
        return EVERYBODY

    def in_session(self, cookies: Mapping[str, str]) -> Caller | None:
        """Who is in the session of a browser, as of now; None for none, or one that has ended."""
        session = self.cookies.read(cookies, Session)
        return self.caller_in(session) if session is not None else None

    def caller_in(self, session: Session) -> Caller | None:
        """Who is in a session, as of now; None where it has ended."""
        if session.token:
            caller = self._by_mark(session.token)
            return caller if caller is not None and caller.may("viewer") else None
        group = self.group_of(frozenset({session.group}))
        if group is None or group.name != session.group:
            return None
        only = None if group.tenant == ALL else group.tenant
        return Caller(only=only, role=group.role, name=session.name)

    def log_in(self, token: str) -> Session:
        """A session of whoever has this token. Raises `Refused`."""
        caller = self.tokens.caller(token)
        if not caller.may("viewer"):
            raise Refused("role", "this token is for sending alone: there is nothing to see with it")
        digest = self.tokens.digest(token)
        self._marks[mark := self.cookies.mark(digest)] = digest
        return self.cookies.new_session(token=mark)

    async def log_in_person(
        self, attempt: OidcAttempt, *, code: str, state: str, issuer: str | None, error: str
    ) -> Session:
        """A session of whom the provider sends back. Raises `LoginRefused`, or `TransientError` when the
        provider does not answer."""
        assert self.oidc is not None and self.provider is not None
        if not hmac.compare_digest(attempt.state.encode(), state.encode("utf-8", "replace")):
            raise LoginRefused("this is the answer to another login")
        if issuer not in (None, self.oidc.issuer):
            raise LoginRefused("this is the answer of another provider")
        if error or not code:
            raise LoginRefused(f"the provider says '{error[:100] or 'nothing'}'")
        person = await self.provider.person(attempt, code)
        group = self.group_of(person.groups)
        if group is None:
            raise LoginRefused("you are in none of the groups that may come in")
        return self.cookies.new_session(group=group.name, name=person.name)

    def group_of(self, names: frozenset[str]) -> OidcGroup | None:
        """The first of our groups that has somebody of these in it."""
        groups = self.oidc.groups if self.oidc is not None else ()
        return next((group for group in groups if group.name == ALL or group.name in names), None)

    def _by_mark(self, mark: str) -> Caller | None:
        if mark not in self._marks:
            self._marks = {self.cookies.mark(digest): digest for digest in self.tokens.digests()}
        digest = self._marks.get(mark)
        return None if digest is None else self.tokens.by_digest(digest)


def _provider(settings: LoginSettings) -> OidcProvider | None:
    if settings.oidc is None:
        return None
    # Imported only when wanted: few gateways need it.
    from groundwatch.gateway.access.oidc import OidcProvider

    return OidcProvider(settings.oidc, settings.url + CALLBACK)


def host_of(peer: str) -> str:
    """The address in what gRPC says of a caller: `ipv4:127.0.0.1:5432`, `ipv6:[::1]:5432`, `unix:…`."""
    kind, _, rest = peer.partition(":")
    if kind == "unix":
        return "localhost"
    host = rest.rpartition(":")[0].replace("%5B", "").replace("%5D", "").strip("[]")
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return ""
