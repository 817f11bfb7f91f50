"""What settings say of one judge, alone or in a row with others; and of a model as second opinion, with the
protocols that it can be asked about."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from groundwatch.errors import SettingsError
from groundwatch.models.settings import ChatSettings
from groundwatch.protocols import registry
from groundwatch.protocols.base import ELSEWHERE, EvaluationProtocol
from groundwatch.runtime.settings.gateway import Protocol
from groundwatch.section import AtLeastOne, Count, Named, Section, wrong

if TYPE_CHECKING:
    from groundwatch.runtime.settings import Settings

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


JUDGE = "second_opinion.judge"


class SecondOpinionSettings(Section):
    """A judge that gives its opinion on a `share` of what the first judges judge; empty `judge`: none does.

    `judge` is the name of one of `[judges]` or a verification engine. With the rule `uncertain` answers are
    likelier of which the first judge is unsure, with `signals` others too that call for a look. Empty
    `protocols` are those of the gateway that it can judge. It is asked about `per_hour` answers at most, and
    `concurrency` at once; 0: as many as it takes.
    """

    judge: str = ""
    rule: Literal["uncertain", "signals", "random"] = "uncertain"
    share: Annotated[float, Field(gt=0, le=1)] = 0.02
    protocols: tuple[Protocol, ...] = ()
    per_hour: AtLeastOne = 100
    concurrency: Count = 0


def second_engines() -> tuple[str, ...]:
    """Verification engines that can be named in place of one of `[judges]`."""
    known = (engine for name in registry.names() for engine in registry.get(name).verifiers)
    return tuple(dict.fromkeys(engine for engine in known if ":" not in engine))


def second_protocols(first: "Settings", second: "Settings") -> tuple[str, ...]:
    """The protocols about which the judge of `second` is asked, whose first judge is that of `first`.

    Raises `SettingsError` where it cannot judge one that is named, or is the first judge itself.
    """
    section = first.second_opinion
    why = {name: _why_not(registry.get(name), first, second) for name in _wanted(first)}
    able = tuple(name for name, reason in why.items() if not reason)
    if section.protocols and len(able) < len(why):
        raise SettingsError(f"setting 'second_opinion.protocols': {next(filter(None, why.values()))}")
    if not able:
        raise SettingsError(f"setting '{JUDGE}': {next(iter(why.values()), 'no protocol is judged')}")
    return able


def _wanted(settings: "Settings") -> tuple[str, ...]:
    return tuple(dict.fromkeys(settings.second_opinion.protocols or settings.gateway.protocols))


def _why_not(protocol: EvaluationProtocol, first: "Settings", second: "Settings") -> str:
    """Why it gives no second opinion on this protocol's answers; empty where it does."""
    named = second.verification.named(protocol)
    if why := protocol.why_not("") or (protocol.why_not(named) if named != CASCADE else ""):
        return why
    if second.verification.of(protocol).engine == "noop":
        return "noop looks at nothing: its opinion would be none"
    if _judged_by(protocol, first) == _judged_by(protocol, second):
        if protocol.labelled:
            return f"{protocol.name} is judged by its responses' labels unless a judge is named for it alone"
        judge = first.second_opinion.judge
        # A protocol with a judge of its own keeps it where the one that is named cannot judge it.
        unable = "" if judge in first.judges else protocol.why_not(judge)
        return unable or f"is the first judge of {protocol.name} itself: name another one"
    return ""


def _judged_by(protocol: EvaluationProtocol, settings: "Settings") -> dict[str, Any]:
    """All that settings say of who verifies this protocol's claims."""
    section = settings.verification.of(protocol)
    found: dict[str, Any] = {"verification": section.model_dump()}
    engines = {section.engine, *(step.engine for step in section.cascade)}
    if engines & {*ELSEWHERE}:
        found |= {name: getattr(settings, name).model_dump() for name in ("visual", "detector", "triton")}
    return found
