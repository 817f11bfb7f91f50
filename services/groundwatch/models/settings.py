"""How models are reached: apart from the clients, which are heavy, since every service reads settings."""

from collections.abc import Callable
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, Field

from groundwatch.events import Usage
from groundwatch.section import AtLeastOne, Count, HttpAddress, Named, NotNegative, Positive, Section

OnCall: TypeAlias = Callable[[str, float, Usage], None]
"""Told of every request: how it ended (a `CallKind`), seconds it took, and what it used."""


class AskingSettings(Section):
    """How long a model on somebody else's server is waited for.

    `timeout` is for one request, `patience` for all waiting between the requests of one call, both in
    seconds; `retries` counts second tries after faults. After `breaker_failures` faults in a row of different
    events the model is away: it is left alone for `breaker_pause` seconds, doubling up to ten times that.
    """

    timeout: Positive = 60.0
    concurrency: AtLeastOne = 16
    retries: Count = 2
    patience: NotNegative = 30.0
    first_wait: Positive = 0.5
    breaker_failures: AtLeastOne = 5
    breaker_pause: Positive = 5.0


class ChatSettings(AskingSettings):
    """How to reach and pay a judge.

    `api_key_env` names the environment variable with the key. Prices are US dollars for a million tokens.
    `structured` is how the server constrains replies; `token_limit` is its name for `max_tokens`; `omit`
    lists request parameters that it refuses, such as temperature and seed.
    """

    base_url: HttpAddress
    model: Named
    api_key_env: str = "OPENAI_API_KEY"
    structured: Literal["json_schema", "json_object", "none"] = "json_schema"
    input_price: NotNegative = 0.0
    output_price: NotNegative = 0.0
    max_tokens: AtLeastOne = 4096
    token_limit: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    omit: tuple[str, ...] = ()
    temperature: float = 0.0
    seed: int = 0


def _place(url: str) -> str:
    if not url or "://" in url:
        raise ValueError("must be host:port, without http://")
    return url


class TritonSettings(AskingSettings):
    """Where Triton's gRPC is. `lvlm` to `generator` name the served models."""

    url: Annotated[str, AfterValidator(_place), Field(json_schema_extra={"pattern": "^[^/]+:[0-9]+$"})] = (
        "localhost:8001"
    )
    tls: bool = False
    tls_ca: str = ""
    concurrency: AtLeastOne = 32
    first_wait: Positive = 0.25
    lvlm: Named = "lvlm"
    verifier: Named = "verifier"
    image_encoder: Named = "image_encoder"
    text_encoder: Named = "text_encoder"
    generator: Named = "generator"
