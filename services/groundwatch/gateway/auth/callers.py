"""Who calls, over HTTP and gRPC alike: tenants' tokens, from a file that may change meanwhile."""

import hashlib
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

from groundwatch.errors import SettingsError
from groundwatch.gateway.intake.results import Refused
from groundwatch.runtime.telemetry.logs import logger

ALL = "*"
LOOK_SECONDS = 1.0
SHORTEST = 16
"""Characters of a token: shorter ones are guessed."""

SETTING = "gateway.tokens_file"


class NotAllowed(Exception):
    """A call that is not this caller's to make; with `unauthenticated` nobody knows whose it is.

    `field` is the path of what names another's in the request.
    """

    def __init__(
        self,
        reason: Literal["unauthenticated", "other_tenant", "all_tenants"],
        message: str,
        *,
        field: str = "",
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.field = field


class Caller(msgspec.Struct, frozen=True):
    """Who calls: one tenant, or with None somebody who may act for all.

    `peer` is where the call comes from: callers of the same tenant, or else of the same place, wait behind
    each other.
    """

    only: str | None = None
    peer: str = ""

    @property
    def sender(self) -> str:
        """Behind whom this caller's work waits."""
        return f"peer {self.peer}" if self.only is None else f"tenant {self.only}"

    def tenant(self, asked: str, field: str = "tenant") -> str:
        """The tenant that a request is about. Raises `NotAllowed` where it is none of the caller's."""
        if self.only is None or asked == self.only:
            return asked
        if asked:
            message = f"this token is good for tenant '{self.only}' alone"
            raise NotAllowed("other_tenant", message, field=field)
        return self.only

    def tenants(self, asked: Iterable[str]) -> tuple[str, ...]:
        """The same for a list, where none means all."""
        wanted = tuple(asked)
        if self.only is None:
            return wanted
        return tuple(self.tenant(one, "tenants") for one in wanted) or (self.only,)

    def owner(self, asked: str, name: str) -> str | Refused:
        """The tenant whose response `name` is, or its refusal: of many, each ends on its own."""
        try:
            return self.tenant(asked)
        except NotAllowed as error:
            return Refused(id=name, reason="other_tenant", field=error.field, message=error.message)

    def for_all(self, what: str) -> None:
        """Raises `NotAllowed` for a tenant: `what` shows those of others too."""
        if self.only is not None:
            raise NotAllowed(
                "all_tenants",
                f"{what} is about all tenants, and this token is good for tenant '{self.only}' alone",
            )


EVERYBODY = Caller()
"""Whoever calls a gateway that asks for no token."""


class Tokens:
    """The tokens there are; without a file everybody may do everything. Only their digests are kept."""

    def __init__(self, path: str) -> None:
        self._path = Path(path) if path else None
        self._tenants: dict[bytes, str] = {}
        self._stamp: tuple[int, int] = (0, 0)
        self._looked = time.monotonic()
        if self._path is not None:
            self._stamp = _stamp(self._path)
            self._tenants = _read(self._path)

    @property
    def wanted(self) -> bool:
        """Whether callers must have one."""
        return self._path is not None

    def bearer(self, authorization: str | None) -> Caller:
        """Who says `Bearer TOKEN`. Raises `NotAllowed` without a token that is known."""
        if self._path is None:
            return EVERYBODY
        if authorization is None:
            raise NotAllowed("unauthenticated", "send a token: 'authorization: Bearer TOKEN'")
        kind, _, token = authorization.partition(" ")
        if kind.lower() != "bearer":
            raise NotAllowed("unauthenticated", "send the token as 'authorization: Bearer TOKEN'")
        return self.caller(token.strip())

    def caller(self, token: str) -> Caller:
        """Whose token it is. Raises `NotAllowed`."""
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
            if (stamp := _stamp(self._path)) != self._stamp:
                self._tenants = _read(self._path)
                self._stamp = stamp
        except SettingsError as error:
            logger.warning("gateway.tokens", error=str(error))


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _stamp(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError as error:
        raise SettingsError(f"setting '{SETTING}': cannot read {path} ({error.strerror})") from error
    return found.st_mtime_ns, found.st_ino


def _read(path: Path) -> dict[bytes, str]:
    """Raises `SettingsError` naming the line, never the token."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"setting '{SETTING}': cannot read {path} ({error})") from error
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
