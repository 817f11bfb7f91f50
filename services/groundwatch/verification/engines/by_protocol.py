"""An engine for each protocol: what settings name for it, or its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from groundwatch.errors import GroundwatchError
from groundwatch.events import ClaimsExtracted, Judge
from groundwatch.protocols import registry
from groundwatch.protocols.base import FOR_ANY, EvaluationProtocol
from groundwatch.runtime.settings import StageSettings
from groundwatch.runtime.settings.judges import EngineSettings
from groundwatch.verification.engines.base import Verification, VerificationEngine, gathering, verify_with


class EngineByProtocol(VerificationEngine):
    """A protocol's claims go to the engine that is set for it, which judges under its own name.

    All are made at once, one for all protocols that are set alike. Those that settings name are warmed up;
    the others load at their first claim: who is never asked for a triplet never loads an embedding model.
    """

    def __init__(self, settings: StageSettings, make: Callable[..., VerificationEngine]) -> None:
        """`make` makes the engine of a section; where it is `needed`, not without an extra that is absent."""
        self._settings = settings
        self._make = make
        self._engines: dict[str, VerificationEngine] = {}
        self._of: dict[str, VerificationEngine] = {}
        self._named: list[VerificationEngine] = []
        by_protocol = settings.by_protocol()
        if settings.engine not in (*FOR_ANY, *by_protocol.values()):
            self._made(settings, needed=True)
        several = list(dict.fromkeys(self.of(registry.get(name)) for name in by_protocol))
        self.judges = sum(getattr(one, "judges", 1) for one in several)
        given, self.at_once = gathering(several)
        self.batch = 1 if self.at_once else max(one.batch for one in several)
        self._given = dict(zip(several, given, strict=True))

    def of(self, protocol: EvaluationProtocol) -> VerificationEngine:
        """Who verifies its claims."""
        if protocol.name not in self._of:
            section, named = self._settings.of(protocol), self._settings.named(protocol)
            engine = self._made(section, needed=section.engine == named or not protocol.why_not(named))
            self._of[protocol.name] = engine
            if section.engine == named and engine not in self._named:
                self._named.append(engine)
        return self._of[protocol.name]

    def judge(self, protocol: EvaluationProtocol) -> Judge:
        return self.of(protocol).judge(protocol)

    async def verify(
        self, extracted: Sequence[ClaimsExtracted], protocol: EvaluationProtocol
    ) -> Sequence[Verification | GroundwatchError]:
        engine = self.of(protocol)
        return await verify_with(self._given.get(engine, engine), extracted, protocol)

    async def warm_up(self) -> None:
        for engine in self._named:
            if (warm_up := getattr(engine, "warm_up", None)) is not None:
                await warm_up()

    def problems(self) -> list[str]:
        several = (getattr(engine, "problems", list) for engine in self._engines.values())
        return [problem for problems in several for problem in problems()]

    async def close(self) -> None:
        for engine in self._engines.values():
            await engine.close()

    def _made(self, section: EngineSettings, *, needed: bool) -> VerificationEngine:
        key = section.model_dump_json()
        if key not in self._engines:
            self._engines[key] = self._make(section, needed=needed)
        return self._engines[key]
