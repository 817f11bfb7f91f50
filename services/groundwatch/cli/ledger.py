"""What became of every event: `groundwatch audit`, and `groundwatch admin dead`."""

from functools import partial
from typing import Any

import msgspec

from groundwatch.cli.messages import print_json, print_json_line, say
from groundwatch.cli.options import OnServer, OnSystem, serve_metrics
from groundwatch.cli.output import figures, with_reasons
from groundwatch.errors import CheckFailed, UsageError
from groundwatch.events import LIVE
from groundwatch.ledger.ledger import AuditMetrics, Ledger, audit_periodically
from groundwatch.ledger.ledger import audit as count_ledger
from groundwatch.ledger.proof import LedgerProof, prove
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.dead_letters import DeadLetter, dead_letters, send_again
from groundwatch.runtime.services.run import stopping
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.system.connecting import FAULTS, connected, on_bus, run
from groundwatch.terminal import Console, Table
from groundwatch.times import moment_of, read_interval
from groundwatch.topology import AUDITOR


def audit(
    settings: OnSystem,
    *,
    as_json: bool = False,
    run_name: str = LIVE,
    wait: float = 30.0,
    full: bool = False,
    every: str = "",
    metrics_port: int | None = None,
) -> None:
    """Count the ledger, going on from the last audit; exit status 1 unless it balances.

    With --full days whose lines are not what is kept of them are told, and the exit status is 1 too. With
    --every it goes on until SIGTERM or Ctrl-C, and tells Prometheus.
    """
    if full and (every or run_name != LIVE):
        raise UsageError("--full proves the days of live traffic, once: leave out --every and --run")
    if every:
        run(_audit_periodically(settings, run_name, every, metrics_port or 0, as_json=as_json))
        return
    if metrics_port is not None:
        raise UsageError("--metrics-port goes with --every: a single audit is over before it is scraped")

    async def work(bus: Bus) -> LedgerProof | Ledger:
        if not full:
            return await count_ledger(bus.js, run_name, partitions=bus.partitions, settle=wait, cold=bus.cold)
        return await prove(bus.js, partitions=bus.partitions, settle=wait, cold=bus.cold)

    try:
        found = on_bus(settings, work, "audit")
    except UsageError as error:
        if isinstance(error.__cause__, FAULTS):
            raise UsageError(f"could not count, which says nothing of the ledger: {error}") from error
        raise
    ledger = found.ledger if isinstance(found, LedgerProof) else found
    if as_json:
        print_json(found)
    else:
        show_ledger(ledger, Console())
        if isinstance(found, LedgerProof):
            show_proof(found)
    if isinstance(found, LedgerProof) and found.lost_files:
        raise CheckFailed(
            f"the archive has lost {len(found.lost_files)} of its files, or they are damaged"
            + (f", so {len(found.unproven)} days cannot be proven" if found.unproven else "")
            + (f", and {len(found.differences)} others differ" if found.differences else "")
            + ": restore the files from the backup"
        )
    if isinstance(found, LedgerProof) and found.differences:
        raise CheckFailed(
            f"{len(found.differences)} days are not as their lines say: messages or files of the archive "
            "were lost or changed; restore them from the backup"
        )
    if ledger.unaccounted:
        gone = sum(one.number for one in ledger.lost_responses)
        raise CheckFailed(
            f"the ledger does not balance: {ledger.lost} lost, {ledger.orphans} outcomes without a response"
            + (f", {gone} responses gone from their stream" if gone else "")
            + (f", {ledger.questions_lost} questions lost" if ledger.questions_lost else "")
        )
    if not ledger.balanced:
        raise CheckFailed(
            f"{ledger.standing}; it is known when what is judged beside them is done: audit again then, or "
            "give it longer with --wait"
        )


async def _audit_periodically(
    settings: Settings, run_name: str, every: str, port: int, *, as_json: bool
) -> None:
    seconds, metrics = read_interval(every, "--every"), AuditMetrics()
    server = serve_metrics(port, metrics.registry, settings)
    logger.info("telemetry.started", service="audit", port=server.server_port)

    def report(ledger: Ledger) -> None:
        if as_json:
            print_json_line(ledger)
            return
        say(
            f"{ledger.recorded:,} recorded, {ledger.scored:,} scored, {ledger.unscored:,} unscored, "
            f"{ledger.declined:,} declined, {ledger.in_flight:,} in flight: " + ledger.standing
        )

    async with stopping() as stopped:
        connect = partial(connected, settings, AUDITOR, user=AUDITOR)
        await audit_periodically(connect, run_name, metrics, seconds, stopped, report)
    server.shutdown()


def show_ledger(ledger: Ledger, console: Console) -> None:
    table = figures(f"Ledger of run {ledger.run}")
    table.add_row(f"{ledger.recorded:,}", f"recorded   ({ledger.responses:,} responses × protocols asked)")
    table.add_row(f"{ledger.scored:,}", "scored")
    for kind, count in (("unscored", ledger.unscored), ("declined", ledger.declined)):
        table.add_row(f"{count:,}", with_reasons(kind, ledger.reasons))
    places = ", ".join(f"{stage} {number:,}" for stage, number in ledger.in_flight_at.items())
    table.add_row(f"{ledger.in_flight:,}", f"in flight   {places}".rstrip())
    for count, name in (
        (
            ledger.unsettled,
            "of these at most may be lost: it is known when what is judged beside them is done",
        ),
        (ledger.questions, "questions that wait for their answer"),
        (ledger.questions_lost, "QUESTIONS LOST: acknowledged, without an answer"),
        (ledger.lost, "LOST: acknowledged, without an outcome"),
        (sum(one.number for one in ledger.lost_responses), "RESPONSES GONE: recorded, and nowhere any more"),
        (ledger.orphans, "ORPHANS: outcomes of responses that were never recorded"),
        (ledger.expired, "outcomes whose responses retention has removed"),
        (ledger.erased, "responses erased, with their outcomes"),
        (ledger.foreign, "foreign messages in the source stream"),
        (ledger.waiting_at_intake, "waiting at intake: published over NATS, not recorded yet"),
        (ledger.dead_letters, "dead letters (groundwatch admin dead list)"),
        (ledger.sealed_days, "days sealed: balanced and over, not read again"),
    ):
        if count:
            table.add_row(f"{count:,}", name)
    for sender, reasons in ledger.lost_before_intake.items():
        why = ", ".join(f"{reason} {number:,}" for reason, number in reasons.items())
        table.add_row(f"{sum(reasons.values()):,}", f"lost before intake, says the sender {sender}   ({why})")
    console.print(table)
    if ledger.archive_unread:
        console.print(f"not looked for in the archive: {ledger.archive_unread}")
    if ledger.begun_anew:
        console.print(f"read from the beginning: {ledger.begun_anew}")
    for lost in ledger.lost_responses:
        console.print(lost.describe())
    console.print(ledger.standing, style="" if ledger.balanced else "bold red")


def show_proof(proof: LedgerProof) -> None:
    say(f"{proof.proven:,} days are as their lines say")
    if proof.removed:
        say(f"{proof.removed:,} days cannot be compared: retention has removed something of them")
    for day in proof.unproven:
        say(f"cannot be proven: {day}: what is missing of it may have been in a lost file of the archive")
    for file in proof.lost_files:
        say(
            f"lost: {file.path} ({file.stream}, sequences {file.first:,} to {file.last:,} of {file.day}): "
            "put it back from the backup, under this name"
        )
    for difference in proof.differences:
        say(f"differs: {difference.describe()}")


def list_dead(settings: OnServer, *, as_json: bool = False, limit: int = 50) -> None:
    """List the dead letters, each with its reason."""

    async def work(bus: Bus) -> list[DeadLetter]:
        return [letter async for letter in dead_letters(bus)]

    letters = on_bus(settings, work, "dead")
    newest = letters[max(0, len(letters) - limit) :]
    if as_json:
        print_json({"count": len(letters), "dead_letters": [_readable(one) for one in newest]})
        return
    console = Console()
    if not letters:
        console.print("no dead letters")
        return
    table = Table("number", "when", "stage", "protocols", "reason", box=None)
    for letter in newest:
        when = moment_of(letter.time).strftime("%m-%d %H:%M:%S")
        table.add_row(
            str(letter.sequence), when, letter.stage, ",".join(letter.protocols) or "–", letter.reason[:200]
        )
    console.print(table)
    console.print(f"{len(letters)} in all. Send again: groundwatch admin dead retry NUMBER… or --all")


def retry_dead(
    settings: OnServer, numbers: list[int] | None = None, *, every: bool = False, as_json: bool = False
) -> None:
    """Give dead letters back to their stage; one that succeeds now replaces its unscored outcome."""
    wanted = set(numbers or ())
    if not wanted and not every:
        raise UsageError("say which: numbers from `groundwatch admin dead list`, or --all")

    async def work(bus: Bus) -> tuple[int, set[int]]:
        chosen = [one async for one in dead_letters(bus) if every or one.sequence in wanted]
        for letter in chosen:
            await send_again(bus, letter)
        return len(chosen), wanted - {letter.sequence for letter in chosen}

    sent, unknown = on_bus(settings, work, "dead")
    print_json({"sent": sent, "unknown": sorted(unknown)}) if as_json else say(f"sent {sent} again")
    if unknown:
        raise UsageError(f"no dead letter has number {', '.join(map(str, sorted(unknown)))}")


def _readable(letter: DeadLetter) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.structs.asdict(letter)
    fields["payload"] = letter.payload[:2_000].decode("utf-8", "replace")
    return fields
