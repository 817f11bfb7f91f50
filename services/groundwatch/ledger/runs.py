"""The ledger of a replay, counted from its source and its outcomes."""

from collections import Counter

from groundwatch.errors import TransientError, UsageError
from groundwatch.ledger.balance import Ledger
from groundwatch.replay.planning import Stretch
from groundwatch.replay.runs import Counts, Run
from groundwatch.replay.writing import Choosing
from groundwatch.runtime.delivery.history import History
from groundwatch.topology import HEADER_OUTCOME, HEADER_REASON, OUTCOMES, parse_subject, run_subjects
from groundwatch.topology.partitions import streams_of_kind

Pair = tuple[str, str]
"""Key of a response, and protocol."""


async def audit_run(history: History, run: Run) -> Ledger:
    """Count one replay by the state read before: each event it is about has an outcome in it, or is to come.

    What the replay says of itself is not believed: the source is read again, what the run is about is chosen
    anew, and each pair is looked for among the run's outcomes. Only which pages are done is taken from the
    run, and taken first: what a page had done by then has left its outcome where the later reading finds it.
    Raises `UsageError` when the server or the archive goes away.
    """
    # As many partitions as when it was begun, for its source; its outcomes are in those too.
    parts = run.parts or ((run.first, run.last),)
    alone = history.of_one_partition
    names = streams_of_kind(run.spec.stream, len(parts))
    cut = any(
        [await alone.first_sequence(name) > first for name, (first, _) in zip(names, parts, strict=True)]
    )
    try:
        waiting, responses = await _selected(history, run)
    except TransientError as error:
        raise UsageError(f"could not count: {error}; try again") from error
    recorded = len(waiting)
    counts = Counts()
    orphans = expired = 0
    async for message in history.read(
        OUTCOMES, subjects=(run_subjects("outcome", run.name),), headers_only=True
    ):
        address = parse_subject(message.subject)
        if address is None:
            continue
        if waiting.pop((address.key, address.protocol), None) is None:
            # An outcome of what the source no longer holds, or of what this run is not about.
            if cut:
                expired += 1
            else:
                orphans += 1
            continue
        counts.note(message.headers.get(HEADER_OUTCOME, ""), message.headers.get(HEADER_REASON, ""))
    lost = sum(run.done(sequence) for sequence in waiting.values())
    to_come = len(waiting) - lost
    where = {"running": "replay", "paused": "replay (paused)"}.get(run.status, run.status)
    if run.status in ("cancelled", "deleting"):
        # Nobody is going to judge them: the run is about what it had come to.
        recorded, to_come = recorded - to_come, 0
    return Ledger(
        run=run.name,
        scored=counts.scored,
        unscored=counts.unscored,
        declined=counts.declined,
        reasons=dict(Counter(counts.reasons).most_common()),
        responses=responses,
        recorded=recorded,
        in_flight=to_come,
        lost=lost,
        orphans=orphans,
        expired=expired,
        in_flight_at={where: to_come} if to_come else {},
        balanced=recorded == counts.outcomes + to_come and orphans == 0,
    )


async def _selected(history: History, run: Run) -> tuple[dict[Pair, int], int]:
    """The pairs that the run is about, with their sequences in the source; and how many responses."""
    spec = run.spec
    choosing = Choosing(spec)
    waiting: dict[Pair, int] = {}
    keys: set[str] = set()
    async for message in (
        Stretch(run.first, run.last, run.parts)
        .of(history)
        .read(run.spec.stream, subjects=(spec.subjects,), start_sequence=run.first, last_sequence=run.last)
    ):
        for item in choosing.choose([message]).items:
            waiting[item.key, item.protocol] = message.sequence
            keys.add(item.key)
    return waiting, len(keys)
