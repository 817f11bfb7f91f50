"""What is to be erased: one response, all of a tenant, or an image."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from groundwatch.errors import UNDECODED, UsageError
from groundwatch.events import response_key
from groundwatch.runtime.stores.tombstones import Kind, tombstone_name
from groundwatch.topology import HEADER_ORIGIN, parse_subject

_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_NESTED = ("response", "extracted")
_DEFAULT_TENANT = "default"


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """Whose data goes. `tenant` belongs to a response as well as to a whole tenant."""

    kind: Kind
    tenant: str = ""
    response: str = ""
    image: str = ""

    @property
    def key(self) -> str:
        """A response's name inside subjects."""
        return response_key(self.tenant, self.response)

    @property
    def name(self) -> str:
        """The tombstone's name."""
        what = {"response": self.key, "tenant": self.tenant, "image": self.image}[self.kind]
        return tombstone_name(self.kind, what)

    def describe(self) -> str:
        """As people read it."""
        match self.kind:
            case "response":
                return f"response '{self.response}' of tenant '{self.tenant}'"
            case "tenant":
                return f"tenant '{self.tenant}'"
        return f"image {self.image}"


def subject(response: str | None, tenant: str | None, image: str | None) -> Subject:
    """What is to be erased. Raises `UsageError`."""
    if image is not None:
        if response is not None or tenant is not None:
            raise UsageError("an image is named alone: it belongs to no tenant", "image")
        if not _SHA256.match(image):
            raise UsageError("an image is named by its SHA-256: 64 hex digits in lower case", "image")
        return Subject(kind="image", image=image)
    if response is not None:
        if not response:
            raise UsageError("a response is named by its id, and this one is empty", "response")
        return Subject(kind="response", response=response, tenant=tenant or _DEFAULT_TENANT)
    if tenant:
        return Subject(kind="tenant", tenant=tenant)
    raise UsageError(
        "say what to erase: a response (with its tenant), a tenant, or an image",
        "response",
        "tenant",
        "image",
    )


def owner_key(subject: str, headers: Mapping[str, str]) -> str:
    """The key of the response that a message is about, by its subject; of a dead letter, by its origin's."""
    address = parse_subject(headers.get(HEADER_ORIGIN) or subject)
    return address.key if address is not None else ""


def tenant_of(data: bytes) -> str | None:
    """The tenant that an event of any kind names; None for bytes that are no event."""
    try:
        found: Any = msgspec.json.decode(data)
    except UNDECODED:
        return None
    while isinstance(found, dict):
        inner = next((found[name] for name in _NESTED if isinstance(found.get(name), dict)), None)
        if inner is None:
            tenant = found.get("tenant", _DEFAULT_TENANT)
            return tenant if isinstance(tenant, str) else None
        found = inner
    return None
