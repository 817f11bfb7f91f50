"""What a running gateway serves over HTTP."""

from __future__ import annotations

from typing import Any

from groundwatch.gateway.http.requests import Route


def served_by(gateway: Any) -> list[Route]:
    """The routes of its innermost application."""
    app = gateway.service.app
    while not hasattr(app, "router"):
        app = getattr(app, "_app", None) or app.app
    routes: list[Route] = app.router.routes
    return routes
