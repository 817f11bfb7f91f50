"""How to reach Triton: apart from the client, which is heavy, since every service reads settings."""

from __future__ import annotations

import msgspec


class TritonSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where Triton's gRPC is, and how long it is waited for. Raises `ValueError` naming a wrong key.

    `timeout` is for one request, `patience` for all waiting between the requests of one call, both in
    seconds; `retries` counts second tries after faults. After `breaker_failures` faults in a row a model is
    left alone for `breaker_pause` seconds, doubling up to ten times that. `lvlm` to `generator` name the
    served models.
    """

    url: str = "localhost:8001"
    tls: bool = False
    tls_ca: str = ""
    timeout: float = 60.0
    concurrency: int = 32
    retries: int = 2
    patience: float = 30.0
    first_wait: float = 0.25
    breaker_failures: int = 5
    breaker_pause: float = 5.0
    lvlm: str = "lvlm"
    verifier: str = "verifier"
    image_encoder: str = "image_encoder"
    text_encoder: str = "text_encoder"
    generator: str = "generator"

    def __post_init__(self) -> None:
        checks = (
            ("url", bool(self.url) and "://" not in self.url, "must be host:port, without http://"),
            ("timeout", self.timeout > 0, "must be above 0 seconds"),
            ("concurrency", self.concurrency >= 1, "must be at least 1"),
            ("retries", self.retries >= 0, "must not be negative"),
            ("patience", self.patience >= 0, "must not be negative"),
            ("first_wait", self.first_wait > 0, "must be above 0 seconds"),
            ("breaker_failures", self.breaker_failures >= 1, "must be at least 1"),
            ("breaker_pause", self.breaker_pause > 0, "must be above 0 seconds"),
            *(
                (name, bool(getattr(self, name)), "must be named")
                for name in ("lvlm", "verifier", "image_encoder", "text_encoder", "generator")
            ),
        )
        for key, holds, message in checks:
            if not holds:
                # A ValueError becomes a msgspec error that knows where these settings are.
                raise ValueError(f"{key} {message}")
