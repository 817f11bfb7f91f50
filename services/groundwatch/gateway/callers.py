"""Who calls, over HTTP and gRPC alike: tenants' tokens, and the names that each tenant has for its runs.

A tenant's run is kept under its name and a mark of the tenant, so that a name which another has used tells
nobody anything: it is neither taken nor found.
"""

import hashlib
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from groundwatch.errors import SettingsError
from groundwatch.events import LIVE, ResponseScored, digest
from groundwatch.gateway.intake.results import Refused
from groundwatch.gateway.replays import Replay
from groundwatch.reporting.compare.outcomes import SaidOutcome
from groundwatch.runtime.telemetry.logs import logger

ALL = "*"
LOOK_SECONDS = 1.0
SHORTEST = 16
"""Characters of a token: shorter ones are guessed."""

LONGEST = 48
"""Characters of a tenant's name for a run: with the mark it is a run's name like any other."""

SETTING = "gateway.tokens_file"


Denial = Literal["unauthenticated", "other_tenant", "all_tenants"]


class NotAllowed(Exception):
    """A call that is not this caller's to make; with `unauthenticated` nobody knows whose it is.

    `field` is the path of what names another's in the request.
    """

    def __init__(self, reason: Denial, message: str, *, field: str = "") -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.field = field


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
    each other.
    """

    only: str | None = None
    peer: str = ""

    @property
    def sender(self) -> str:
        return f"peer {self.peer}" if self.only is None else f"tenant {self.only}"

    def tenant(self, asked: str, field: str = "tenant") -> str:
        """The tenant that a request is about. Raises `NotAllowed` where it is none of the caller's."""
        if self.only is None:
            return asked
        if asked not in ("", self.only):
            raise NotAllowed(
                "other_tenant", f"this token is good for tenant '{self.only}' alone", field=field
            )
        return self.only

    def tenants(self, asked: Iterable[str]) -> tuple[str, ...]:
        """The same for a list, where none means all."""
        return tuple(self.tenant(one, "tenants") for one in asked) or ((self.only,) if self.only else ())

    def owner(self, asked: str, name: str) -> str | Refused:
        """The tenant whose response `name` is, or its refusal: of many, each ends on its own."""
        try:
            return self.tenant(asked)
        except NotAllowed as error:
            return Refused(id=name, reason="other_tenant", field=error.field, message=error.message)

    def for_all(self, what: str) -> None:
        """Raises `NotAllowed` for a tenant: `what` shows those of others too."""
        if self.only is not None:
            message = f"{what} is about all tenants, and this token is good for tenant '{self.only}' alone"
            raise NotAllowed("all_tenants", message)

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
    """The tokens there are; without a file everybody may do everything. Only their digests are kept."""

    def __init__(self, path: str) -> None:
        self._path = Path(path) if path else None
        self._tenants: dict[bytes, str] = {}
        self._stamp: tuple[int, int] = (0, 0)
        self._looked = time.monotonic()
        if self._path is not None:
            self._read(self._path)

    @property
    def wanted(self) -> bool:
        return self._path is not None

    def bearer(self, authorization: str | None) -> Caller:
        """Who says `Bearer TOKEN`. Raises `NotAllowed` without a token that is known."""
        if self._path is None:
            return EVERYBODY
        kind, _, token = (authorization or "").partition(" ")
        if kind.lower() != "bearer":
            raise NotAllowed("unauthenticated", "send a token as 'authorization: Bearer TOKEN'")
        return self.caller(token.strip())

    def caller(self, token: str) -> Caller:
        self._look()
        tenant = self._tenants.get(_digest(token))
        if tenant is None:
            raise NotAllowed("unauthenticated", "the token is not known here")
        return Caller(None if tenant == ALL else tenant)

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
                self._tenants = _tenants(path, path.read_text("utf-8").splitlines())
                self._stamp = stamp
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise SettingsError(f"setting '{SETTING}': cannot read {path} ({why})") from error


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _tenants(path: Path, lines: Sequence[str]) -> dict[bytes, str]:
    """Each token's tenant. Raises `SettingsError` naming the line, never the token."""
    found: dict[bytes, str] = {}
    for number, line in enumerate(lines, 1):
        parts = line.split()
        if not parts or parts[0].startswith("#"):
            continue
        where = f"setting '{SETTING}': {path}:{number}"
        if len(parts) != 2:
            raise SettingsError(f"{where}: write TENANT TOKEN, or * TOKEN for all tenants")
        if len(parts[1]) < SHORTEST:
            raise SettingsError(f"{where}: a token needs at least {SHORTEST} characters")
        if _digest(parts[1]) in found:
            raise SettingsError(f"{where}: this token stands there already")
        found[_digest(parts[1])] = parts[0]
    if not found:
        raise SettingsError(f"setting '{SETTING}': {path} has no token: nobody could call")
    return found
