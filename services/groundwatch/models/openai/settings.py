"""How to reach a judge: apart from the client, which is heavy, since every service reads settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec

from groundwatch.events import Usage

OnCall: TypeAlias = Callable[[str, float, Usage], None]
"""Told of every request: how it ended (a `CallKind`), seconds it took, and what it used."""


class ChatSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to reach and pay a judge. Raises `ValueError` naming the key that is wrong.

    `api_key_env` names the environment variable with the key. `timeout` is for one request, `patience` for
    all waiting between the requests of one judgement, both in seconds; `retries` counts second tries after
    faults. After `breaker_failures` faults in a row of different events the judge is away: it is left alone
    for `breaker_pause` seconds, doubling up to ten times that. Prices are US dollars for a million tokens.
    `structured` is how the server constrains replies; `token_limit` is its name for `max_tokens`; `omit`
    lists request parameters that it refuses, such as temperature and seed.
    """

    base_url: str
    model: str
    api_key_env: str = "OPENAI_API_KEY"
    timeout: float = 60.0
    concurrency: int = 16
    structured: Literal["json_schema", "json_object", "none"] = "json_schema"
    input_price: float = 0.0
    output_price: float = 0.0
    max_tokens: int = 4096
    token_limit: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    omit: tuple[str, ...] = ()
    temperature: float = 0.0
    seed: int = 0
    retries: int = 2
    patience: float = 30.0
    first_wait: float = 0.5
    breaker_failures: int = 5
    breaker_pause: float = 5.0

    def __post_init__(self) -> None:
        checks = (
            ("base_url", self.base_url.startswith(("http://", "https://")), "must be an http(s) address"),
            ("model", bool(self.model), "must be named"),
            ("timeout", self.timeout > 0, "must be above 0 seconds"),
            ("concurrency", self.concurrency >= 1, "must be at least 1"),
            ("input_price", self.input_price >= 0, "must not be negative"),
            ("output_price", self.output_price >= 0, "must not be negative"),
            ("max_tokens", self.max_tokens >= 1, "must be at least 1"),
            ("retries", self.retries >= 0, "must not be negative"),
            ("patience", self.patience >= 0, "must not be negative"),
            ("first_wait", self.first_wait > 0, "must be above 0 seconds"),
            ("breaker_failures", self.breaker_failures >= 1, "must be at least 1"),
            ("breaker_pause", self.breaker_pause > 0, "must be above 0 seconds"),
        )
        for key, holds, message in checks:
            if not holds:
                # A ValueError becomes a msgspec error that knows which stage's settings these are.
                raise ValueError(f"{key} {message}")
