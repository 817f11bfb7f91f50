"""What the engines that look at images share: which images, which statements, what a probability means."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from groundwatch.errors import GroundwatchError, Unscorable
from groundwatch.events import ClaimsExtracted, Decision, ResponseRecorded, Usage, Verdict
from groundwatch.protocols.base import EvaluationProtocol
from groundwatch.verification.engines.base import NOT_JUDGED, Verification

Image: TypeAlias = tuple[bytes, str]
"""An image's bytes and its media type."""

LoadImage: TypeAlias = Callable[[str], Awaitable[Image]]
"""From an image's SHA-256 digest to its bytes and media type.

Raises `LookupError` or `FileNotFoundError` for an image that is not there.
"""


class OneByOne:
    """Base of engines that ask a model about each response by itself, all of a batch at once."""

    batch = 1

    def __init__(self, load_image: LoadImage) -> None:
        self._load_image = load_image

    async def verify(
        self, extracted: Sequence[ClaimsExtracted], protocol: EvaluationProtocol
    ) -> Sequence[Verification | GroundwatchError]:
        """One result for each event, in order. No claims need no call.

        `Unscorable` is missing_image, nothing_to_look_at, or what the model made it.
        """
        return await asyncio.gather(*(self._verify(event, protocol) for event in extracted))

    async def _verify(
        self, event: ClaimsExtracted, protocol: EvaluationProtocol
    ) -> Verification | GroundwatchError:
        if not event.claims:
            return Verification()
        try:
            return await self._judge(event, await self._look(event.response), protocol)
        except GroundwatchError as error:
            return error

    async def _judge(
        self, event: ClaimsExtracted, images: Sequence[Image], protocol: EvaluationProtocol
    ) -> Verification:
        raise NotImplementedError

    async def _look(self, response: ResponseRecorded) -> Sequence[Image]:
        """The response's images, which are all that is looked at: a reference is never read here."""
        if not response.images:
            raise Unscorable("nothing_to_look_at", "no image, and this judge reads no reference")
        images = []
        for name in response.images:
            try:
                images.append(await self._load_image(name))
            except (LookupError, FileNotFoundError) as error:
                raise Unscorable("missing_image", name) from error
        return images


def statements(event: ClaimsExtracted, protocol: EvaluationProtocol) -> list[str]:
    """What is judged, one statement for each claim."""
    return [protocol.statement(event.response, claim) for claim in event.claims]


def verdict(probability: float, threshold: float) -> Verdict:
    """Supported from the threshold up; the verdict carries the probability."""
    decision = Decision.SUPPORTED if probability >= threshold else Decision.REFUTED
    return Verdict(decision=decision, probability=probability)


def verification(verdicts: Sequence[Verdict | Unscorable], usage: Usage) -> Verification:
    """The verdicts of one response; a statement that could not be judged is undecided, with its reason.

    Raises the first `Unscorable` when none of them could be judged.
    """
    failed = [one for one in verdicts if isinstance(one, Unscorable)]
    if failed and len(failed) == len(verdicts):
        raise failed[0]
    return Verification(
        verdicts=tuple(
            Verdict(decision=Decision.UNDECIDED, evidence=f"{NOT_JUDGED}: {one}"[:_EVIDENCE])
            if isinstance(one, Unscorable)
            else one
            for one in verdicts
        ),
        usage=usage,
    )


_EVIDENCE = 300
