"""What can be set of the login for people, and which roles there are."""

import ipaddress
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from groundwatch.section import Named, Positive, Section, wrong

Role = Literal["viewer", "reviewer", "operator", "sender"]
PersonRole = Literal["viewer", "reviewer", "operator"]

ALL = "*"
"""The tenant of who may act for all, and the group that everybody is in."""


def is_loopback(host: str) -> bool:
    """Whether this name or address is this machine, as seen from itself."""
    name = host.lower().strip("[]")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def _address(url: str) -> str:
    parts = urlsplit(url)
    try:
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable or "@" in parts.netloc:
        raise ValueError("must be an address such as https://groundwatch.example.com")
    return url


def _site(url: str) -> str:
    parts = urlsplit(_address(url)) if url else urlsplit("")
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise ValueError("ends with the host and its port: pages are at the root")
    return url.rstrip("/")


def is_secure(url: str) -> bool:
    """Whether nobody between can read or change what is asked there."""
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))


def _issuer(url: str) -> str:
    if not is_secure(_address(url)):
        raise ValueError("must be https: who answers there says who may come in")
    return url


class OidcGroup(Section):
    """Whoever has `name` among its groups has `role`, for one `tenant` or for all (`*`)."""

    name: Named
    role: PersonRole
    tenant: Named


class OidcSettings(Section):
    """A provider of OpenID Connect, at which the gateway is the client `client_id`. Times in seconds.

    The client's secret, where it has one, is in a file or a variable of the environment. `groups` are looked
    at in their order: the first that somebody has among the values of `groups_claim` counts, and `*` is
    everybody's. Who has none of them may not come in. Dots in the name of a claim lead into it.
    """

    issuer: Annotated[str, AfterValidator(_issuer)]
    client_id: Named
    client_secret_file: str = ""
    client_secret_env: str = ""
    scopes: tuple[Named, ...] = ("openid", "profile", "email")
    name_claim: Named = "email"
    groups_claim: Named = "groups"
    groups: Annotated[tuple[OidcGroup, ...], Field(min_length=1)]
    clock_skew: Annotated[float, Field(ge=0, le=600)] = 60.0
    timeout: Positive = 10.0

    @model_validator(mode="after")
    def _check(self) -> Self:
        if "openid" not in self.scopes:
            raise wrong("scopes", "must have openid among them")
        if self.client_secret_file and self.client_secret_env:
            raise wrong("client_secret_env", "one of client_secret_file and client_secret_env is enough")
        return self


class LoginSettings(Section):
    """How people come in who look at pages: with a token of `gateway.tokens_file`, or by `oidc`.

    `url` is where their browsers reach the gateway, such as https://groundwatch.example.com; its name need
    not be in `gateway.hosts`. With https the session's cookie goes over TLS alone. A session ends after
    `hours`. Its cookie is signed with a secret of at least 32 characters in a file or a variable of the
    environment; without one each gateway makes its own at its start, which no other knows.
    """

    url: Annotated[str, AfterValidator(_site)] = ""
    hours: Annotated[float, Field(gt=0, le=720)] = 12.0
    cookie_secret_file: str = ""
    cookie_secret_env: str = ""
    oidc: OidcSettings | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.oidc is not None and not self.url:
            raise wrong("url", "is missing: the provider sends browsers back there")
        if self.cookie_secret_file and self.cookie_secret_env:
            raise wrong("cookie_secret_env", "one of cookie_secret_file and cookie_secret_env is enough")
        return self

    @property
    def secure(self) -> bool:
        return self.url.startswith("https:")
