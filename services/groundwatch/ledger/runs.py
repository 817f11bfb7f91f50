"""The ledger of a replay: every event that it is about has an outcome in it, or is still to come.

What the replay says of itself is not believed: the source is read again, what the run is about is chosen
anew, and each pair is looked for among the run's outcomes. Only which pages are done is taken from the run,
and taken first: what a page had done by then has left its outcome where the later reading finds it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from groundwatch.errors import TransientError, UsageError
from groundwatch.events import LIVE, OutcomeKind
from groundwatch.ledger.ledger import Ledger, Pair
from groundwatch.ledger.ledger import audit as audit_live
from groundwatch.replay.runs import Run, Runs
from groundwatch.replay.writing import Choosing
from groundwatch.runtime.delivery.streams import read_stream
from groundwatch.topology import HEADER_OUTCOME, HEADER_REASON, OUTCOMES, parse_subject, run_subjects

if TYPE_CHECKING:
    from nats.js import JetStreamContext


async def audit_run(js: JetStreamContext, run: Run) -> Ledger:
    """Count one replay by the state read before. Raises `UsageError` when the server goes away."""
    cut = int((await js.stream_info(run.stream)).state.first_seq)
    try:
        waiting, responses = await _selected(js, run)
    except TransientError as error:
        raise UsageError(f"the server went away while counting ({error}): try again") from error
    recorded = len(waiting)
    kinds: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    orphans = expired = 0
    async for message in read_stream(
        js, OUTCOMES, subjects=(run_subjects("outcome", run.name),), headers_only=True
    ):
        address = parse_subject(message.subject)
        if address is None:
            continue
        if waiting.pop((address.key, address.protocol), None) is None:
            # An outcome of what the source no longer holds, or of what this run is not about.
            if cut > run.first:
                expired += 1
            else:
                orphans += 1
            continue
        kind = message.headers.get(HEADER_OUTCOME, "")
        kinds[kind] += 1
        if reason := message.headers.get(HEADER_REASON):
            reasons[f"{kind}: {reason}"] += 1
    lost = sum(run.done(sequence) for sequence in waiting.values())
    to_come = len(waiting) - lost
    where = {"running": "replay", "paused": "replay (paused)"}.get(run.status, run.status)
    if run.status in ("cancelled", "deleting"):
        # Nobody is going to judge them: the run is about what it had come to.
        recorded, to_come = recorded - to_come, 0
    counted = sum(kinds[kind.value] for kind in OutcomeKind)
    return Ledger(
        run=run.name,
        responses=responses,
        recorded=recorded,
        scored=kinds[OutcomeKind.SCORED.value],
        unscored=kinds[OutcomeKind.UNSCORED.value],
        declined=kinds[OutcomeKind.DECLINED.value],
        in_flight=to_come,
        lost=lost,
        orphans=orphans,
        expired=expired,
        foreign=0,
        dead_letters=0,
        reasons=dict(reasons.most_common()),
        in_flight_at={where: to_come} if to_come else {},
        balanced=recorded == counted + to_come and orphans == 0,
    )


async def _selected(js: JetStreamContext, run: Run) -> tuple[dict[Pair, int], int]:
    """The pairs that the run is about, with their sequences in the source; and how many responses."""
    spec = run.spec
    choosing = Choosing(spec)
    waiting: dict[Pair, int] = {}
    keys: set[str] = set()
    if run.last < run.first:
        return waiting, 0
    async for message in read_stream(
        js, run.stream, subjects=(spec.subjects,), start_sequence=run.first, last_sequence=run.last
    ):
        for item in choosing.choose([message]).items:
            waiting[item.key, item.protocol] = message.sequence
            keys.add(item.key)
    return waiting, len(keys)


async def audit(js: JetStreamContext, run: str = LIVE, *, settle: float = 0.0) -> Ledger:
    """Count live traffic or a replay, by its name. Raises `UsageError` when there is no such run.

    `settle` in seconds: how long live traffic may be counted again until nothing of it is unsettled.
    """
    if run == LIVE:
        return await audit_live(js, settle=settle)
    return await audit_run(js, await (await Runs.open(js)).get(run))
