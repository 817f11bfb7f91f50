"""Who calls, over HTTP and gRPC alike, and what they may: tokens, sessions of people, roles.

A viewer reads, a reviewer also gives opinions, an operator may do everything, and a sender sends and nothing
else. A tenant's run is kept under its name and a mark of the tenant, so that a name which another has used
tells nobody anything: it is neither taken nor found. A session is a signed cookie, and nothing is kept of it
here: who is in it is looked up with each request, so that a token which is taken out of its file, or a group
out of the settings, ends its sessions.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import msgspec
from starlette.middleware.sessions import SessionMiddleware
from starlette.types import ASGIApp

from groundwatch.errors import SettingsError
from groundwatch.events import LIVE, ResponseScored
from groundwatch.gateway.refusals import Refused
from groundwatch.gateway.replays import Replay
from groundwatch.keys import digest
from groundwatch.reporting.compare.compare import SaidOutcome
from groundwatch.runtime.security.secrets import read_secret
from groundwatch.runtime.settings.gateway import GatewaySettings
from groundwatch.runtime.settings.login import ALL, LoginSettings, OidcGroup, OidcSettings, Role, is_loopback
from groundwatch.runtime.telemetry.logs import logger

if TYPE_CHECKING:
    from groundwatch.gateway.oidc import OidcProvider

MAY: dict[Role, frozenset[Role]] = {
    "viewer": frozenset({"viewer"}),
    "reviewer": frozenset({"viewer", "reviewer"}),
    "operator": frozenset({"viewer", "reviewer", "operator", "sender"}),
    "sender": frozenset({"sender"}),
}
"""What each role may do: the needs that it meets."""


class Need(msgspec.Struct, frozen=True):
    """What somebody must be: of a role that meets `role`, of whatever role, or nobody in particular.

    `all_tenants` says what it shows of all tenants, which is not for one of them. A `page` is what a link may
    lead to; who has not logged in is sent to the login.
    """

    role: Role | Literal["anybody", "known"]
    all_tenants: str = ""
    page: bool = False


ANYBODY = Need("anybody")
KNOWN = Need("known")
KNOWN_PAGE = Need("known", page=True)
SEND = Need("sender")
VIEW = Need("viewer")
REVIEW = Need("reviewer")
OPERATE = Need("operator")
LOGIN = Need("anybody", page=True)
VIEW_PAGE = Need("viewer", page=True)
REVIEW_PAGE = Need("reviewer", page=True)


LOOK_SECONDS = 1.0
SHORTEST_TOKEN = 16
"""Characters of a token: shorter ones are guessed."""

LONGEST_RUN = 48
"""Characters of a tenant's name for a run: with the mark it is a run's name like any other."""

LONGEST_NAME = 64
JUDGE = "judge:"
"""With which the names of models begin that give opinions as people do."""

SETTING = "gateway.tokens_file"


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which responses somebody means; empty matches everything."""

    model: str = ""
    tenant: str = ""
    protocol: str = ""

    def covers(self, tenant: str, model: str, protocol: str) -> bool:
        return self.tenant in ("", tenant) and self.model in ("", model) and self.protocol in ("", protocol)

    def matches(self, event: ResponseScored | SaidOutcome) -> bool:
        return self.covers(event.tenant, event.model, event.protocol)


class Caller(msgspec.Struct, frozen=True):
    """Who calls: one tenant, or with None somebody who may act for all.

    `peer` is where the call comes from: callers of the same tenant, or else of the same place, wait behind
    each other. `name` is a person's, or a program's, empty where nobody was asked; `agent` is what their
    program calls itself.
    """

    only: str | None = None
    peer: str = ""
    role: Role = "operator"
    name: str = ""
    agent: str = ""

    @property
    def sender(self) -> str:
        return f"peer {self.peer}" if self.only is None else f"tenant {self.only}"

    def tenant(self, asked: str, field: str = "tenant") -> str:
        """The tenant that a request is about. Raises `Refused` where it is none of the caller's."""
        if self.only is None:
            return asked
        if asked not in ("", self.only):
            raise Refused("other_tenant", f"this token is good for tenant '{self.only}' alone", field=field)
        return self.only

    def tenants(self, asked: Iterable[str]) -> tuple[str, ...]:
        """The same for a list, where none means all."""
        return tuple(self.tenant(one, "tenants") for one in asked) or ((self.only,) if self.only else ())

    def owner(self, asked: str, name: str) -> str:
        """The tenant whose response `name` is. Raises `Refused`."""
        if self.only is None:
            return asked
        try:
            return self.tenant(asked)
        except Refused as error:
            raise error.but(id=name) from None

    def may(self, role: Role) -> bool:
        return role in MAY[self.role]

    def meets(self, need: Need) -> bool:
        try:
            self.check(need)
        except Refused:
            return False
        return True

    def check(self, need: Need) -> None:
        """Raises `Refused` where this is not for them."""
        if need.role == "anybody" or need.role == "known":
            return
        if need.role not in MAY[self.role]:
            raise Refused("role", f"this is for the role {need.role}, and not for a {self.role}")
        if need.all_tenants and self.only is not None:
            own = f"this token is good for tenant '{self.only}' alone"
            message = f"{need.all_tenants} is about all tenants, and {own}"
            raise Refused("all_tenants", message)

    @property
    def _mark(self) -> str:
        """What ends the names of this tenant's runs. Who may act for all calls every run by its full name."""
        return "" if self.only is None else f"-t{digest(self.only)[:12]}"

    def check_run(self, name: str) -> str:
        """What is wrong with a name for a new run; empty if nothing is, as far as is known here."""
        if not name:
            return "is missing: name the new run"
        if self.only is not None and len(name) > LONGEST_RUN:
            return f"has {len(name)} characters; at most {LONGEST_RUN} are taken"
        return ""

    def full_run(self, name: str) -> str:
        """The run's own name; live traffic, and no name, are everybody's."""
        return name if name in ("", LIVE) else name + self._mark

    def in_words(self, text: str) -> str:
        """A run's name, or a sentence with some, as the caller knows them."""
        return text.replace(self._mark, "") if self._mark else text

    def shown(self, state: Replay) -> Replay:
        """A replay as the caller knows it."""
        told = {name: self.in_words(getattr(state, name)) for name in ("run", "source", "reason")}
        return msgspec.structs.replace(state, **told)


EVERYBODY = Caller()


class Tokens:
    """The tokens there are, none without a file. Only their digests are kept."""

    def __init__(self, path: str) -> None:
        self._path = Path(path) if path else None
        self._callers: dict[bytes, Caller] = {}
        self._stamp: tuple[int, int] = (0, 0)
        self._looked = time.monotonic()
        if self._path is not None:
            self._read(self._path)

    @property
    def wanted(self) -> bool:
        return self._path is not None

    def bearer(self, authorization: str | None) -> Caller:
        """Who says `Bearer TOKEN`. Raises `Refused` without a token that is known."""
        kind, _, token = (authorization or "").partition(" ")
        if kind.lower() != "bearer":
            raise Refused("unauthenticated", "send a token as 'authorization: Bearer TOKEN'")
        return self.caller(token.strip())

    def caller(self, token: str) -> Caller:
        caller = self.by_digest(_digest(token))
        if caller is None:
            raise Refused("unauthenticated", "the token is not known here")
        return caller

    def digests(self) -> list[bytes]:
        self._look()
        return list(self._callers)

    def by_digest(self, digest: bytes) -> Caller | None:
        self._look()
        return self._callers.get(digest)

    def _look(self) -> None:
        """Read the file again when it has changed; one that cannot be read leaves all as it was."""
        now = time.monotonic()
        if self._path is None or now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        try:
            self._read(self._path)
        except SettingsError as error:
            logger.warning("gateway.tokens", error=str(error))

    def _read(self, path: Path) -> None:
        try:
            found = path.stat()
            if (stamp := (found.st_mtime_ns, found.st_ino)) != self._stamp:
                self._callers = _callers(path, path.read_text("utf-8").splitlines())
                self._stamp = stamp
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise SettingsError(f"setting '{SETTING}': cannot read {path} ({why})") from error


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _callers(path: Path, lines: Sequence[str]) -> dict[bytes, Caller]:
    """Whose each token is. Raises `SettingsError` naming the line, never the token."""
    found: dict[bytes, Caller] = {}
    for number, line in enumerate(lines, 1):
        parts = line.split()
        if not parts or parts[0].startswith("#"):
            continue
        where = f"setting '{SETTING}': {path}:{number}"
        if not 2 <= len(parts) <= 4:
            raise SettingsError(
                f"{where}: write TENANT TOKEN, or * TOKEN for all tenants; then a role and a name, if any"
            )
        tenant, token, role, name = (*parts, *("operator", "")[len(parts) - 2 :])
        if len(token) < SHORTEST_TOKEN:
            raise SettingsError(f"{where}: a token needs at least {SHORTEST_TOKEN} characters")
        if _digest(token) in found:
            raise SettingsError(f"{where}: this token stands there already")
        if role not in get_args(Role):
            raise SettingsError(f"{where}: no role '{role[:64]}': it is one of {', '.join(get_args(Role))}")
        if name and (wrong := wrong_name(name)):
            raise SettingsError(f"{where}: the name {wrong}")
        if role == "reviewer" and not name:
            raise SettingsError(
                f"{where}: a reviewer needs a name, or two of them would count as one: write TENANT TOKEN "
                "reviewer NAME"
            )
        only = None if tenant == ALL else tenant
        name = name or only or "operator"
        found[_digest(token)] = Caller(only=only, role=cast("Role", role), name=name)
    if not found:
        raise SettingsError(f"setting '{SETTING}': {path} has no token: nobody could call")
    return found


def wrong_name(name: str) -> str:
    """What is wrong with the name of a person or program; empty if nothing is."""
    if len(name) > LONGEST_NAME:
        return f"has {len(name)} characters; at most {LONGEST_NAME} are taken"
    if not name.isprintable() or not name.strip():
        return "is empty, or has characters that are not shown"
    if name.startswith(JUDGE):
        return f"begins with {JUDGE}, as those of models do"
    return ""


SHORTEST_SECRET = 32
"""Characters of a secret that signs."""


class LoginRefused(Exception):
    """Somebody may not come in; the message says why."""


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who has come in with a token, of which `token` is the mark, or by a group of the provider."""

    until: float
    token: str = ""
    group: str = ""
    name: str = ""


KEPT = "login"
"""Where it stands in what Starlette keeps in a signed cookie."""


def cookie_secret(settings: LoginSettings, environment: Mapping[str, str] | None = None) -> str:
    """The secret that signs cookies; a new one where none is named. Raises `SettingsError`."""
    file, env = settings.cookie_secret_file, settings.cookie_secret_env
    setting = "gateway.login.cookie_secret"
    secret = read_secret(setting, file=file, env=env, environment=environment)
    if not (file or env):
        return secrets.token_hex(32)
    if len(secret) < SHORTEST_SECRET:
        raise SettingsError(
            f"setting '{setting}_{'env' if env else 'file'}': the secret needs at least {SHORTEST_SECRET} "
            "characters: make one with openssl rand -hex 32"
        )
    return secret


def client_secret(settings: OidcSettings, environment: Mapping[str, str] | None = None) -> str:
    """The gateway's secret at the provider, empty for a client that has none. Raises `SettingsError`."""
    file, env = settings.client_secret_file, settings.client_secret_env
    return read_secret("gateway.login.oidc.client_secret", file=file, env=env, environment=environment)


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
        self._login = settings.login
        self._secret = cookie_secret(settings.login)
        self.oidc = settings.login.oidc
        self.provider = _provider(settings.login)
        self.asks = self.tokens.wanted or self.oidc is not None
        """Whether anybody is asked who they are."""
        self._open = settings.open
        self._host = settings.host
        self._marks: dict[str, bytes] = {}

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

    def sessions(self, app: ASGIApp) -> ASGIApp:
        """The application with sessions in a cookie of this server, which no script reads."""
        prefix = "__Host-" if self._login.secure else ""
        return SessionMiddleware(
            app,
            self._secret,
            session_cookie=f"{prefix}groundwatch-session",
            max_age=int(3600 * self._login.hours),
            https_only=self._login.secure,
        )

    def in_session(self, kept: Mapping[str, Any]) -> Caller | None:
        """Who is in the session of a browser, as of now; None for none, or one that has ended."""
        try:
            session = msgspec.convert(kept.get(KEPT), Session)
        except msgspec.ValidationError:
            # None, or one of another version.
            return None
        return self.caller_in(session) if time.time() < session.until else None

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
        digest = _digest(token)
        self._marks[mark := self._mark(digest)] = digest
        return self._new_session(token=mark)

    def log_in_person(self, name: str, groups: frozenset[str]) -> Session:
        """A session of whom the provider vouches for. Raises `LoginRefused`."""
        group = self.group_of(groups)
        if group is None:
            raise LoginRefused("you are in none of the groups that may come in")
        return self._new_session(group=group.name, name=name)

    def _new_session(self, *, token: str = "", group: str = "", name: str = "") -> Session:
        until = time.time() + 3600 * self._login.hours
        return Session(until=until, token=token, group=group, name=name)

    def group_of(self, names: frozenset[str]) -> OidcGroup | None:
        """The first of our groups that has somebody of these in it."""
        groups = self.oidc.groups if self.oidc is not None else ()
        return next((group for group in groups if group.name == ALL or group.name in names), None)

    def _by_mark(self, mark: str) -> Caller | None:
        if mark not in self._marks:
            self._marks = {self._mark(digest): digest for digest in self.tokens.digests()}
        digest = self._marks.get(mark)
        return None if digest is None else self.tokens.by_digest(digest)

    def _mark(self, digest: bytes) -> str:
        """The mark of a token in cookies, from which nobody learns the token."""
        return hmac.new(self._secret.encode(), b"token\0" + digest, hashlib.sha256).hexdigest()


def _provider(settings: LoginSettings) -> OidcProvider | None:
    if settings.oidc is None:
        return None
    # Imported only when wanted: few gateways need it.
    from groundwatch.gateway.oidc import OidcProvider

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
