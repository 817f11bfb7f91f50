"""Test engines and impatient consumers for the command line that `entry.py` runs.

What a test must bend is bent here, from outside: product code knows nothing of it. The variables are

    FAULT_ACK_WAIT         seconds after which the server delivers again; 0: as the consumers are declared
    FAULT_ENGINES          "hash" for the engines below, "real" for those that settings name, "claims" for
                           the extraction below with the verification that settings name
    FAULT_CURE             while this file is there, no answer troubles the extraction below for good
    FAULT_SLOW             seconds that each turn of a stand-in takes, one turn at a time
    FAULT_COOL             seconds between two rounds of cooling; ids wait for gateways for a short time
    FAULT_DIE_BEFORE_ACK   kill this process −9 after publishing, before acknowledging, at this message
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

import groundwatch.topology as topology
from groundwatch.errors import GroundwatchError, InputError, TransientError, Unscorable
from groundwatch.events import (
    Claim,
    ClaimsExtracted,
    Decision,
    Judge,
    Label,
    ResponseRecorded,
    SubSentence,
    Verdict,
)
from groundwatch.keys import digest

CATEGORIES = ("entity", "relation", "color", "count", "other")
DECISIONS = (Decision.SUPPORTED, Decision.SUPPORTED, Decision.REFUTED, Decision.UNDECIDED)


CANNOT_BEAR, WILL_NOT_HAVE, REFUSES, WELL = 0, 1, 2, 10
"""What becomes of an answer in the extraction below; between the last two: nothing, at the second try."""


def dice(*parts: str) -> int:
    """A number that only the parts decide."""
    return int(digest(*parts)[:8], 16)


def trouble(answer: str) -> int:
    """How an answer troubles the extraction below: most do not."""
    return dice(answer) % 400


class HashExtraction:
    """Finds claims that only the answer decides; some answers trouble it, always in the same way."""

    batch = 50
    languages = None

    def __init__(self) -> None:
        self._tried: set[str] = set()
        self._cure = Path(os.environ.get("FAULT_CURE", os.devnull))

    def judge(self, protocol: object) -> Judge:
        return Judge(engine="hash")

    async def extract(self, responses: Sequence[ResponseRecorded], protocol: object) -> Sequence[object]:
        from groundwatch.extraction.engines.base import Extraction

        await asyncio.sleep(0.005)
        found: list[Extraction | GroundwatchError] = []
        for response in responses:
            thrown = trouble(response.answer)
            if thrown <= WILL_NOT_HAVE and self._cure.is_file():
                thrown = WELL
            if thrown == CANNOT_BEAR:
                raise ValueError(f"cannot bear {response.id}")
            if thrown == WILL_NOT_HAVE:
                found.append(InputError(f"will not have {response.id}"))
                continue
            if thrown == REFUSES:
                found.append(Unscorable("refused", response.id))
                continue
            if thrown < WELL and response.key not in self._tried:
                self._tried.add(response.key)
                found.append(TransientError("not now"))
                continue
            words = response.answer.split()
            found.append(
                Extraction(
                    units=(
                        SubSentence(
                            start=0,
                            end=len(response.answer),
                            text=response.answer,
                            label=Label.DESCRIPTIVE,
                        ),
                    ),
                    claims=tuple(
                        Claim(text=f"There is {word}.", category=CATEGORIES[dice(word) % 5]) for word in words
                    ),
                )
            )
        return found

    async def close(self) -> None:
        pass


class HashVerification:
    """Decides by the claim's text and the response's id."""

    batch = 50

    def judge(self, protocol: object) -> Judge:
        return Judge(engine="hash")

    async def verify(self, extracted: Sequence[ClaimsExtracted], protocol: object) -> Sequence[object]:
        from groundwatch.verification.engines.base import Verification

        await asyncio.sleep(0.005)
        return [
            Verification(
                verdicts=tuple(
                    Verdict(decision=DECISIONS[dice(claim.text, event.response.id) % len(DECISIONS)])
                    for claim in event.claims
                )
            )
            for event in extracted
        ]

    async def close(self) -> None:
        pass


def slowed(call: Any, pause: float) -> Any:
    """The same call after a pause."""

    async def slow(*args: Any) -> Any:
        await asyncio.sleep(pause)
        return await call(*args)

    return slow


def cool_soon(seconds: float) -> None:
    """Rounds of cooling follow each other so, and what must wait for gateways to know it waits less."""
    import groundwatch.archive.cooling as cooling
    import groundwatch.gateway.intake.known_ids as known_ids
    import groundwatch.runtime.stores.repeats as repeats

    cooling.COOL_SECONDS = seconds
    # Between the two lies more than any gateway is stopped for, and then takes to send what it had begun.
    repeats.HOLD_SECONDS, repeats.CURRENT_SECONDS, known_ids.LOOK_SECONDS = 32.0, 8.0, 1.0


def bend() -> None:
    """Put the test's wishes in place before anything is imported that would look at them."""
    if ack_wait := float(os.environ.get("FAULT_ACK_WAIT", "0")):
        topology.CONSUMERS = tuple(
            msgspec.structs.replace(spec, ack_wait=ack_wait) for spec in topology.CONSUMERS
        )
    engines = os.environ.get("FAULT_ENGINES")
    if engines in ("hash", "claims"):
        import groundwatch.extraction.engines as engines_of_extraction
        import groundwatch.extraction.service as extraction

        # The service has the name for itself; a replay looks it up where it is.
        extraction.build = engines_of_extraction.build = lambda *_, **__: HashExtraction()
    if engines == "hash":
        import groundwatch.verification.service as verification

        verification.build = lambda *_, **__: HashVerification()
    if pause := float(os.environ.get("FAULT_SLOW", "0")):
        from tests.support.fakes import StandInCaptioningEngine, StandInGenerationEngine

        for engine, name in ((StandInCaptioningEngine, "say"), (StandInGenerationEngine, "generate")):
            engine.batch = 1
            setattr(engine, name, slowed(getattr(engine, name), pause))
    if cool := float(os.environ.get("FAULT_COOL", "0")):
        cool_soon(cool)
    if fatal := int(os.environ.get("FAULT_DIE_BEFORE_ACK", "0")):
        import groundwatch.runtime.delivery.work as work

        acknowledged = 0
        original = work.Arrived.ack

        async def ack(self: work.Arrived) -> None:
            nonlocal acknowledged
            acknowledged += 1
            if acknowledged == fatal:
                os.kill(os.getpid(), signal.SIGKILL)
            await original(self)

        work.Arrived.ack = ack
