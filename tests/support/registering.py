"""A protocol that is known for the length of a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from groundwatch.protocols import registry
from groundwatch.protocols.base import EvaluationProtocol


@contextmanager
def registered(protocol: EvaluationProtocol) -> Iterator[EvaluationProtocol]:
    """Let this one be found under its name for the length of a `with` block."""
    configured = registry._configured
    before = dict(configured)
    configured[protocol.name] = protocol
    try:
        yield protocol
    finally:
        configured.clear()
        configured.update(before)
