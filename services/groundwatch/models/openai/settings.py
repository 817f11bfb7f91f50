"""How to reach a judge: apart from the client, which is heavy, since every service reads settings."""

from collections.abc import Callable
from typing import Literal, TypeAlias

from groundwatch.events import Usage
from groundwatch.section import AtLeastOne, Count, HttpAddress, Named, NotNegative, Positive, Section

OnCall: TypeAlias = Callable[[str, float, Usage], None]
"""Told of every request: how it ended (a `CallKind`), seconds it took, and what it used."""


class ChatSettings(Section):
    """How to reach and pay a judge.

    `api_key_env` names the environment variable with the key. `timeout` is for one request, `patience` for
    all waiting between the requests of one judgement, both in seconds; `retries` counts second tries after
    faults. After `breaker_failures` faults in a row of different events the judge is away: it is left alone
    for `breaker_pause` seconds, doubling up to ten times that. Prices are US dollars for a million tokens.
    `structured` is how the server constrains replies; `token_limit` is its name for `max_tokens`; `omit`
    lists request parameters that it refuses, such as temperature and seed.
    """

    base_url: HttpAddress
    model: Named
    api_key_env: str = "OPENAI_API_KEY"
    timeout: Positive = 60.0
    concurrency: AtLeastOne = 16
    structured: Literal["json_schema", "json_object", "none"] = "json_schema"
    input_price: NotNegative = 0.0
    output_price: NotNegative = 0.0
    max_tokens: AtLeastOne = 4096
    token_limit: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    omit: tuple[str, ...] = ()
    temperature: float = 0.0
    seed: int = 0
    retries: Count = 2
    patience: NotNegative = 30.0
    first_wait: Positive = 0.5
    breaker_failures: AtLeastOne = 5
    breaker_pause: Positive = 5.0
