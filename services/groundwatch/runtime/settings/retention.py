"""Settings of retention: ages by stream, and by tenant and stream."""

from __future__ import annotations

import msgspec

from groundwatch.errors import SettingsError


class Ages(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Days that events are kept, by stream; 0: as long as the stream keeps them."""

    responses: float = 0.0
    asked: float = 0.0
    extracted: float = 0.0
    judged: float = 0.0
    outcomes: float = 0.0
    alarms: float = 0.0
    dead: float = 0.0


class RetentionSettings(Ages, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long data is kept where that is shorter than the streams' own 30 days; `tenants` by name.

    `images` in days: those that nothing names any more, so long after they were stored; 0: they stay.
    """

    images: float = 0.0
    tenants: dict[str, Ages] = {}


def check_retention(settings: RetentionSettings) -> None:
    """Bounds that types cannot say. Raises `SettingsError` with the key that is wrong."""
    _check("retention", settings)
    for tenant, ages in settings.tenants.items():
        _check(f"retention.tenants.{tenant}", ages)


def _check(section: str, ages: Ages) -> None:
    for name, days in msgspec.structs.asdict(ages).items():
        if name != "tenants" and not 0 <= days < float("inf"):
            raise SettingsError(f"setting '{section}.{name}': must be 0 or more days")
    if ages.outcomes and (not ages.responses or ages.outcomes < ages.responses):
        raise SettingsError(
            f"setting '{section}.outcomes': an outcome stays at least as long as its response: set "
            f"{section}.responses to {ages.outcomes:g} days or less"
        )
