"""OpenID Connect: the authorization code flow with PKCE, state and nonce, at one provider.

Where the provider's endpoints and keys are is asked of it once an hour, and its keys also when a token is
signed with one that is not known.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import httpx2
import msgspec
from authlib.integrations.base_client import OAuthError
from authlib.integrations.httpx_client import AsyncOAuth2Client
from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet

from groundwatch.errors import TransientError
from groundwatch.gateway.auth import LONGEST_NAME, LoginRefused, OidcAttempt, client_secret, wrong_name
from groundwatch.runtime.settings.login import OidcSettings, is_secure
from groundwatch.runtime.telemetry.logs import logger

WELL_KNOWN = "/.well-known/openid-configuration"
KEPT_SECONDS = 3600.0
LEAST_SECONDS = 30.0
"""Between two questions for the provider's keys."""

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519")
"""With a public key, all of them: no token is taken that is unsigned or signed with a shared secret."""


class Person(msgspec.Struct, frozen=True):
    """Whom the provider vouches for."""

    name: str
    groups: frozenset[str]


class _Endpoints(msgspec.Struct, frozen=True, kw_only=True):
    """What the provider says of itself, as far as it matters here."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)


class OidcProvider:
    def __init__(
        self, settings: OidcSettings, redirect_uri: str, environment: Mapping[str, str] | None = None
    ) -> None:
        """Raises `SettingsError` where the client's secret is not where the settings say."""
        self._settings = settings
        self._redirect_uri = redirect_uri
        self._secret = client_secret(settings, environment)
        self._endpoints: tuple[float, _Endpoints] | None = None
        self._keys: tuple[float, KeySet] | None = None
        self._asking = asyncio.Lock()

    async def address(self, attempt: OidcAttempt) -> str:
        """Where a browser logs in. Raises `TransientError` when the provider does not say."""
        endpoints = await self._discovered()
        async with self._client(endpoints) as client:
            url, _ = client.create_authorization_url(
                endpoints.authorization_endpoint,
                state=attempt.state,
                nonce=attempt.nonce,
                code_verifier=attempt.verifier,
            )
        return str(url)

    async def person(self, attempt: OidcAttempt, code: str) -> Person:
        """Who has logged in. Raises `LoginRefused`, or `TransientError` when the provider does not answer."""
        endpoints = await self._discovered()
        try:
            async with asyncio.timeout(self._settings.timeout), self._client(endpoints) as client:
                answer = await client.fetch_token(
                    endpoints.token_endpoint,
                    grant_type="authorization_code",
                    code=code,
                    code_verifier=attempt.verifier,
                )
        except OAuthError as error:
            raise _refused(f"the provider did not take its code: {error.error}") from error
        except (TimeoutError, httpx2.HTTPError, ValueError) as error:
            raise TransientError(f"the provider's token endpoint does not answer: {error!r}") from error
        id_token = answer.get("id_token")
        if not isinstance(id_token, str):
            raise _refused("the provider sent no id_token")
        claims = await self._verified(id_token, attempt, str(answer.get("access_token", "")))
        return self._person(claims)

    async def _verified(self, id_token: str, attempt: OidcAttempt, access_token: str) -> Mapping[str, Any]:
        settings = self._settings
        try:
            try:
                token = jwt.decode(id_token, await self._known_keys(), list(ALGORITHMS))
            except InvalidKeyIdError:
                token = jwt.decode(id_token, await self._known_keys(new=True), list(ALGORITHMS))
            claims: Any = CodeIDToken(
                token.claims,
                token.header,
                options={
                    "iss": {"essential": True, "value": settings.issuer},
                    "aud": {"essential": True, "value": settings.client_id},
                },
                params={
                    "nonce": attempt.nonce,
                    "client_id": settings.client_id,
                    "access_token": access_token,
                },
            )
            claims.validate(leeway=round(settings.clock_skew))
        except (JoseError, ValueError, TypeError) as error:
            raise _refused(
                f"the provider's id_token does not hold: {error or type(error).__name__}"
            ) from error
        return dict(claims)

    def _person(self, claims: Mapping[str, Any]) -> Person:
        settings = self._settings
        # Some providers write it as text; where it is not said at all, they say it of all.
        if settings.name_claim == "email" and str(claims.get("email_verified", True)).lower() != "true":
            raise _refused("the provider has not verified the email address")
        said = _claim(claims, settings.name_claim) or claims["sub"]
        name = " ".join(str(said).split())[:LONGEST_NAME]
        if why := wrong_name(name):
            raise _refused(f"the name {why}")
        groups = _claim(claims, settings.groups_claim)
        listed = groups if isinstance(groups, list) else [groups]
        return Person(name, frozenset(one for one in listed if isinstance(one, str)))

    async def _discovered(self) -> _Endpoints:
        async with self._asking:
            known = self._endpoints
            if known is None or time.monotonic() - known[0] > KEPT_SECONDS:
                said = await self._get(self._settings.issuer.rstrip("/") + WELL_KNOWN)
                self._endpoints = known = (time.monotonic(), self._endpoints_of(said))
            return known[1]

    def _endpoints_of(self, said: bytes) -> _Endpoints:
        try:
            found = msgspec.json.decode(said, type=_Endpoints)
        except msgspec.DecodeError as error:
            raise TransientError(f"the provider describes itself in another way: {error}") from error
        if found.issuer != self._settings.issuer:
            raise TransientError(
                f"the provider calls itself '{found.issuer[:200]}', and gateway.login.oidc.issuer says "
                f"'{self._settings.issuer}'"
            )
        for url in (found.authorization_endpoint, found.token_endpoint, found.jwks_uri):
            if not is_secure(url):
                raise TransientError(f"the provider's address '{url[:200]}' is not https")
        return found

    async def _known_keys(self, *, new: bool = False) -> KeySet:
        endpoints = await self._discovered()
        async with self._asking:
            known = self._keys
            age = time.monotonic() - known[0] if known is not None else float("inf")
            if known is None or age > (LEAST_SECONDS if new else KEPT_SECONDS):
                said = await self._get(endpoints.jwks_uri)
                try:
                    keys = KeySet.import_key_set(msgspec.json.decode(said))
                except (msgspec.DecodeError, JoseError, KeyError, TypeError, ValueError) as error:
                    raise TransientError(f"the provider's keys are none: {error!r}") from error
                self._keys = known = (time.monotonic(), keys)
            return known[1]

    async def _get(self, url: str) -> bytes:
        try:
            timeout = self._settings.timeout
            async with asyncio.timeout(timeout), httpx2.AsyncClient(timeout=timeout) as http:
                answer = await http.get(url)
                answer.raise_for_status()
                return answer.content
        except (TimeoutError, httpx2.HTTPError) as error:
            raise TransientError(f"the provider does not answer at {url}: {error!r}") from error

    def _client(self, endpoints: _Endpoints) -> Any:
        how = "none"
        if self._secret:
            basic = "client_secret_basic" in endpoints.token_endpoint_auth_methods_supported
            how = "client_secret_basic" if basic else "client_secret_post"
        return AsyncOAuth2Client(
            self._settings.client_id,
            self._secret or None,
            scope=" ".join(self._settings.scopes),
            redirect_uri=self._redirect_uri,
            token_endpoint_auth_method=how,
            code_challenge_method="S256",
            timeout=self._settings.timeout,
        )


def _claim(claims: Mapping[str, Any], name: str) -> Any:
    """The claim of this name, or that to which its dots lead."""
    if name in claims:
        return claims[name]
    found: Any = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _refused(why: str) -> LoginRefused:
    logger.warning("login.refused", why=why[:500])
    return LoginRefused(why)
