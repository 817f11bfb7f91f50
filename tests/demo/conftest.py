"""A real gateway for the demo's application."""

from __future__ import annotations

from tests.gateway.conftest import gateway, gateway_factory

__all__ = ["gateway", "gateway_factory"]
