"""Data that must go: `groundwatch admin erase` and `retention`."""

import sys
import time
from collections.abc import Mapping
from typing import Annotated

import typer

from groundwatch.cli.messages import confirmed, print_json, say
from groundwatch.cli.options import OnServer
from groundwatch.erasure.erasing import Eraser, Erasure
from groundwatch.erasure.finding import Stores, Subject, subject
from groundwatch.erasure.retention import enforce
from groundwatch.errors import CheckFailed, UsageError
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.services.run import stopping
from groundwatch.runtime.services.tasks import PASSING, until_set
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.stores import tombstones
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.system.connecting import (
    connected,
    on_bus,
    run,
    with_archive,
)
from groundwatch.terminal import Console
from groundwatch.times import read_interval
from groundwatch.topology import ERASE


def _subject(*, response: str | None = None, tenant: str | None = None, image: str | None = None) -> Subject:
    return subject(response, tenant, image)


def erase(
    wanted: Annotated[Subject, _subject],
    settings: OnServer,
    *,
    verify: bool = False,
    dry_run: bool = False,
    lift: bool = False,
    wait: float = 60.0,
    yes: bool = False,
    as_json: bool = False,
) -> None:
    """Erase a response, a tenant or an image from every stream, store, cache, archive and known export.

    Exit status 1: there was nothing of it, something is left, or a store could not be reached.
    """
    if lift:
        if not on_bus(settings, lambda bus: tombstones.lift(bus.js, wanted.kind, wanted.name), ERASE, ERASE):
            raise CheckFailed(f"{wanted.describe()} has no tombstone")
        return
    if not (dry_run or yes):
        if as_json or not sys.stdin.isatty():
            raise UsageError("this cannot be undone: say --yes, or look first with --dry-run")
        if not confirmed(f"Erase {wanted.describe()}? This cannot be undone."):
            raise typer.Abort

    async def work(bus: Bus) -> Erasure:
        eraser = Eraser(bus.js, wanted, _stores(settings), wait=wait)
        return await (eraser.look() if dry_run else eraser.erase(verify=verify))

    done = on_bus(settings, work, ERASE, ERASE)
    print_json(done) if as_json else _show(done)
    _check(done)


def _check(done: Erasure) -> None:
    if not done.total and not done.known:
        raise CheckFailed(f"nothing found of {done.what}")
    if done.waiting:
        raise CheckFailed(
            f"a stage still holds {done.waiting} messages of {done.what}, and may publish: erase again, "
            "or let groundwatch admin retention do it"
        )
    if done.proof is not None and not done.proof.holds:
        places = ", ".join(f"{place.store}: {place.where}" for place in done.proof.found[:5])
        raise CheckFailed(f"{done.what} is still in {places}: erase again")
    if done.unreached:
        raise CheckFailed(f"not everything was reached: {'; '.join(done.unreached)}")


def _show(done: Erasure) -> None:
    console = Console(soft_wrap=True)
    console.print(_removed(done.what, done.counts, done.dry_run))
    if done.known:
        console.print("it had been erased before")
    if (proof := done.proof) is not None:
        left = "nothing of it is there" if proof.holds else f"{len(proof.found):,} places still have it"
        console.print(f"read back: {', '.join(proof.searched)}: {left}")
        for one in proof.unseen:
            console.print(f"not read: {one}")


def _stores(settings: Settings) -> Stores:
    return Stores.of(with_archive(settings).archive, partitions=settings.nats.partitions)


def retention(settings: OnServer, *, every: str = "", dry_run: bool = False, as_json: bool = False) -> None:
    """Remove what is older than settings keep it, and what came of an erased response after all."""
    if every:
        run(_again_and_again(settings, read_interval(every, "--every"), dry_run, as_json))
    else:
        run(_once(settings, dry_run, as_json))


async def _once(settings: Settings, dry_run: bool, as_json: bool) -> None:
    async with connected(settings, ERASE, user=ERASE) as bus:
        kept = await enforce(bus.js, settings.retention, _stores(settings), dry_run=dry_run)
    if as_json:
        print_json(kept)
        return
    for what, counts in (("too old", kept.expired), ("erased before", kept.resurrected)):
        say(_removed(what, counts, dry_run))


def _removed(what: str, counts: Mapping[str, int], dry_run: bool) -> str:
    told = ", ".join(f"{name} {number:,}" for name, number in counts.items()) or "nothing"
    return f"{what}: {'would remove' if dry_run else 'removed'} {told}"


async def _again_and_again(settings: Settings, every: float, dry_run: bool, as_json: bool) -> None:
    async with stopping() as stopped:
        while not stopped.is_set():
            began = time.monotonic()
            try:
                await _once(settings, dry_run, as_json)
            except PASSING as error:
                logger.error("retention.failed", error=str(error))
            await until_set(stopped, max(0.0, every - (time.monotonic() - began)))
