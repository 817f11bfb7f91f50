"""Putting what a stage's results publish into the streams, however long NATS takes for it."""

from collections.abc import Awaitable, Callable, Sequence

from groundwatch.errors import GroundwatchError, Unavailable
from groundwatch.runtime.delivery import retry
from groundwatch.runtime.delivery.bus import Bus, Receipt, Stored, wait_acks
from groundwatch.runtime.delivery.outcomes import replace_dead
from groundwatch.runtime.delivery.work import Publication, Result
from groundwatch.runtime.settings import RetrySettings
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.topology import HEADER_OUTCOME, parse_subject

NATS_PAUSE = 10.0
"""Longest pause in seconds before NATS is tried again."""

NATS_TRIES = 50
"""After so many, an event that NATS will not take the results of makes room for another."""


class Storing:
    """Stores the results of one stage. `rest` sleeps, and says whether the stage goes on."""

    def __init__(
        self, stage: str, bus: Bus, retries: RetrySettings, rest: Callable[[float], Awaitable[bool]]
    ) -> None:
        self._stage = stage
        self._bus = bus
        self._retries = retries
        self._rest = rest

    async def publications(
        self, results: Sequence[Result | Exception], failures: list[dict[str, Exception]]
    ) -> None:
        """Store all that the results publish; what cannot be is added to the failures of its result.

        While NATS is away the results are kept, so that no judge is asked for them twice.
        """
        left = [
            (index, publication)
            for index, result in enumerate(results)
            if isinstance(result, Result)
            for publication in result.publications
        ]
        tries = 0
        going_on = True
        while left:
            sent = [(index, publication, await self._send(publication)) for index, publication in left]
            await wait_acks(receipt for _, _, receipt in sent if isinstance(receipt, Receipt))
            left = []
            for index, publication, receipt in sent:
                try:
                    await self._stored(publication, receipt)
                except GroundwatchError as error:
                    if not isinstance(error, Unavailable) or not going_on or tries >= NATS_TRIES:
                        failures[index] |= _by_protocol(publication, error)
                        continue
                    left.append((index, publication))
                    why = str(error)
            if left:
                tries += 1
                if tries == 1:
                    logger.warning("stage.cannot_publish", stage=self._stage, error=why)
                going_on = await self._rest(min(retry.delay(tries, self._retries), NATS_PAUSE))

    async def _send(self, publication: Publication) -> Receipt | GroundwatchError:
        try:
            return await self._bus.start_create(publication.outgoing)
        except GroundwatchError as error:
            return error

    async def _stored(self, publication: Publication, receipt: Receipt | GroundwatchError) -> None:
        if isinstance(receipt, GroundwatchError):
            raise receipt
        stored = receipt.result()
        if stored is Stored.EXISTED and HEADER_OUTCOME in publication.outgoing.headers:
            stored = await replace_dead(self._bus, publication.outgoing)
        if stored is Stored.NEW and publication.counted is not None:
            publication.counted()


def _by_protocol(publication: Publication, error: GroundwatchError) -> dict[str, Exception]:
    address = parse_subject(publication.outgoing.subject)
    return {address.protocol if address else "": error}
