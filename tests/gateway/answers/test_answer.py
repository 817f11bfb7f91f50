"""One answer with all that is known of it, whether its events are in the streams still or in the archive."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest
from tests.gateway.answers.test_search import archive_all
from tests.partitions.conftest import provisioned
from tests.support.answer_pages import ANSWER, FACTS, units_of
from tests.support.answers import VERSION_TAGS
from tests.support.cooling import cool

from groundwatch.archive.answers import AnswerIndex
from groundwatch.archive.outcomes import Archive
from groundwatch.errors import TransientError
from groundwatch.events import Judge, OutcomeKind, ResponseRecorded, ResponseScored
from groundwatch.gateway.answers import AnswerSearch, find_answer
from groundwatch.keys import home_of, response_key
from groundwatch.reporting.answers import AnswerQuery
from groundwatch.runtime.delivery import outcomes
from groundwatch.runtime.settings import ArchiveSettings
from groundwatch.runtime.stores.tombstones import Erased
from groundwatch.topology import OUTCOMES, RESPONSES
from groundwatch.topology.partitions import streams_of_kind

NOW = round(time.time(), 3)


def recorded(name, partitions, **changes):
    values = {
        "id": name,
        "model": "osprey",
        "answer": ANSWER,
        "prompt": "What is there?",
        "protocols": ("faithscore", "tri-he"),
        "recorded_at": NOW,
        "partition": home_of(response_key("default", name), partitions),
    }
    return ResponseRecorded(**(values | changes))


def scored(response, protocol="faithscore", **changes):
    values = {
        "id": response.id,
        "model": response.model,
        "protocol": protocol,
        "outcome": OutcomeKind.SCORED,
        "score": 0.6,
        "units": units_of(ANSWER),
        "claims": FACTS,
        "judges": {"verification": Judge(engine="detector")},
        "recorded_at": response.recorded_at,
        "scored_at": response.recorded_at + 1,
        "partition": response.partition,
    }
    return ResponseScored(**(values | changes))


@contextlib.asynccontextmanager
async def searching(bus, url):
    erased = Erased(bus.js)
    await erased.start()
    index = AnswerIndex(ArchiveSettings(url=url), VERSION_TAGS)
    search = AnswerSearch(bus, index, erased, VERSION_TAGS)
    search.start()
    try:
        yield search
    finally:
        await search.stop()
        await erased.stop()


async def until_found(search, number):
    async with asyncio.timeout(60):
        while len((await search.search(AnswerQuery())).hits) < number:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("cold", [False, True])
async def test_the_same_is_known_of_what_has_left_the_streams(partitions, cold, tmp_path):
    url = str(tmp_path / "archive")
    async with provisioned(tmp_path / "nats", partitions) as bus:
        one, other = (recorded(name, partitions) for name in ("one", "other"))
        for response in (one, other):
            await bus.create(outcomes.recorded(response, "0" * 64))
            await bus.create(outcomes.outgoing(scored(response)))
        again = scored(one, run="again", claims=FACTS[:2])
        await bus.create(outcomes.outgoing(again))
        if cold:
            await archive_all(bus, Archive(url, version_tags=VERSION_TAGS))
            for kind in (RESPONSES, OUTCOMES):
                for stream in streams_of_kind(kind, partitions):
                    if (await bus.js.stream_info(stream)).state.messages:
                        await cool(bus, url, stream)
        async with searching(bus, url if cold else "") as search:
            await until_found(search, 3)
            found = await find_answer(bus, search, "default", "one")
            assert found.response == one
            assert found.outcomes == {"faithscore": scored(one)}
            assert found.waiting == ("tri-he",)
            assert found.runs == ("live", "again")
            assert {raw.subject.split(".")[1] for raw in found.events} == {"recorded", "outcome"}
            replayed = await find_answer(bus, search, "default", "one", "again")
            assert replayed.outcomes == {"faithscore": again} and replayed.run == "again"
            assert await find_answer(bus, search, "default", "absent") is None
            assert await find_answer(bus, search, "another", "one") is None
            assert await find_answer(bus, search, "default", "one", "no-such-run") is None


async def test_of_an_outcome_alone_the_archive_still_says_what_it_has(tmp_path):
    archive = Archive(str(tmp_path / "archive"), version_tags=VERSION_TAGS)
    async with provisioned(tmp_path / "nats", 1) as bus:
        event = scored(recorded("one", 1))
        await bus.create(outcomes.outgoing(event))
        await archive_all(bus, archive)
        await bus.js.purge_stream(OUTCOMES)
        async with searching(bus, archive.url) as search:
            await until_found(search, 1)
            found = await find_answer(bus, search, "default", "one")
            assert found.response is None
            assert found.outcomes["faithscore"] == event


async def test_without_the_archives_packages_an_answer_is_known_by_its_id(tmp_path):
    async with provisioned(tmp_path / "nats", 1) as bus:
        response = recorded("one", 1)
        await bus.create(outcomes.recorded(response, "0" * 64))
        await bus.create(outcomes.outgoing(scored(response)))
        search = AnswerSearch(bus, None, Erased(bus.js), VERSION_TAGS)
        search.start()
        with pytest.raises(TransientError, match=r"pip install 'groundwatch\[archive\]'"):
            await search.search(AnswerQuery())
        found = await find_answer(bus, search, "default", "one")
        assert (found.response, found.outcomes) == (response, {"faithscore": scored(response)})
        assert (search.problem, search.complete) == ("", True)
        await search.stop()
