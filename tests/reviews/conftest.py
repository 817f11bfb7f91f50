"""Outcomes in the stream, as for the service that draws of them."""

from tests.annotation.conftest import publish

__all__ = ["publish"]
