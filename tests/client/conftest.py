"""A real gateway for the client, and servers that behave as badly as gateways may."""

from __future__ import annotations

from tests.gateway.conftest import gateway, gateway_factory, pictures

__all__ = ["gateway", "gateway_factory", "pictures"]
