"""Reviewing as the NATS users of a cluster, in one partition and in several: nothing needed is refused."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.annotation.conftest import outcome
from tests.annotation.test_second_opinion import QUEUE, FakeJudge, claims_of, opinions_of
from tests.annotation.test_second_opinion import settings as second
from tests.runtime.conftest import eventually
from tests.support.secured import Secured, secured

from groundwatch.annotation.service import AnnotationService
from groundwatch.archive.events import Events
from groundwatch.archive.service import ArchiveService
from groundwatch.erasure.erasing import Eraser
from groundwatch.erasure.finding import Stores, subject
from groundwatch.events import Decision, FactOpinion
from groundwatch.keys import home_of, in_partition, response_key
from groundwatch.reviews.agreement import read_agreement
from groundwatch.reviews.corrected import read_corrected
from groundwatch.reviews.opinions import Opinions, opinion_on
from groundwatch.reviews.queues import Frames, Queues, QueueSpec
from groundwatch.runtime.delivery.bus import ENCODER, Bus, Outgoing
from groundwatch.runtime.delivery.outcomes import outgoing
from groundwatch.runtime.settings import ArchiveSettings, Settings
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import ANNOTATION, ARCHIVE, COMMAND_LINE, ERASE, GATEWAY, OPINIONS, subject_of


@pytest.fixture(scope="module", params=[1, pytest.param(2, marks=pytest.mark.slow)], ids="in-{}".format)
def server(request: pytest.FixtureRequest) -> Iterator[Secured]:
    with (
        tempfile.TemporaryDirectory(prefix="groundwatch-annotation-", ignore_cleanup_errors=True) as folder,
        secured(Path(folder), request.param) as started,
    ):
        yield started


async def test_each_user_has_the_rights_that_it_needs(server: Secured, tmp_path: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:

        async def connected(user: str) -> Bus:
            bus = Bus(server.settings(user), name=user)
            await bus.connect()
            stack.push_async_callback(bus.close)
            return bus

        annotation, extraction, scoring, gateway, cli, archive, erase = [
            await connected(user)
            for user in (ANNOTATION, "extraction", "scoring", GATEWAY, COMMAND_LINE, ARCHIVE, ERASE)
        ]
        # Recorded behind the beginning of every queue.
        later = time.time() + 30
        events = [
            outcome(
                name, partition=home_of(response_key("default", name), server.partitions), recorded_at=later
            )
            for name in (f"r{number}" for number in range(12))
        ]
        for one in events:
            await scoring.create(outgoing(one))
        queues = Queues(gateway)
        await queues.create(QueueSpec(name="all", protocol="faithscore", rule="all", since=0.5))
        for rule in ("uncertain", "disagreement"):
            await queues.create(QueueSpec(name=rule, protocol="faithscore", rule=rule, since=0.5))  # type: ignore[arg-type]
        await queues.create(QueueSpec(name="five", protocol="faithscore", size=5, until=later + 1))
        for one in events:
            claims = claims_of(one)
            place = subject_of("extracted", "live", "verification", one.protocol, claims.response.key)
            await extraction.create(Outgoing(subject=place, payload=ENCODER.encode(claims)))
        opinions = opinions_of(annotation, FakeJudge())
        service = AnnotationService(second(), annotation, Metrics(), opinions)
        await service.start()
        stack.push_async_callback(service.drain, 5)

        async def drawn() -> bool:
            sizes = {
                spec.name: (await Frames(gateway).load(spec.name))[0].size for spec in await queues.list()
            }
            return sizes == dict.fromkeys(("all", "uncertain", "disagreement", "five", QUEUE), 12)

        await eventually(drawn, within=30)
        assert {one.key for one in await queues.items.all("all")} == {one.key for one in events}
        assert len(await queues.items.all("five")) == 5

        async def judged() -> bool:
            return len(await Opinions(cli).latest()) == 12

        await eventually(judged, within=60)
        held = await queues.items.next("all", "ann")
        assert held is not None
        await queues.items.save_draft("all", held.key, "ann", {"mark": 1})
        (event,) = (one for one in events if one.key == held.key)
        fact = FactOpinion(text="fact 0", category="entity", decision=Decision.REFUTED, claim=0)
        said = opinion_on(
            event, reviewer="ann", facts=(fact,), given_at=1.0, queue="all", mark=2, probability=1.0
        )
        await queues.items.complete("all", held.key, said)
        ours = await Opinions(cli).of(in_partition(held.key, 0), "faithscore")
        assert [one for one in ours if one.judge is None] == [said] and len(ours) == 2

        async def computed() -> bool:
            rates, agreement = await read_corrected(cli), await read_agreement(gateway)
            return any(row.opinions for row in rates.rows) and bool(agreement.judges)

        await eventually(computed, within=30)
        settings = Settings(archive=ArchiveSettings(url=str(tmp_path / "archive"), flush_seconds=0.2))
        archiving = ArchiveService(settings, archive, Metrics())
        await archiving.start()
        stack.push_async_callback(archiving.drain, 5)
        table = Events(settings.archive.url)

        def copied() -> int:
            data = table.snapshot().dataset()
            rows = data.to_table(columns=["stream"])["stream"].to_pylist() if data is not None else []
            return rows.count(OPINIONS)

        await eventually(lambda: copied() == 13, within=30)
        gone = subject(event.id, None, None)
        stores = Stores.of(settings.archive, partitions=server.partitions)
        done = await Eraser(erase.js, gone, stores, wait=5).erase()
        assert done.counts["GW_OPINIONS"] == 2 and copied() == 11
        assert held.key not in {one.key for one in await queues.items.all("all")}
        assert (await Queues(cli).close("five")).closed
        assert await Queues(cli).delete("five") in (4, 5)
        assert service.problems() == [] and gateway.problems() == [] and erase.problems() == []
        log = (server.auth.parent / "nats.log").read_text()
        assert "Violation" not in log, log[-2000:]
