"""The outside world's door: intake over HTTP, live scores, pages."""

from groundwatch.gateway.service import GatewayService

__all__ = ["GatewayService"]
