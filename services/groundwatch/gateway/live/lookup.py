"""One response with everything that became of it, read from the streams."""

import asyncio
from typing import Any

import msgspec
import nats.js.errors

from groundwatch.errors import TransientError
from groundwatch.events import LIVE, ResponseRecorded, ResponseScored, response_key
from groundwatch.gateway.intake.waiting import bounded
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.streams import FAULTS
from groundwatch.topology import OUTCOMES, RESPONSES, outcome_subject, recorded_subject

_RECORDED = msgspec.json.Decoder(ResponseRecorded)
_SCORED = msgspec.json.Decoder(ResponseScored)


async def look_up(bus: Bus, tenant: str, response_id: str) -> dict[str, Any] | None:
    """`response`, its `outcomes` by protocol and the protocols still `waiting`; None if not recorded.

    Raises `TransientError` when the streams cannot be read, or not in time.
    """
    async with bounded():
        return await _look_up(bus, tenant, response_id)


async def _look_up(bus: Bus, tenant: str, response_id: str) -> dict[str, Any] | None:
    key = response_key(tenant, response_id)
    data = await _last(bus, RESPONSES, recorded_subject(LIVE, key))
    if data is None:
        return None
    response = _RECORDED.decode(data)
    found = await asyncio.gather(
        *(_last(bus, OUTCOMES, outcome_subject(LIVE, protocol, key)) for protocol in response.protocols)
    )
    outcomes = {
        protocol: _SCORED.decode(outcome)
        for protocol, outcome in zip(response.protocols, found, strict=True)
        if outcome is not None
    }
    return {
        "response": response,
        "outcomes": outcomes,
        "waiting": [protocol for protocol in response.protocols if protocol not in outcomes],
    }


async def _last(bus: Bus, stream: str, subject: str) -> bytes | None:
    try:
        message = await bus.js.get_last_msg(stream, subject)
    except nats.js.errors.NotFoundError:
        return None
    except FAULTS as error:
        raise TransientError(f"cannot read {stream}: {error!r}") from error
    return message.data or b""
