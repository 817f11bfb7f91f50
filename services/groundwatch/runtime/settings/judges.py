"""What settings say of one judge, alone or in a row with others."""

from collections.abc import Iterator
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from groundwatch.models.settings import ChatSettings
from groundwatch.section import Named, Section, wrong

ASKING = ("llm", "visual", "openai")
"""Engines that ask the endpoint in their stage's `llm`."""

CASCADE = "cascade"
"""The verification engine that asks several judges, one after the other."""

EMBEDDED = "embedded"
"""Each protocol's own verification engine that runs here."""


class JudgeSettings(Section):
    """Which engine, by its name; empty: the stage's own default.

    `llm` says how to reach the model of the engine `llm`, of verification's engine `visual` and of
    generation's engine `openai`.
    """

    engine: str = ""
    llm: ChatSettings | None = None
    embedding_model: str = ""
    """Folder of a sentence-transformers model in place of the embedded one: for verification and matching."""


class CascadeStep(JudgeSettings):
    """One of the judges of a cascade, and where it is believed: P(yes) outside of both bounds.

    With one bound only it is believed on that side alone; with none, wherever it decides. What it does not
    say itself (`llm`, `embedding_model`) is that of the section with the cascade.
    """

    engine: Named
    refuted_below: Annotated[float, Field(ge=0, le=1)] | None = None
    supported_above: Annotated[float, Field(ge=0, le=1)] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.engine == CASCADE:
            raise wrong("engine", "no cascade within a cascade: name its judges here")
        if self.bounds and self.bounds[0] > self.bounds[1]:
            raise wrong("supported_above", "must not be below refuted_below")
        return self

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Refuted below the first, supported above the second; None: it is believed wherever it decides."""
        low, high = self.refuted_below, self.supported_above
        return None if low is None and high is None else (low or 0.0, 1.0 if high is None else high)

    def shown(self, judge: str) -> str:
        """The judge's name with where it is believed."""
        sides = (("<", self.refuted_below), (">", self.supported_above))
        told = ", ".join(f"{side}{bound}" for side, bound in sides if bound is not None)
        return f"{judge} ({told})" if told else judge


class EngineSettings(JudgeSettings):
    """`cascade` has the judges of the engine of that name, in the order in which they are asked."""

    cascade: tuple[CascadeStep, ...] = ()

    @field_validator("cascade")
    @classmethod
    def _ends(cls, steps: tuple[CascadeStep, ...]) -> tuple[CascadeStep, ...]:
        if len(steps) == 1:
            raise ValueError("must have two judges or more: name one alone as engine")
        if steps and steps[-1].bounds:
            raise ValueError("must end with a judge without bounds: what the last one says stands")
        return steps

    def sections(self) -> Iterator[JudgeSettings]:
        """This one and those of the judges in it."""
        yield self
        yield from self.cascade

    @property
    def shown(self) -> str:
        """Who judges: the engine, or those of the cascade in order."""
        return " > ".join(step.shown(step.engine) for step in self.cascade) or self.engine
