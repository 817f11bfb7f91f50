"""How models are reached: apart from the clients, which are heavy, since every service reads settings."""

import json
import math
from collections.abc import Callable
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import AfterValidator, Field, field_validator, model_validator

from groundwatch.events import Usage
from groundwatch.section import AtLeastOne, Count, HttpAddress, Named, NotNegative, Positive, Section, wrong

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
    lists request parameters that it refuses, such as temperature and seed, and `extra_body` has further ones,
    which go over ours: `{chat_template_kwargs = {enable_thinking = false}}`, `{reasoning_effort = "none"}`.
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
    extra_body: dict[str, Any] = Field(default_factory=dict)
    temperature: float = 0.0
    seed: int = 0

    @field_validator("extra_body")
    @classmethod
    def _further(cls, body: dict[str, Any]) -> dict[str, Any]:
        if ours := sorted({"model", "messages", "stream", "response_format"} & body.keys()):
            raise ValueError(f"must not have {ours[0]}, which is set here for each request")
        try:
            json.dumps(body, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ValueError(f"must be what JSON can hold, without dates, nan and inf ({error})") from error
        return body

    def __hash__(self) -> int:
        """Of what tells judges apart: the cache looks up by settings, and `extra_body` has no hash."""
        return hash((self.base_url, self.model))


def _place(url: str) -> str:
    if not url or "://" in url:
        raise ValueError("must be host:port, without http://")
    return url


class DetectorSettings(Section):
    """How the verification engine `detector` decides by boxes.

    A box with the score s is what its label says with the probability 1 / (1 + exp(-(intercept + slope ·
    ln(s / (1 - s))))), which is Platt scaling of the detector's own logit. A statement is refuted where its
    probability is below `lower`, supported from `upper` on, and undecided between. One thing is left of or
    above another when their centers lie `margin` of the image's width or height apart, or more. `attributes`:
    properties that this detector tells apart when it is asked for a "small ball"; others are left undecided.
    """

    slope: Positive = 1.0
    intercept: float = 0.0
    lower: Annotated[float, Field(gt=0, lt=1)] = 0.3
    upper: Annotated[float, Field(gt=0, lt=1)] = 0.7
    margin: Annotated[float, Field(ge=0, lt=1)] = 0.1
    attributes: tuple[Literal["size", "material", "shape", "pattern", "age"], ...] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.lower > self.upper:
            raise wrong("upper", "must not be below detector.lower")
        return self

    def probability(self, score: float) -> float:
        """That a box with this score (0 to 1) is what its label says."""
        logit = math.log(max(score, 1e-9) / max(1 - score, 1e-9))
        return 1 / (1 + math.exp(-max(-700.0, min(700.0, self.intercept + self.slope * logit))))


class TritonSettings(AskingSettings):
    """Where Triton's gRPC is. `lvlm` to `detector` name the served models.

    `gpu_price` is what an hour of one of its GPUs costs, in US dollars.
    """

    url: Annotated[str, AfterValidator(_place), Field(json_schema_extra={"pattern": "^[^/]+:[0-9]+$"})] = (
        "localhost:8001"
    )
    tls: bool = False
    tls_ca: str = ""
    concurrency: AtLeastOne = 32
    first_wait: Positive = 0.25
    gpu_price: NotNegative = 0.0
    lvlm: Named = "lvlm"
    verifier: Named = "verifier"
    image_encoder: Named = "image_encoder"
    text_encoder: Named = "text_encoder"
    generator: Named = "generator"
    detector: Named = "detector"
