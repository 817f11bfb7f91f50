"""People's verdicts on claims of live traffic beside the judge's."""

import time
from collections.abc import Iterable
from pathlib import Path

import msgspec
import nats.js.errors
from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

from groundwatch.errors import UsageError
from groundwatch.events import LIVE, Decision, ResponseScored, response_key
from groundwatch.protocols.people import (
    PersonsVerdict,
    VerdictAgreement,
    decision_on,
    verdict_agreement,
)
from groundwatch.protocols.published import Place
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.topology import OUTCOMES, is_token, outcome_subject


async def compare_verdicts(
    verdicts: Iterable[tuple[Place, PersonsVerdict]], bus: Bus
) -> dict[str, VerdictAgreement]:
    """By protocol. Raises `FileFormatError` with the line that has no outcome."""
    return verdict_agreement([(one, await _judged(bus, place, one)) for place, one in verdicts])


async def _judged(bus: Bus, place: Place, verdict: PersonsVerdict) -> Decision:
    if not is_token(verdict.protocol):
        raise place.wrong(f"no protocol '{verdict.protocol}'")
    subject = outcome_subject(LIVE, verdict.protocol, response_key(verdict.tenant, verdict.id))
    try:
        message = await bus.js.get_last_msg(OUTCOMES, subject)
    except nats.js.errors.NotFoundError as error:
        what = f"no outcome of {verdict.protocol} for response '{verdict.id}' of tenant '{verdict.tenant}'"
        raise place.wrong(what) from error
    decision = decision_on(verdict, msgspec.json.decode(message.data or b"", type=ResponseScored))
    if decision is None:
        raise place.wrong(f"key 'claim': the outcome of '{verdict.id}' has no claim {verdict.claim!r}")
    return decision


def write_metrics(path: Path, found: dict[str, VerdictAgreement]) -> None:
    """Write the counts for the textfile collector of node_exporter, or a Pushgateway."""
    registry = CollectorRegistry()
    verdicts = Gauge(
        "groundwatch_people_verdicts",
        "Verdicts of people on claims, beside what the judge said",
        ("protocol", "people", "judge"),
        registry=registry,
    )
    compared = Gauge(
        "groundwatch_people_compared_time_seconds",
        "When people's verdicts were compared, in seconds since the epoch",
        registry=registry,
    )
    compared.set(time.time())
    for protocol, agreement in found.items():
        for people, judged in agreement.counts.items():
            for judge, number in judged.items():
                verdicts.labels(protocol, people, judge).set(number)
    try:
        write_to_textfile(str(path), registry)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror or error}") from error
