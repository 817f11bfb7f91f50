"""A search over archive and stream alike gives what looking at each outcome gives, in one and in three
partitions; a tenant sees its own."""

from __future__ import annotations

import asyncio
import base64
import math
from random import Random

import msgspec
import pytest
from tests.archive.test_answers import unique
from tests.partitions.conftest import provisioned
from tests.support.answers import VERSION_TAGS, expected, named, random_outcome, random_query

from groundwatch.archive.answers import AnswerIndex
from groundwatch.archive.outcomes import Archive, rows_after
from groundwatch.gateway.answers import AnswerSearch
from groundwatch.keys import home_of, response_key
from groundwatch.reporting.answers import AnswerQuery, read_cursor
from groundwatch.runtime.delivery import outcomes
from groundwatch.runtime.delivery.streams import position_of
from groundwatch.runtime.settings import ArchiveSettings
from groundwatch.runtime.stores.tombstones import Erased, Tombstone, tombstone_name, write
from groundwatch.topology import OUTCOMES
from groundwatch.topology.partitions import streams_of_kind

TOKENS = "* {}\na {}\nb {}\n".format("all-tenants-token-1", "token-of-tenant-a-1", "token-of-tenant-b-1")


async def archive_all(bus, archive):
    for stream in streams_of_kind(OUTCOMES, bus.partitions):
        at = await position_of(bus.js, stream)
        rows = [row async for row in rows_after(bus, at, 0, stream=stream)]
        await asyncio.to_thread(archive.add, rows, created=at.created, position=at.last)


async def until(check):
    async with asyncio.timeout(60):
        while not check():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def all_pages(search, query, most, back=False):
    hits, cursor = [], None
    while True:
        page = await search.search(query, cursor, most)
        if page.searched_to is not None:
            await asyncio.sleep(0.02)
            continue
        if back and cursor is not None:
            # And back again to where one came from.
            assert page.before
            there = await search.search(query, read_cursor(page.before, query.order), most, back=True)
            assert there.hits == hits[-most:]
            assert (there.before == "") is (len(hits) == most)
        hits += page.hits
        if not page.cursor:
            return hits
        cursor = read_cursor(page.cursor, query.order)


@pytest.mark.parametrize("partitions", [1, 3])
async def test_half_archived_and_half_in_the_stream(partitions, tmp_path):
    random = Random(partitions)
    events = unique(random_outcome(random, number) for number in range(240))
    for at, event in enumerate(events):
        home = home_of(response_key(event.tenant, event.id), partitions)
        events[at] = msgspec.structs.replace(event, partition=home)
    random.shuffle(events)
    by_name = {f"{one.tenant} {one.id} {one.run} {one.protocol}": one for one in events}
    archive = Archive(str(tmp_path / "archive"), version_tags=VERSION_TAGS)
    async with provisioned(tmp_path / "nats", partitions) as bus:
        for event in events[:120]:
            await bus.create(outcomes.outgoing(event))
        await archive_all(bus, archive)
        erased = Erased(bus.js)
        await erased.start()
        index = AnswerIndex(ArchiveSettings(url=archive.url), VERSION_TAGS)
        search = AnswerSearch(bus, index, erased, VERSION_TAGS)
        search.start()
        try:
            for event in events[120:]:
                await bus.create(outcomes.outgoing(event))

            async def number():
                return len(await all_pages(search, AnswerQuery(), 500))

            async with asyncio.timeout(60):
                while await number() < len(events):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            for _ in range(30):
                query = random_query(random)
                hits = await all_pages(search, query, random.choice((20, 500)))
                names = [f"{hit.tenant} {hit.id} {hit.run} {hit.protocol}" for hit in hits]
                found = named([by_name[name] for name in names], query)
                assert found == named(expected(events, query), query), query
            # What the archive has by then goes from the other half, and is there once all the same.
            await archive_all(bus, archive)
            await until(lambda: index._duck.execute("FROM small.answers WHERE file = 0").fetchall() == [])
            assert await number() == len(events)
            gone = events[0]
            name = tombstone_name("tenant", gone.tenant)
            await write(bus.js, Tombstone(kind="tenant", name=name, at=1.0))
            await until(lambda: erased.number == 1)
            left = await all_pages(search, AnswerQuery(), 500)
            assert {hit.tenant for hit in left} == {one.tenant for one in events} - {gone.tenant}
        finally:
            await search.stop()
            await erased.stop()


async def test_a_tenant_sees_its_own(gateway_factory, publish, tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text(TOKENS)
    gateway = await gateway_factory(tokens_file=str(tokens))
    for tenant in "ab":
        for number in range(3):
            await publish(f"r{number}", tenant=tenant, refuted=number)

    async def found(token, **query):
        headers = {"authorization": f"Bearer {token}"}
        reply = await gateway.http.get("/v1/answers", params=query, headers=headers)
        if reply.status_code != 200:
            return reply.status_code
        return sorted((one["tenant"], one["id"]) for one in reply.json()["answers"])

    async with asyncio.timeout(30):
        while len(await found("all-tenants-token-1")) < 6:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    own = [("a", "r0"), ("a", "r1"), ("a", "r2")]
    assert await found("token-of-tenant-a-1") == own
    assert await found("token-of-tenant-a-1", tenant="a", order="worst") == own
    assert await found("token-of-tenant-a-1", tenant="b") == 403
    assert await found("all-tenants-token-1", tenant="b", id="r1") == [("b", "r1")]


async def test_pages_follow_each_other_and_what_is_wrong_is_said_in_a_line(gateway, publish):
    for number in range(60):
        await publish(f"r{number}", refuted=number % 5, recorded_at=1_700_000_000.0 + number)
    async with asyncio.timeout(30):
        while len((await gateway.http.get("/v1/answers")).json()["answers"]) < 50:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    seen, cursor = [], ""
    while True:
        page = (await gateway.http.get("/v1/answers", params={"order": "worst", "cursor": cursor})).json()
        seen += page["answers"]
        if not (cursor := page["cursor"]):
            break
        # What is recorded meanwhile shifts nothing.
        await publish(f"late-{len(seen)}", refuted=9)
    assert len(seen) == 60 and len({one["id"] for one in seen}) == 60
    assert [one["refuted"] for one in seen] == sorted((one["refuted"] for one in seen), reverse=True)
    for wrong in ("order=best", "verdict=no", "cursor=x", "since=yesterday", "tag=x&q=" + "a " * 9 + "b c"):
        reply = await gateway.http.get(f"/v1/answers?{wrong}")
        assert reply.status_code in (200, 422), wrong
        if reply.status_code == 422:
            assert "\n" not in reply.json()["error"] and reply.json()["field"]
    assert (await gateway.http.get("/v1/answers?order=worst&cursor=x")).status_code == 422


CURSORS = [
    ("newest", (1, 2, 2**64 - 1)),
    ("newest", (1.5, 2, 3)),
    ("newest", (math.nan, 2, 3)),
    ("newest", (math.inf, 2, 3)),
    ("newest", (-(2**63), -(2**63), 2**63 - 1)),
    ("newest", (2**63, 2, 3)),
    ("worst", (True, 0.5, 1, 2, 3)),
    ("worst", (1, math.nan, 1, 2, 3)),
    ("worst", (1.5, 0.5, 1, 2, 3)),
    ("uncertain", (math.inf, 1, 2, 3)),
    ("uncertain", ("0.5", 1, 2, 3)),
    ("uncertain", (None, 1, 2, 3)),
]


async def test_no_cursor_is_a_500(gateway, publish):
    await publish("r")
    texts = [base64.urlsafe_b64encode(msgspec.msgpack.encode(cursor)).decode() for cursor in CURSORS]
    for (order, rank), text in zip(CURSORS, texts, strict=True):
        for path in ("/v1/answers", "/answers"):
            reply = await gateway.http.get(path, params={"order": order, "cursor": text})
            wanted = 200 if rank[-1] == 2**63 - 1 else 422
            assert (reply.status_code, reply.text.count("Traceback")) == (wanted, 0), (path, order, rank)
    for text in ("é", "=", "A", "kw", "\0", "a" * 600, "3///", "wcHBwcE"):
        assert (await gateway.http.get("/v1/answers", params={"cursor": text})).status_code == 422, text


@pytest.mark.parametrize("order", ["newest", "worst"])
async def test_a_list_goes_on_behind_what_was_erased(order, tmp_path):
    archive = Archive(str(tmp_path / "archive"), version_tags=VERSION_TAGS)
    random = Random(7)
    events = unique(random_outcome(random, number) for number in range(60))
    async with provisioned(tmp_path / "nats", 1) as bus:
        for event in events:
            await bus.create(outcomes.outgoing(event))
        await archive_all(bus, archive)
        erased = Erased(bus.js)
        await erased.start()
        index = AnswerIndex(ArchiveSettings(url=archive.url), VERSION_TAGS)
        search = AnswerSearch(bus, index, erased, VERSION_TAGS)
        search.start()
        query = AnswerQuery(order=order)
        try:
            await until(lambda: search.complete)
            whole = await all_pages(search, query, 500)
            # One of the first page, and all of the second.
            for hit in (whole[3], *whole[10:20]):
                stone = Tombstone(kind="response", name=tombstone_name("response", hit.key), at=1.0)
                await write(bus.js, stone)
            gone = {hit.key for hit in (whole[3], *whole[10:20])}
            await until(lambda: erased.number == len(gone))
            left = [hit.place for hit in whole if hit.key not in gone]
            assert [hit.place for hit in await all_pages(search, query, 10, back=True)] == left
            page = await search.search(query, None, 10)
            assert (len(page.hits), page.cursor != "") == (10, True)
        finally:
            await search.stop()
            await erased.stop()
