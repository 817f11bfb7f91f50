"""Addresses of NATS servers: one or several with commas between."""

from urllib.parse import urlsplit

from groundwatch.addresses import shown_address
from groundwatch.errors import SettingsError

NATS_SCHEMES = ("nats", "tls", "ws", "wss")
_WEBSOCKET = ("ws", "wss")


def nats_servers(url: str) -> list[str]:
    """The addresses in the setting `nats.url`, in its order; any of them can be connected to.

    Raises `SettingsError` for one that is none, and where WebSocket and other addresses are mixed.
    """
    found = [one.strip() for one in url.split(",") if one.strip()]
    schemes = set()
    for one in found:
        try:
            parts = urlsplit(one if "://" in one else f"nats://{one}")
            right = parts.scheme in NATS_SCHEMES and bool(parts.hostname) and parts.port != 0
        except ValueError:
            right = False
        if not right:
            # A comma may belong to a password.
            shown = shown_address(url if "@" in url else one)
            raise SettingsError(f"setting 'nats.url': '{shown}' is no address such as nats://host:4222")
        schemes.add(parts.scheme in _WEBSOCKET)
    if len(schemes) > 1:
        raise SettingsError("setting 'nats.url': addresses with ws:// or wss:// do not go with others")
    return found
