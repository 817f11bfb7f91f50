"""Settings of connections over HTTP: how much of one, for how long, and how many."""

from __future__ import annotations

import msgspec

from groundwatch.errors import SettingsError


class HttpSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds of connections and requests. Times in seconds, sizes in bytes.

    A request's head must be there after `head_timeout` and have at most `max_head`. A body must bring
    `min_rate` bytes a second, and a reader take as much, each measured over `body_timeout`. `max_receiving`
    bounds what all requests together hold that are being received or worked at.
    """

    max_connections: int = 800
    max_head: int = 64 * 1024
    head_timeout: float = 10.0
    body_timeout: float = 30.0
    min_rate: int = 1024
    max_receiving: int = 128 * 1024 * 1024
    watchers: int = 500


def check_http(settings: HttpSettings, max_line: int, max_image: int) -> None:
    """Bounds that types cannot say. Raises `SettingsError` with the key that is wrong."""
    for name, value in msgspec.structs.asdict(settings).items():
        least = {"min_rate": 0, "watchers": 0, "max_head": 1024}.get(name)
        if least is None and not 0 < value < float("inf"):
            raise SettingsError(f"setting 'gateway.http.{name}': must be above 0")
        if least is not None and value < least:
            raise SettingsError(f"setting 'gateway.http.{name}': must be at least {least}")
    largest = max(max_line, max_image)
    if settings.max_receiving < 2 * largest:
        raise SettingsError(
            f"setting 'gateway.http.max_receiving': must be at least {2 * largest}, twice the largest of "
            "gateway.intake.max_line and gateway.intake.max_image_bytes"
        )
