"""Judges beside people: people's verdicts on live claims."""

import time
from collections.abc import Iterable
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

from groundwatch.errors import told_to_user
from groundwatch.events import LIVE, Decision, ResponseScored
from groundwatch.keys import home_key, response_key
from groundwatch.protocols.people import PersonsVerdict, VerdictAgreement, decision_on, verdict_agreement
from groundwatch.protocols.published import Place
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.topology import OUTCOMES, is_token, subject_of


async def compare_verdicts(
    verdicts: Iterable[tuple[Place, PersonsVerdict]], bus: Bus
) -> dict[str, VerdictAgreement]:
    """By protocol. Raises `FileFormatError` with the line that has no outcome."""
    return verdict_agreement([(one, await _judged(bus, place, one)) for place, one in verdicts])


async def _judged(bus: Bus, place: Place, verdict: PersonsVerdict) -> Decision:
    if not is_token(verdict.protocol):
        raise place.wrong(f"no protocol '{verdict.protocol}'")
    key = home_key(response_key(verdict.tenant, verdict.id), bus.partitions)
    message = await bus.history.last(OUTCOMES, subject_of("outcome", LIVE, verdict.protocol, key))
    if message is None:
        what = f"no outcome of {verdict.protocol} for response '{verdict.id}' of tenant '{verdict.tenant}'"
        raise place.wrong(what)
    decision = decision_on(verdict, msgspec.json.decode(message.data, type=ResponseScored))
    if decision is None:
        raise place.wrong(f"key 'claim': the outcome of '{verdict.id}' has no claim {verdict.claim!r}")
    return decision


def write_metrics(path: Path, found: dict[str, VerdictAgreement]) -> None:
    """Write the counts for the textfile collector of node_exporter, or a Pushgateway."""
    collected = CollectorRegistry()
    verdicts = Gauge(
        "groundwatch_people_verdicts",
        "Verdicts of people on claims, beside what the judge said",
        ("protocol", "people", "judge"),
        registry=collected,
    )
    compared = Gauge(
        "groundwatch_people_compared_time_seconds",
        "When people's verdicts were compared, in seconds since the epoch",
        registry=collected,
    )
    compared.set(time.time())
    for protocol, agreement in found.items():
        for people, judged in agreement.counts.items():
            for judge, number in judged.items():
                verdicts.labels(protocol, people, judge).set(number)
    with told_to_user(f"{path}: cannot be written"):
        write_to_textfile(str(path), collected)
