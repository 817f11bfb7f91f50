"""A verifier that tells where its time goes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import torch

from groundwatch.models.serving.verifier import Verifier


class TimedVerifier(Verifier):
    """Notes the seconds spent so far in preparing images and tokens, in prefixes, and in statements.

    It waits for the device after each of them. One pass over prefixes and statements counts as statements.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.prepare = self.prefix = self.statements = 0.0
        super().__init__(*arguments, **named)

    @contextlib.contextmanager
    def _noting(self, what: str) -> Iterator[None]:
        began = self._now()
        try:
            yield
        finally:
            setattr(self, what, getattr(self, what) + self._now() - began)

    def _now(self) -> float:
        if self.checkpoint.device.type == "cuda":
            torch.cuda.synchronize(self.checkpoint.device)
        return time.perf_counter()

    def _prepare(self, request: Any) -> Any:
        with self._noting("prepare"):
            return super()._prepare(request)

    def _prefill(self, group: Any) -> Any:
        with self._noting("prefix"):
            return super()._prefill(group)

    def _packed(self, group: Any) -> list[float]:
        with self._noting("statements"):
            return super()._packed(group)

    def _score_all(self, cache: Any, rows: Any) -> list[float]:
        with self._noting("statements"):
            return super()._score_all(cache, rows)
