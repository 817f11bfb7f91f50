"""Sessions of people who have logged in, in signed cookies: nothing is kept here.

A cookie says who has come in by which token or group, and until when. What that may is looked up with each
request, so that a token which is taken out of its file, or a group out of the settings, ends its sessions.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import msgspec
from itsdangerous import BadData, URLSafeSerializer

from groundwatch.errors import SettingsError
from groundwatch.runtime.settings.login import LoginSettings, OidcSettings

SHORTEST = 32
"""Characters of a secret that signs."""

LOGIN_SECONDS = 600.0
"""So long one has to log in at the provider."""

Kind = Literal["session", "oidc"]


class LoginRefused(Exception):
    """Somebody may not come in; the message says why."""


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who has come in with a token, of which `token` is the mark, or by a group of the provider."""

    until: float
    token: str = ""
    group: str = ""
    name: str = ""


class OidcAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who was sent to the provider, and the page that they want to go to."""

    until: float
    goal: str
    state: str
    nonce: str
    verifier: str


Content: TypeAlias = Session | OidcAttempt
KINDS: dict[type[Any], Kind] = {Session: "session", OidcAttempt: "oidc"}
if TYPE_CHECKING:
    from starlette.responses import Response

T = TypeVar("T", Session, OidcAttempt)


class Cookies:
    """Signs and reads what cookies say. Each kind of them is signed apart."""

    def __init__(self, settings: LoginSettings, environment: Mapping[str, str] | None = None) -> None:
        """Raises `SettingsError` for a secret that is not there or too short."""
        self._settings = settings
        self._secret = read_secret(settings, os.environ if environment is None else environment)
        self._prefix = "__Host-" if settings.secure else ""

    def new_session(self, *, token: str = "", group: str = "", name: str = "") -> Session:
        until = time.time() + 3600 * self._settings.hours
        return Session(until=until, token=token, group=group, name=name)

    def new_oidc_attempt(self, goal: str) -> OidcAttempt:
        state, nonce, verifier = (secrets.token_urlsafe(48) for _ in range(3))
        until = time.time() + LOGIN_SECONDS
        return OidcAttempt(until=until, goal=goal, state=state, nonce=nonce, verifier=verifier)

    def read(self, cookies: Mapping[str, str], form: type[T]) -> T | None:
        """What the cookie of this kind says; None without one that we have signed and that still counts."""
        kind = KINDS[form]
        text = cookies.get(self._name(kind))
        if not text:
            return None
        try:
            content = msgspec.convert(self._serializer(kind).loads(text), form)
        except (BadData, msgspec.ValidationError):
            return None
        return content if time.time() < content.until else None

    def set(self, response: Response, content: Content) -> None:
        kind = KINDS[type(content)]
        text = self._serializer(kind).dumps(msgspec.to_builtins(content))
        assert isinstance(text, str)
        self._set(response, kind, text, max(0, int(content.until - time.time())))

    def clear(self, response: Response, kind: Kind) -> None:
        self._set(response, kind, "", 0)

    def mark(self, digest: bytes) -> str:
        """The mark of a token in cookies, from which nobody learns the token."""
        return hmac.new(self._secret, b"token\0" + digest, hashlib.sha256).hexdigest()

    def _name(self, kind: Kind) -> str:
        return f"{self._prefix}groundwatch-{kind}"

    def _set(self, response: Response, kind: Kind, text: str, seconds: int) -> None:
        response.set_cookie(
            self._name(kind),
            text,
            max_age=seconds,
            path="/",
            secure=self._settings.secure,
            httponly=True,
            samesite="lax",
        )

    def _serializer(self, kind: Kind) -> URLSafeSerializer:
        return URLSafeSerializer(
            self._secret,
            salt=f"groundwatch.{kind}",
            signer_kwargs={"key_derivation": "hmac", "digest_method": hashlib.sha256},
        )


def read_secret(settings: LoginSettings, environment: Mapping[str, str]) -> bytes:
    """The secret that signs cookies; a new one where none is named."""
    key, name = named_secret(settings, "cookie_secret")
    if not name:
        return secrets.token_bytes(32)
    secret = secret_of(f"gateway.login.{key}", key, name, environment)
    if len(secret) < SHORTEST:
        raise SettingsError(
            f"setting 'gateway.login.{key}': the secret needs at least {SHORTEST} characters: make one with "
            "openssl rand -hex 32"
        )
    return secret.encode()


def read_client_secret(settings: OidcSettings, environment: Mapping[str, str]) -> str:
    """The gateway's secret at the provider, empty for a client that has none. Raises `SettingsError`."""
    key, name = named_secret(settings, "client_secret")
    return secret_of(f"gateway.login.oidc.{key}", key, name, environment) if name else ""


def named_secret(settings: Any, name: str) -> tuple[str, str]:
    """The key that says where a secret is, and what it says: `NAME_file` or `NAME_env`, or neither."""
    keys = (f"{name}_file", f"{name}_env")
    return next(((key, value) for key in keys if (value := getattr(settings, key))), (keys[0], ""))


def secret_of(setting: str, key: str, name: str, environment: Mapping[str, str]) -> str:
    """The secret in the file or variable `name`. Raises `SettingsError`."""
    if key.endswith("_env"):
        secret = environment.get(name, "").strip()
        if not secret:
            raise SettingsError(f"setting '{setting}': the variable it names is not set or empty")
        return secret
    try:
        secret = Path(name).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise SettingsError(f"setting '{setting}': cannot read {name} ({why})") from error
    if not secret:
        raise SettingsError(f"setting '{setting}': {name} is empty")
    return secret
