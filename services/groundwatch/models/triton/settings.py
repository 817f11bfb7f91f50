"""How to reach Triton: apart from the client, which is heavy, since every service reads settings."""

from typing import Annotated

from pydantic import AfterValidator, Field

from groundwatch.section import AtLeastOne, Count, Named, NotNegative, Positive, Section


def _place(url: str) -> str:
    if not url or "://" in url:
        raise ValueError("must be host:port, without http://")
    return url


class TritonSettings(Section):
    """Where Triton's gRPC is, and how long it is waited for.

    `timeout` is for one request, `patience` for all waiting between the requests of one call, both in
    seconds; `retries` counts second tries after faults. After `breaker_failures` faults in a row a model is
    left alone for `breaker_pause` seconds, doubling up to ten times that. `lvlm` to `generator` name the
    served models.
    """

    url: Annotated[str, AfterValidator(_place), Field(json_schema_extra={"pattern": "^[^/]+:[0-9]+$"})] = (
        "localhost:8001"
    )
    tls: bool = False
    tls_ca: str = ""
    timeout: Positive = 60.0
    concurrency: AtLeastOne = 32
    retries: Count = 2
    patience: NotNegative = 30.0
    first_wait: Positive = 0.25
    breaker_failures: AtLeastOne = 5
    breaker_pause: Positive = 5.0
    lvlm: Named = "lvlm"
    verifier: Named = "verifier"
    image_encoder: Named = "image_encoder"
    text_encoder: Named = "text_encoder"
    generator: Named = "generator"
