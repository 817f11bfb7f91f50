"""`groundwatch agree verdicts`: people's verdicts on claims of live traffic beside the judge's."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import nats.js.errors
from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

from groundwatch.cli.common import connected, run
from groundwatch.cli.output import print_json
from groundwatch.errors import UsageError
from groundwatch.events import LIVE, Decision, ResponseScored, response_key
from groundwatch.protocols.verdicts import (
    PersonsVerdict,
    VerdictAgreement,
    decision_on,
    read_verdicts,
    verdict_agreement,
)
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.settings import Settings
from groundwatch.terminal import Console, Table, box
from groundwatch.topology import OUTCOMES, is_token, outcome_subject


def agree_verdicts(file: Path, settings: Settings, metrics_file: Path | None, *, as_json: bool) -> None:
    """Compare, print, and write the metrics. Raises `FileFormatError` with the line that has no outcome."""
    verdicts = read_verdicts(file)
    if not verdicts:
        raise UsageError(f"{file} has no verdicts")

    async def work() -> list[tuple[PersonsVerdict, Decision]]:
        async with connected(settings, "agree") as bus:
            return [(one, await _judged(bus, one)) for one in verdicts]

    found = verdict_agreement(run(work()))
    if metrics_file is not None:
        _write(metrics_file, found)
    if as_json:
        print_json(found)
    else:
        _render(found, Console())


async def _judged(bus: Bus, verdict: PersonsVerdict) -> Decision:
    if not is_token(verdict.protocol):
        raise verdict.place.wrong(f"no protocol '{verdict.protocol}'")
    subject = outcome_subject(LIVE, verdict.protocol, response_key(verdict.tenant, verdict.id))
    try:
        message = await bus.js.get_last_msg(OUTCOMES, subject)
    except nats.js.errors.NotFoundError as error:
        what = f"no outcome of {verdict.protocol} for response '{verdict.id}' of tenant '{verdict.tenant}'"
        raise verdict.place.wrong(what) from error
    decision = decision_on(verdict, msgspec.json.decode(message.data or b"", type=ResponseScored))
    if decision is None:
        raise verdict.place.wrong(
            f"key 'claim': the outcome of '{verdict.id}' has no claim {verdict.claim!r}"
        )
    return decision


def _write(path: Path, found: dict[str, VerdictAgreement]) -> None:
    """For the textfile collector of node_exporter, or a Pushgateway."""
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
        raise UsageError(f"--metrics-file {path}: {error.strerror or error}") from error


def _render(found: dict[str, VerdictAgreement], console: Console) -> None:
    table = Table(title="Agreement of judges with people", title_justify="left", box=box.SIMPLE_HEAD)
    for name in ("protocol", "verdicts", "undecided", "agreement", "95 % interval", "Cohen's kappa"):
        table.add_column(name, justify="left" if name == "protocol" else "right")
    for protocol, one in found.items():
        share = one.agreement
        table.add_row(
            protocol,
            f"{one.verdicts:,}",
            f"{one.undecided:,}",
            f"{share.value:.1%}" if share else "–",
            f"{share.low:.1%} to {share.high:.1%}" if share else "–",
            "–" if one.kappa is None else f"{one.kappa:.3f}",
        )
    console.print(table)
    console.print("Of claims that the judge decided; intervals are over whole responses.")
