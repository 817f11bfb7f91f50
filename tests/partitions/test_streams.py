"""Streams of several partitions on a server with nobody at work: histories over them, growing, retention."""

from __future__ import annotations

import contextlib
from pathlib import Path
from random import Random

import pytest
from tests.partitions.conftest import provisioned

from groundwatch.erasure.finding import Stores
from groundwatch.erasure.retention import enforce
from groundwatch.errors import ProvisionRefused
from groundwatch.events import OutcomeKind, ResponseRecorded
from groundwatch.ledger.ledger import audit
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.history import History, JoinedHistory, last_before
from groundwatch.runtime.delivery.outcomes import outgoing, recorded, without_score
from groundwatch.runtime.delivery.provisioning import partitions_there, provision
from groundwatch.runtime.delivery.streams import position_of
from groundwatch.runtime.settings import RetentionSettings
from groundwatch.topology import OUTCOMES, RESPONSES, run_subjects, subject_of
from groundwatch.topology.partitions import streams_of_kind


async def record(bus: Bus, random: Random, count: int, run: str = "live") -> list[ResponseRecorded]:
    made = [
        ResponseRecorded(
            id=f"{run}-{number}",
            model="m",
            answer="a",
            protocols=("faithscore",),
            run=run,
            recorded_at=1.0,
            partition=random.randrange(bus.partitions),
        )
        for number in range(count)
    ]
    for one in made:
        await bus.create(recorded(one))
    return made


async def test_histories_of_all_partitions_of_one_and_of_a_stretch(tmp_path: Path) -> None:
    random = Random(1)
    async with provisioned(tmp_path, 3) as bus:
        js, history = bus.js, bus.history
        made = await record(bus, random, 60)
        await record(bus, random, 20, run="other")
        names = streams_of_kind(RESPONSES, 3)
        assert all([(await position_of(js, name)).last > 5 for name in names])
        whole = [[read async for read in history.of_one_partition.read(name)] for name in names]
        assert [read.subject for part in whole for read in part] == [
            read.subject async for read in history.read(RESPONSES)
        ]
        live = run_subjects("recorded", "live")
        keys = {one.key for one in made}
        found = [read async for read in history.read(RESPONSES, subjects=(live,))]
        assert {read.subject.rpartition(".")[2] for read in found} == keys
        assert (await history.count(RESPONSES, live)).number == 60
        subjects = [subject_of("recorded", "live", one.key) for one in made]
        assert [read and read.subject for read in await history.last_of_each(RESPONSES, subjects)] == subjects
        for partition in range(3):
            one = History(js, None, range(partition, partition + 1))
            mine = [read for read in found if read.subject in {read.subject for read in whole[partition]}]
            subjects = [read.subject for read in mine]
            assert [read.subject async for read in one.read(RESPONSES, subjects=(live,))] == subjects
            assert (await one.count(RESPONSES, live)).number == len(mine)
            behind = await one.next(RESPONSES, live, mine[0].sequence + 1)
            last = await one.last(RESPONSES, subjects[-1])
            for found_here, wanted in ((last, mine[-1]), (behind, mine[1])):
                assert found_here is not None
                assert (found_here.subject, found_here.sequence) == (wanted.subject, wanted.sequence)
            assert await one.first_sequence(RESPONSES) == 1
            each = await one.last_of_each(RESPONSES, subjects)
            assert [read and read.subject for read in each] == subjects
            for read in mine:
                # Times that the server tells in two ways differ by a microsecond.
                before = await last_before(history.of_one_partition, names[partition], read.time - 2e-6)
                assert before == read.sequence - 1
        for _ in range(40):
            # A last one below the first is a partition without anything.
            parts = []
            for several in whole:
                first = random.randint(1, len(several) + 1)
                parts.append((first, random.randint(first - 1, len(several))))
            joined = [
                read for (a, b), several in zip(parts, whole, strict=True) for read in several[a - 1 : b]
            ]
            stretch = JoinedHistory(history, parts)
            start, end = random.randint(1, len(joined) + 1), random.randint(0, len(joined))
            given = [read async for read in stretch.read(RESPONSES, start_sequence=start, last_sequence=end)]
            assert [read.sequence for read in given] == list(range(start, end + 1))
            assert [read.subject for read in given] == [read.subject for read in joined[start - 1 : end]]
            few = stretch.read(RESPONSES, subjects=(live,), start_sequence=start)
            wanted = [read.subject for read in joined[start - 1 :] if ".live." in read.subject]
            assert [read.subject async for read in few] == wanted


async def test_the_number_of_partitions_stays_once_anything_is_recorded(tmp_path: Path) -> None:
    async with provisioned(tmp_path, 2) as bus:
        js = bus.js
        assert {one.change for one in await provision(js, partitions=2)} == {"unchanged"}
        # Nobody has recorded anything yet.
        new = {one.name for one in await provision(js, partitions=3) if one.change == "created"}
        assert "GW_RESPONSES_2" in new and "scoring-p2" in new
        assert await partitions_there(js) == 3
        await provision(js, partitions=2)
        assert await partitions_there(js) == 2
        await record(bus, Random(3), 10)
        for other in (1, 3):
            with pytest.raises(ProvisionRefused, match=f"2 partitions .* nats.partitions is {other}"):
                await provision(js, partitions=other)
        assert {one.change for one in await provision(js, partitions=2)} == {"unchanged"}


async def test_retention_reaches_every_partition_and_the_audit_knows_it(tmp_path: Path) -> None:
    async with provisioned(tmp_path, 2) as bus:
        made = await record(bus, Random(2), 20)
        for one in made:
            await bus.create(outgoing(without_score(one, "faithscore", OutcomeKind.UNSCORED, "no_reference")))
        # Nobody works here: what a stage has yet to do would stay.
        for name in streams_of_kind(RESPONSES, 2):
            consumer = "extraction" if name == RESPONSES else "extraction-p1"
            pull = await bus.js.pull_subscribe_bind(consumer, stream=name)
            for message in await pull.fetch((await position_of(bus.js, name)).last, timeout=60):
                await message.ack_sync()
        settings = RetentionSettings(responses=1e-9, outcomes=1e-9)
        kept = await enforce(bus.js, settings, Stores(partitions=2), dry_run=True)
        assert (kept.expired[RESPONSES], kept.expired[OUTCOMES]) == (20, 20)
        before = await audit(bus.js, partitions=2)
        assert (before.recorded, before.unscored, before.balanced) == (20, 20, True)
        kept = await enforce(bus.js, settings, Stores(partitions=2))
        assert (kept.expired[RESPONSES], kept.expired[OUTCOMES]) == (20, 20)
        assert (await bus.history.count(RESPONSES, ">")).number == 0
        assert (await audit(bus.js, partitions=2)).balanced


async def test_a_sequence_is_that_of_one_stream(tmp_path: Path) -> None:
    async with provisioned(tmp_path, 2) as bus:
        for wrong in ({"start_sequence": 2}, {"last_sequence": 1}):
            reading = bus.history.read(RESPONSES, **wrong)
            async with contextlib.aclosing(reading):
                with pytest.raises(ValueError, match="one partition"):
                    await anext(reading)
        with pytest.raises(ValueError, match="one partition"):
            await bus.history.first_sequence(RESPONSES)
        with pytest.raises(ValueError, match="one partition"):
            await bus.history.next(RESPONSES, ">", 2)
