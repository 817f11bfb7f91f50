"""Who calls: tokens of tenants, from a file that may change while the gateway runs."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import grpc
import msgspec

from groundwatch.errors import SettingsError
from groundwatch.gateway.grpc.statuses import Failure
from groundwatch.runtime.logs import logger

ALL = "*"
LOOK_SECONDS = 1.0
SHORTEST = 16
"""Characters of a token: shorter ones are guessed."""

SETTING = "gateway.grpc.tokens_file"


class Caller(msgspec.Struct, frozen=True):
    """Who calls: one tenant, or with None somebody who may act for all."""

    only: str | None = None

    def tenant(self, asked: str, field: str = "tenant") -> str:
        """The tenant that a request is about. Raises `Failure` where it is none of the caller's."""
        if self.only is None or asked == self.only:
            return asked
        if asked:
            raise Failure(
                grpc.StatusCode.PERMISSION_DENIED,
                "other_tenant",
                f"this token is good for tenant '{self.only}' alone",
                field=field,
            )
        return self.only

    def tenants(self, asked: Iterable[str], field: str = "tenants") -> tuple[str, ...]:
        """The same for a list, where none means all."""
        wanted = tuple(asked)
        if self.only is None:
            return wanted
        return tuple(self.tenant(one, field) for one in wanted) or (self.only,)


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

    def caller(self, context: grpc.aio.ServicerContext[Any, Any]) -> Caller:
        """Raises `Failure` for a call without a token that is known."""
        if self._path is None:
            return Caller()
        self._look()
        for name, value in context.invocation_metadata() or ():
            if name == "authorization":
                kind, _, token = str(value).partition(" ")
                tenant = self._tenants.get(_digest(token.strip())) if kind.lower() == "bearer" else None
                if tenant is None:
                    raise _unauthenticated("the token is not known here")
                return Caller(None if tenant == ALL else tenant)
        raise _unauthenticated("send the metadata 'authorization: Bearer TOKEN'")

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
            logger.warning("grpc.tokens", error=str(error))


def _unauthenticated(message: str) -> Failure:
    return Failure(grpc.StatusCode.UNAUTHENTICATED, "unauthenticated", message)


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
