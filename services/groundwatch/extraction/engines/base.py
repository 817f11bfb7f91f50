"""What every extraction engine is."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from groundwatch.errors import GroundwatchError
from groundwatch.events import Claim, Judge, ResponseRecorded, SubSentence, Usage
from groundwatch.protocols.base import EvaluationProtocol


class Extraction(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine found in one answer: its sub-sentences, labelled, and its claims in order."""

    units: tuple[SubSentence, ...] = ()
    claims: tuple[Claim, ...] = ()
    usage: Usage = Usage()


class ExtractionEngine(Protocol):
    """Finds the claims of answers. Chosen by name in settings.

    `batch` is how many responses the engine likes to see at once: 1 for engines that wait for somebody
    else (they are called concurrently instead), more for engines that compute.
    """

    batch: int

    def judge(self, protocol: EvaluationProtocol) -> Judge: ...

    async def extract(
        self, responses: Sequence[ResponseRecorded], protocol: EvaluationProtocol
    ) -> Sequence[Extraction | GroundwatchError]:
        """One result for each response, in order.

        An error stands in the place of its response's result and leaves the others alone: `Unscorable`
        becomes an unscored outcome, `TransientError` is retried, `InputError` goes to the dead letters.
        """
        ...

    async def close(self) -> None: ...
