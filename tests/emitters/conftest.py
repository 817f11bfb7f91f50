"""Environments for emitters, and a real gateway for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.emitters.environments import Environments, kept
from tests.gateway.conftest import gateway_factory

__all__ = ["gateway_factory"]


@pytest.fixture(scope="session")
def environments() -> Iterator[Environments]:
    with kept() as environments:
        yield environments
