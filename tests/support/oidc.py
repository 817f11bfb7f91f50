"""A small provider of OpenID Connect on a real port, which signs with a real key and can be made to cheat."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode

from joserfc import jwt
from joserfc.jwk import RSAKey
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from groundwatch.runtime.telemetry.server import HttpServer

CLIENT_ID, CLIENT_SECRET = "groundwatch", "a secret of the client: + and %"

Claims = dict[str, Any]


def _part(content: object) -> str:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Provider:
    """Whoever comes is `person`. `change` is done to the claims of each token, and `sign` makes it. `page` is
    what the token endpoint sends in place of one."""

    def __init__(self) -> None:
        self.key = RSAKey.generate_key(2048, {"kid": "first"})
        self.person: Claims = {
            "sub": "1",
            "email": "ann@example.com",
            "email_verified": True,
            "groups": ["quality"],
        }
        self.issuer = ""
        self.change: Callable[[Claims], Claims] = lambda claims: claims
        self.sign: Callable[[Claims], str] = self.signed
        self.redirects: set[str] = set()
        self.described: object = {}
        self.keys: object = None
        self.broken = False
        self.page = ""
        self.asked: list[str] = []
        self._codes: dict[str, dict[str, str]] = {}

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/.well-known/openid-configuration", self._describe),
                Route("/keys", self._keys),
                Route("/authorize", self._ask),
                Route("/authorize", self._authorize, methods=["POST"]),
                Route("/token", self._token, methods=["POST"]),
            ]
        )

    def signed(self, claims: Claims) -> str:
        return jwt.encode({"alg": "RS256", "kid": self.key.kid}, claims, self.key)

    def unsigned(self, claims: Claims) -> str:
        return f"{_part({'alg': 'none'})}.{_part(claims)}."

    def signed_with_public_key(self, claims: Claims) -> str:
        """As a server that takes the public key for a shared secret would believe it."""
        text = f"{_part({'alg': 'HS256', 'kid': self.key.kid})}.{_part(claims)}"
        mac = hmac.new(self.key.as_pem(private=False), text.encode(), hashlib.sha256)
        return f"{text}.{_part(mac.digest())}"

    def signed_by_another(self, claims: Claims) -> str:
        return jwt.encode({"alg": "RS256", "kid": self.key.kid}, claims, RSAKey.generate_key(2048))

    def change_key(self) -> None:
        self.key = RSAKey.generate_key(2048, {"kid": "second"})

    async def _describe(self, request: Request) -> Response:
        self.asked.append("description")
        if self.broken:
            return Response("busy", 503)
        known = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
            "response_types_supported": ["code"],
        }
        return JSONResponse(known | self.described if isinstance(self.described, dict) else self.described)

    async def _keys(self, request: Request) -> Response:
        self.asked.append("keys")
        return JSONResponse(self.keys or {"keys": [self.key.as_dict(private=False)]})

    async def _ask(self, request: Request) -> Response:
        """The page on which somebody would say who they are."""
        query = dict(request.query_params)
        assert query["client_id"] == CLIENT_ID and query["response_type"] == "code"
        assert "openid" in query["scope"].split() and query["code_challenge_method"] == "S256"
        assert (
            query["redirect_uri"] in self.redirects and len(query["state"]) > 40 and len(query["nonce"]) > 40
        )
        fields = "".join(f'<input type="hidden" name="{key}" value="{query[key]}">' for key in query)
        button = "<button>Ann</button>"
        return HTMLResponse(f"<!doctype html><title>it</title><form method=post>{fields}{button}</form>")

    async def _authorize(self, request: Request) -> Response:
        form = {name: values[0] for name, values in parse_qs((await request.body()).decode()).items()}
        code = secrets.token_urlsafe()
        self._codes[code] = form
        query = urlencode({"code": code, "state": form["state"]})
        return RedirectResponse(f"{form['redirect_uri']}?{query}", 303)

    async def _token(self, request: Request) -> Response:
        if self.page:
            return HTMLResponse(self.page)
        form = {name: values[0] for name, values in parse_qs((await request.body()).decode()).items()}
        _, _, encoded = request.headers.get("authorization", "").partition(" ")
        client = [unquote(part) for part in base64.b64decode(encoded).decode().split(":", 1)]
        if client != [CLIENT_ID, CLIENT_SECRET]:
            return JSONResponse({"error": "invalid_client"}, 401)
        # A code is good for once.
        asked = self._codes.pop(form.get("code", ""), None)
        challenge = _part(hashlib.sha256(form.get("code_verifier", "").encode()).digest())
        if (
            asked is None
            or form["redirect_uri"] != asked["redirect_uri"]
            or challenge != asked["code_challenge"]
        ):
            return JSONResponse({"error": "invalid_grant"}, 400)
        now = int(time.time())
        claims = {"iss": self.issuer, "aud": CLIENT_ID, "iat": now, "exp": now + 300, "nonce": asked["nonce"]}
        id_token = self.sign(self.change(claims | self.person))
        return JSONResponse({"access_token": "at", "token_type": "Bearer", "id_token": id_token})


@contextlib.asynccontextmanager
async def open_provider() -> AsyncIterator[Provider]:
    provider = Provider()
    server = HttpServer(provider.app(), host="127.0.0.1", port=0)
    await server.start()
    provider.issuer = f"http://127.0.0.1:{server.port}"
    try:
        yield provider
    finally:
        await server.stop(1.0)
