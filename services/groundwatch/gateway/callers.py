"""Who calls, over HTTP and gRPC alike: tenants' tokens, and the names that each tenant has for its runs.

A tenant's run is kept under its name and a mark of the tenant, so that a name which another has used tells
nobody anything: it is neither taken nor found.
"""

import hashlib
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import cast, get_args

import msgspec

from groundwatch.errors import SettingsError
from groundwatch.events import LIVE, ResponseScored
from groundwatch.gateway.access.roles import MAY, Need
from groundwatch.gateway.refusals import Refused
from groundwatch.gateway.replays import Replay
from groundwatch.keys import digest
from groundwatch.reporting.compare.outcomes import SaidOutcome
from groundwatch.runtime.settings.login import Role
from groundwatch.runtime.telemetry.logs import logger

ALL = "*"
LOOK_SECONDS = 1.0
SHORTEST = 16
"""Characters of a token: shorter ones are guessed."""

LONGEST = 48
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
    each other. `name` is a person's, or a program's, empty where nobody was asked.
    """

    only: str | None = None
    peer: str = ""
    role: Role = "operator"
    name: str = ""

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

    def owner(self, asked: str, name: str) -> str | Refused:
        """The tenant whose response `name` is, or its refusal: of many, each ends on its own."""
        try:
            return self.tenant(asked)
        except Refused as error:
            return error.but(id=name)

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
        if need.role == "anybody":
            return
        if not self.may(need.role):
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
        if self.only is not None and len(name) > LONGEST:
            return f"has {len(name)} characters; at most {LONGEST} are taken"
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

    def digest(self, token: str) -> bytes:
        return _digest(token)

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
        if len(token) < SHORTEST:
            raise SettingsError(f"{where}: a token needs at least {SHORTEST} characters")
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
