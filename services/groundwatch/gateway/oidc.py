"""OpenID Connect: the authorization code flow with PKCE, state and nonce, at one provider, by Authlib.

Where the provider's endpoints and keys are is asked of it once an hour, and its keys also when a token is
signed with one that is not known.
"""

import asyncio
import secrets
import time
from collections.abc import Mapping
from typing import Any

import httpx2
import msgspec
from authlib.integrations.base_client import OAuthError
from authlib.integrations.starlette_client import StarletteIntegration, StarletteOAuth2App
from joserfc.errors import JoseError
from joserfc.jwk import KeySet
from starlette.requests import Request

from groundwatch.errors import TransientError, words
from groundwatch.gateway.auth import LONGEST_NAME, LoginRefused, client_secret, wrong_name
from groundwatch.runtime.settings.login import OidcSettings, is_secure
from groundwatch.runtime.telemetry.logs import logger

WELL_KNOWN = "/.well-known/openid-configuration"
KEPT_SECONDS = 3600.0

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519")
"""With a public key, all of them: no token is taken that is unsigned or signed with a shared secret."""

FAULTS = (TimeoutError, httpx2.HTTPError, ValueError)


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


class _Sessions(StarletteIntegration):  # type: ignore[misc]
    """The library's part of a browser's session: one attempt to log in, by its state."""

    expires_in = 600
    """Seconds that it is good for."""


def _begun(request: Request) -> bool:
    """Whether this browser was sent to the provider with the state that is answered, not too long ago."""
    attempt = request.session.get(f"_state_oidc_{request.query_params.get('state', '')}")
    return attempt is not None and time.time() < attempt["exp"]


class _Provider(StarletteOAuth2App):  # type: ignore[misc]
    """The library's client of a provider, whose faults are told as the provider's: as `TransientError`."""

    async def fetch_access_token(self, *named: Any, **more: Any) -> Any:
        try:
            return await super().fetch_access_token(*named, **more)
        except FAULTS as error:
            raise TransientError(f"the provider's token endpoint does not answer: {words(error)}") from error

    async def fetch_jwk_set(self, force: bool = False) -> Any:
        """Its keys. Those that are none are asked for anew the next time."""
        try:
            found = await super().fetch_jwk_set(force)
            KeySet.import_key_set(found)
            return found
        except (JoseError, KeyError, TypeError, *FAULTS) as error:
            self.server_metadata.pop("jwks", None)
            raise TransientError(f"the provider's keys are none: {words(error)}") from error


class OidcProvider:
    def __init__(
        self, settings: OidcSettings, redirect_uri: str, environment: Mapping[str, str] | None = None
    ) -> None:
        """Raises `SettingsError` where the client's secret is not where the settings say."""
        self._settings = settings
        self._redirect_uri = redirect_uri
        self._secret = client_secret(settings, environment)
        self._known: tuple[float, Any] | None = None
        self._asking = asyncio.Lock()

    async def address(self, request: Request) -> str:
        """Where a browser logs in, whose session remembers that it was sent there. Raises `TransientError`
        when the provider does not say."""
        provider = await self._provider()
        # Longer than the library's own.
        unguessable = {name: secrets.token_urlsafe(48) for name in ("state", "nonce")}
        sent = await provider.authorize_redirect(request, self._redirect_uri, **unguessable)
        return str(sent.headers["location"])

    async def person(self, request: Request) -> Person:
        """Who comes back. Raises `LoginRefused`, or `TransientError` when the provider does not answer."""
        settings, query = self._settings, request.query_params
        if query.get("iss") not in (None, settings.issuer):
            raise LoginRefused("this is the answer of another provider")
        if not _begun(request):
            raise LoginRefused("this is the answer to another login, or to one that was begun too long ago")
        if query.get("error") or not query.get("code"):
            raise LoginRefused(f"the provider says '{query.get('error', '')[:100] or 'nothing'}'")
        provider = await self._provider()
        try:
            async with asyncio.timeout(settings.timeout):
                token = await provider.authorize_access_token(
                    request,
                    claims_options={
                        "iss": {"essential": True, "value": settings.issuer},
                        "aud": {"essential": True, "value": settings.client_id},
                    },
                    leeway=round(settings.clock_skew),
                )
        except OAuthError as error:
            raise _refused(f"the provider did not take its code: {error.error}") from error
        except (TimeoutError, httpx2.HTTPError) as error:
            raise TransientError(f"the provider's token endpoint does not answer: {words(error)}") from error
        except (JoseError, ValueError, TypeError) as error:
            raise _refused(
                f"the provider's id_token does not hold: {error or type(error).__name__}"
            ) from error
        if "userinfo" not in token:
            raise _refused("the provider sent no id_token")
        return self._person(token["userinfo"])

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

    async def _provider(self) -> Any:
        """The library's client of the provider, as that describes itself. Raises `TransientError`."""
        async with self._asking:
            if self._known is None or time.monotonic() - self._known[0] > KEPT_SECONDS:
                self._known = (time.monotonic(), await self._described())
            return self._known[1]

    async def _described(self) -> Any:
        settings = self._settings
        url = settings.issuer.rstrip("/") + WELL_KNOWN
        provider = _Provider(
            _Sessions("oidc"),
            client_id=settings.client_id,
            client_secret=self._secret or None,
            client_kwargs={
                "scope": " ".join(settings.scopes),
                "code_challenge_method": "S256",
                "timeout": settings.timeout,
            },
            server_metadata_url=url,
        )
        try:
            async with asyncio.timeout(settings.timeout):
                found = msgspec.convert(await provider.load_server_metadata(), _Endpoints)
        except msgspec.ValidationError as error:
            raise TransientError(f"the provider describes itself in another way: {error}") from error
        except (TypeError, *FAULTS) as error:
            raise TransientError(f"the provider does not answer at {url}: {words(error)}") from error
        if found.issuer != settings.issuer:
            raise TransientError(
                f"the provider calls itself '{found.issuer[:200]}', and gateway.login.oidc.issuer says "
                f"'{settings.issuer}'"
            )
        for place in (found.authorization_endpoint, found.token_endpoint, found.jwks_uri):
            if not is_secure(place):
                raise TransientError(f"the provider's address '{place[:200]}' is not https")
        # Nothing else that it says is an option of the library.
        provider.server_metadata = {
            **msgspec.structs.asdict(found),
            "_loaded_at": time.time(),
            "id_token_signing_alg_values_supported": ALGORITHMS,
        }
        if self._secret and "client_secret_basic" not in found.token_endpoint_auth_methods_supported:
            provider.client_kwargs["token_endpoint_auth_method"] = "client_secret_post"
        return provider


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
