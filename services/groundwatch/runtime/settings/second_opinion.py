"""What settings say of a model as second opinion, and which protocols it can be asked about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from groundwatch.errors import SettingsError
from groundwatch.protocols import registry
from groundwatch.protocols.base import ELSEWHERE, EvaluationProtocol
from groundwatch.runtime.settings.gateway import Protocol
from groundwatch.runtime.settings.judges import CASCADE
from groundwatch.section import AtLeastOne, Count, Section

if TYPE_CHECKING:
    from groundwatch.runtime.settings import Settings

JUDGE = "second_opinion.judge"


class SecondOpinionSettings(Section):
    """A judge that gives its opinion on a `share` of what the first judges judge; empty `judge`: none does.

    `judge` is the name of one of `[judges]` or a verification engine. With the rule `uncertain` answers are
    likelier of which the first judge is unsure. Empty `protocols` are those of the gateway that it can judge.
    It is asked about `per_hour` answers at most, and `concurrency` at once; 0: as many as it takes.
    """

    judge: str = ""
    rule: Literal["uncertain", "random"] = "uncertain"
    share: Annotated[float, Field(gt=0, le=1)] = 0.02
    protocols: tuple[Protocol, ...] = ()
    per_hour: AtLeastOne = 100
    concurrency: Count = 0


def second_engines() -> tuple[str, ...]:
    """Verification engines that can be named in place of one of `[judges]`."""
    known = (engine for name in registry.names() for engine in registry.get(name).verifiers)
    return tuple(dict.fromkeys(engine for engine in known if ":" not in engine))


def second_protocols(first: Settings, second: Settings) -> tuple[str, ...]:
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


def _wanted(settings: Settings) -> tuple[str, ...]:
    return tuple(dict.fromkeys(settings.second_opinion.protocols or settings.gateway.protocols))


def _why_not(protocol: EvaluationProtocol, first: Settings, second: Settings) -> str:
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


def _judged_by(protocol: EvaluationProtocol, settings: Settings) -> dict[str, Any]:
    """All that settings say of who verifies this protocol's claims."""
    section = settings.verification.of(protocol)
    found: dict[str, Any] = {"verification": section.model_dump()}
    engines = {section.engine, *(step.engine for step in section.cascade)}
    if engines & {*ELSEWHERE}:
        found |= {name: getattr(settings, name).model_dump() for name in ("visual", "detector", "triton")}
    return found
