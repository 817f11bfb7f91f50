"""The outside world's way in: intake over HTTP and gRPC, live scores, pages."""

from groundwatch.gateway.service import GatewayService

__all__ = ["GatewayService"]
