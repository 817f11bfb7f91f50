"""A whole campaign: start, trouble, calm down, compare, tell."""

from __future__ import annotations

import asyncio
import bisect
import shutil
import statistics
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.faults.campaign.backups import Backups
from tests.faults.campaign.faults import Done, Faults
from tests.faults.campaign.field import Field
from tests.faults.campaign.halves import LoggedHalves
from tests.faults.campaign.lookups import Lookups
from tests.faults.campaign.recorders import Recorders
from tests.faults.campaign.tools import Tools
from tests.faults.campaign.traffic import Clients
from tests.faults.campaign.truth import Truth
from tests.faults.campaign.verdict import Verdict
from tests.faults.campaign.watching import Watcher

FORBIDDEN = (
    "lost",
    "counted lost and there",
    "doubled",
    "wrong score",
    "refused yet recorded",
    "erased and back",
    "stuck",
    "tracebacks",
    "answers of 500",
    "odd answers",
    "audit unbalanced",
    "report wrong",
    "watched twice",
    "watched never",
    "ended badly",
)
LANES = 4
HALVES_RATE = 1.0
"""Calls a second that come as spans and log records."""

WATCHERS = 2
FINISH_SECONDS = 60.0
EXAMPLES = 5
RECOVERY_WINDOW = 60.0


async def campaign(
    *,
    minutes: float,
    seed: int,
    cluster: bool = False,
    rate: float = 20.0,
    lanes: int = LANES,
    backup: bool = True,
    keep: Path | None = None,
) -> dict[str, Any]:
    """Trouble a system for so many minutes; what became of it, with `ok` false for anything forbidden.

    In the end NATS is lost, and restored from a `backup`. `keep` is a folder where the logs stay.
    """
    with tempfile.TemporaryDirectory(prefix="groundwatch-campaign-", ignore_cleanup_errors=True) as name:
        field = Field(Path(name), cluster=cluster, megabytes=int(200 + 60 * minutes))
        try:
            return await _campaign(field, minutes=minutes, seed=seed, rate=rate, lanes=lanes, backup=backup)
        finally:
            await field.stop()
            if keep is not None:
                _keep_logs(Path(name), keep)


def _keep_logs(folder: Path, to: Path) -> None:
    to.mkdir(parents=True, exist_ok=True)
    for log in folder.glob("*.log"):
        shutil.copy(log, to)


async def _campaign(
    field: Field, *, minutes: float, seed: int, rate: float, lanes: int, backup: bool
) -> dict[str, Any]:
    await field.start()
    truth, began = Truth(seed), time.monotonic()
    clients = Clients(truth, field.gateways, seed=seed, rate=rate, began=began)
    halves = LoggedHalves(truth, field.gateways, seed=seed, rate=HALVES_RATE)
    watchers = [Watcher(truth, field.gateways, seed=seed * 100 + at, began=began) for at in range(WATCHERS)]
    lookups = Lookups(truth, field.gateways, seed=seed, began=began)
    tools = Tools(field, truth, clients, seed=seed, began=began)
    recorders = Recorders(truth, field.gateways, folder=field.folder, seed=seed)
    faults = Faults(field, truth, seed=seed, began=began)
    backups = Backups(field, truth, tools, clients, seed=seed)
    background = [
        asyncio.create_task(job)
        for job in (field.supervise(), lookups.run(), *(one.run() for one in watchers))
    ]
    sending = asyncio.create_task(clients.run())
    logging = asyncio.create_task(halves.run())
    troubling = [asyncio.create_task(faults.lane()) for _ in range(lanes)]
    troubling.append(asyncio.create_task(tools.lane()))
    troubling.append(asyncio.create_task(recorders.lane()))
    try:
        await _unless_failed([*background, sending, logging, *troubling], minutes * 60)
        faults.stopped = tools.stopped = clients.stopped = True
        halves.stopped = recorders.stopped = True
        await asyncio.gather(*troubling, sending, logging)
        if left := sum(await asyncio.gather(*(one.finish(FINISH_SECONDS) for one in (clients, halves)))):
            truth.violation("stuck", f"{left} clients are still refused {FINISH_SECONDS} s after all is well")
        troubled = time.monotonic() - began
        verdict = Verdict(field, truth, tools, watchers, halves, recorders)
        await verdict.calm()
        if backup:
            await backups.run()
            await verdict.calm()
        await verdict.replays()
        await verdict.compare()
        verdict.tracebacks()
    finally:
        for task in (*background, sending, logging, *troubling):
            task.cancel()
        await asyncio.gather(*background, sending, logging, *troubling, return_exceptions=True)
        await clients.close()
    return _told(truth, faults, tools, clients, lookups, field, verdict, watchers) | {
        "recorders": {
            "closed": recorders.closed,
            "recorded": recorders.sent,
            "told_as_lost": verdict.told_as_lost,
        },
        "halves": {"calls": len(halves.calls), "answers": dict(halves.answers.most_common())},
        "seconds": round(troubled, 1),
        "faults_a_minute": round(len(faults.done) / troubled * 60, 1),
        "backup": backups.way if backup else "",
        "seed": seed,
        "servers": len(field.system.servers),
        "rate": rate,
    }


async def _unless_failed(tasks: list[asyncio.Task[None]], seconds: float) -> None:
    """Wait, but not while a part of the campaign itself has failed."""
    ended, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    for task in ended:
        task.result()


def _told(
    truth: Truth,
    faults: Faults,
    tools: Tools,
    clients: Clients,
    lookups: Lookups,
    field: Field,
    verdict: Verdict,
    watchers: list[Watcher],
) -> dict[str, Any]:
    counted = Counter(kind for kind, _ in truth.violations)
    examples: dict[str, list[str]] = {}
    for kind, what in truth.violations:
        if len(examples.setdefault(kind, [])) < EXAMPLES:
            examples[kind].append(what)
    sent = truth.sent.values()
    return {
        "ok": not truth.violations,
        "faults": len(faults.done),
        "by_kind": dict(Counter(done.kind for done in faults.done).most_common()),
        "forbidden": {kind: counted.get(kind, 0) for kind in FORBIDDEN},
        "examples": examples,
        "sent": len(sent),
        "acknowledged": sum(one.acknowledged_at is not None for one in sent),
        "erased": sum(one.erased for one in sent),
        "answers": dict(clients.answers.most_common()),
        "commands": dict(tools.calls.most_common()),
        "replays": len(tools.replays),
        "watched": [len(watcher.seen) for watcher in watchers],
        "ended_by_themselves": dict(Counter(field.ended).most_common()),
        "recovery_s": _recovery(truth, faults.done),
        "ledger": verdict.ledger,
        "cold": verdict.cold,
        "lookups": dict(lookups.answers.most_common()),
        "not_provisioned": verdict.not_provisioned,
    }


def _recovery(truth: Truth, faults: list[Done]) -> dict[str, dict[str, float]]:
    """By kind, median and most: how long after a fault was undone the first new response was scored
    (`new`), and the last of those that were in work when it began (`held`). Other faults were under way."""
    known = sorted(
        (one.acknowledged_at, one.outcome_at)
        for one in truth.sent.values()
        if one.acknowledged_at is not None and one.outcome_at is not None
    )
    told: dict[str, list[tuple[float, float]]] = {}
    for done in faults:
        first = bisect.bisect_left(known, (done.undone, 0.0))
        later = [scored for _, scored in known[first : first + 100]]
        held = [
            scored
            for at, scored in known[bisect.bisect_left(known, (done.began - RECOVERY_WINDOW, 0.0)) : first]
            if at < done.began < scored
        ]
        if later:
            new = max(0.0, min(later) - done.undone)
            told.setdefault(done.kind, []).append((new, max(0.0, max(held, default=0.0) - done.undone)))
    return {
        kind: {
            "new_median": round(statistics.median(new for new, _ in pairs), 2),
            "new_most": round(max(new for new, _ in pairs), 2),
            "held_median": round(statistics.median(held for _, held in pairs), 2),
            "held_most": round(max(held for _, held in pairs), 2),
        }
        for kind, pairs in sorted(told.items())
    }
