"""Single answers in the archive: found as one by one, listed as events are, gone with their files."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from random import Random

import duckdb
import msgspec
import pytest
from tests.archive.conftest import STREAM, add, row
from tests.support.answers import VERSION_TAGS, expected, hits_of, named, random_outcome, random_query

from groundwatch.archive import outcomes
from groundwatch.archive.answers import AnswerIndex, _in_time
from groundwatch.archive.outcomes import Archive, Row, to_table
from groundwatch.archive.table import Erasure
from groundwatch.reporting.answers import AnswerQuery, TooSlow
from groundwatch.runtime.delivery.streams import Read
from groundwatch.runtime.settings import ArchiveSettings
from groundwatch.topology import HEADER_EXPECT_SEQUENCE, subject_of


def unique(events):
    """One of each response, run and protocol: a stream has no two."""
    return list({(one.tenant, one.id, one.run, one.protocol): one for one in events}.values())


def put(archive, events, first=1):
    rows = [
        Row(event=event, key=event.key, stream=STREAM, sequence=first + at, stored_at=event.scored_at)
        for at, event in enumerate(events)
    ]
    add(archive, rows)


def opened(archive):
    answers = AnswerIndex(ArchiveSettings(url=archive.url, options={}), VERSION_TAGS)
    answers.refresh()
    return answers


def searched(answers, query, most=1000):
    """All pages of it; words are asked for again until all was looked through."""
    for _ in range(200):
        if answers.search(query, None, most).searched_to is None:
            break
        time.sleep(0.02)
    hits, after = [], None
    while page := answers.search(query, after, most).hits:
        hits += page
        after = page[-1].rank(query.order)
    return hits


@pytest.fixture
def archive(tmp_path):
    return Archive(str(tmp_path / "archive"), version_tags=VERSION_TAGS)


@pytest.mark.parametrize("bits", [62, 5])
def test_a_search_gives_what_looking_at_each_gives_page_by_page(archive, monkeypatch, bits):
    monkeypatch.setattr("groundwatch.archive.answers.MOST_BITS", bits)
    random = Random(17)
    events = unique(random_outcome(random, number) for number in range(300))
    for start in range(0, len(events), 70):
        put(archive, events[start : start + 70], start + 1)
    answers = opened(archive)
    listed = hits_of(events)
    by_name = {f"{one.tenant} {one.id} {one.run} {one.protocol}": one for one in events}
    for _ in range(45):
        query = random_query(random)
        hits = searched(answers, query, random.choice((30, 500)))
        names = [f"{hit.tenant} {hit.id} {hit.run} {hit.protocol}" for hit in hits]
        assert named([by_name[name] for name in names], query) == named(expected(events, query), query), query
        for name, hit in zip(names, hits, strict=True):
            assert msgspec.structs.replace(hit, stream=0, sequence=0) == listed[name]
        told, meant = answers.count(query), expected(events, query)
        assert told.total == len(meant)
        reasons = Counter((one.outcome.value, one.reason) for one in meant)
        assert {(outcome, reason): number for outcome, reason, number in told.reasons} == reasons
        assert told.names["model"] == Counter(one.model for one in meant)
        assert told.names["category"].keys() <= {claim.category for one in meant for claim in one.claims}


def test_an_outcome_is_read_as_it_was(open_archive):
    archive = open_archive()
    rows = [row(number) for number in range(1, 40)]
    add(archive, rows)
    answers = AnswerIndex(
        ArchiveSettings(url=archive.url, options=getattr(archive.store, "options", None) or {}), VERSION_TAGS
    )
    answers.refresh()
    hits = answers.search(AnswerQuery(), None, 100).hits
    read = {event.id: event for event in answers.outcomes(hits)}
    assert read == {one.event.id: one.event for one in rows}


@pytest.mark.parametrize(
    ("column", "without"),
    [("images", {"images": ()}), ("left_out", {"left_out": ()})],
)
def test_rows_of_before_there_was_a_column_are_found_and_read(open_archive, monkeypatch, column, without):
    archive, at = open_archive(), outcomes.SCHEMA.get_field_index(column)
    with monkeypatch.context() as older:
        spec = msgspec.structs.replace(outcomes.OUTCOMES_TABLE, schema=outcomes.SCHEMA.remove(at))
        older.setattr(Archive, "spec", spec)
        older.setattr(
            "groundwatch.archive.outcomes.to_table", lambda *given: to_table(*given).remove_column(at)
        )
        add(archive, [row(3)])
    add(archive, [row(4)])
    answers = AnswerIndex(
        ArchiveSettings(url=archive.url, options=getattr(archive.store, "options", None) or {}), VERSION_TAGS
    )
    answers.refresh()
    hits = answers.search(AnswerQuery(), None, 100).hits
    read = {event.id: event for event in answers.outcomes(hits)}
    old = msgspec.structs.replace(row(3).event, **without)
    assert read == {old.id: old, row(4).event.id: row(4).event}


def test_what_is_merged_replaced_and_erased_is_found_once_or_not_at_all(archive):
    several = [row(number) for number in range(1, 31)]
    for one in several:
        add(archive, [one])
    answers = opened(archive)

    def numbers():
        answers.refresh()
        return sorted(hit.sequence for hit in answers.search(AnswerQuery(), None, 100).hits)

    assert numbers() == list(range(1, 31))
    while archive.maintain():
        pass
    assert numbers() == list(range(1, 31))
    add(archive, [row(7, sequence=31, supersedes=7)])
    assert numbers() == [one for one in range(1, 32) if one != 7]
    archive.erase(Erasure(keys=(several[2].key,), until={STREAM: 31}))
    assert numbers() == [one for one in range(1, 32) if one not in (3, 7)]
    assert answers.position(STREAM) == 31


def read(one):
    """The row as the stream has it."""
    return Read(
        subject=subject_of("outcome", "live", one.event.protocol, one.key),
        data=msgspec.json.encode(one.event),
        headers={HEADER_EXPECT_SEQUENCE: str(one.supersedes)} if one.supersedes else {},
        sequence=one.sequence,
        time=one.stored_at,
    )


def test_what_comes_while_the_index_is_trimmed_hides_what_it_took_the_place_of_too(archive):
    add(archive, [row(number) for number in range(1, 4)])
    answers = opened(archive)
    answers.add(STREAM, [read(row(1, sequence=8, supersedes=1))])
    adding = threading.Thread(target=answers.add, args=(STREAM, [read(row(2, sequence=9, supersedes=2))]))

    class Looked(dict):
        """While it is gone through, another comes, or waits until it has been."""

        def items(self):
            for item in super().items():
                adding.start()
                adding.join(0.5)
                yield item

    answers._superseded = Looked(answers._superseded)
    answers.refresh()
    adding.join()
    assert answers._superseded == {(STREAM, 1): 8, (STREAM, 2): 9}


def test_what_comes_from_the_stream_is_found_once_and_hides_what_it_took_the_place_of(archive):
    add(archive, [row(number) for number in range(1, 8)])
    answers = opened(archive)
    rows = [row(8), row(3, sequence=9, supersedes=3)]

    def numbers(**query):
        answers.refresh()
        return sorted(hit.sequence for hit in answers.search(AnswerQuery(**query), None, 100).hits)

    reads = [read(one) for one in rows]
    for _ in range(2):
        answers.add(STREAM, reads)
        assert numbers() == [1, 2, 4, 5, 6, 7, 8, 9] and answers.position(STREAM) == 9
    # Files that come hide it no less, and what they have is not there twice.
    add(archive, [rows[0]])
    assert numbers() == [1, 2, 4, 5, 6, 7, 8, 9]
    while archive.maintain():
        pass
    assert numbers() == [1, 2, 4, 5, 6, 7, 8, 9]
    word = rows[1].event.claims[0].text.lower().split()[0]
    assert 9 in numbers(words=(word,))
    answers.forget(lambda key, tenant: key == rows[1].key)
    assert numbers() == [1, 2, 4, 5, 6, 7, 8]
    add(archive, [rows[1]])
    assert numbers() == [1, 2, 4, 5, 6, 7, 8, 9]


def test_words_of_a_large_archive_are_looked_for_from_the_newest_on(archive, monkeypatch):
    monkeypatch.setattr("groundwatch.archive.answers.WORDS_SECONDS", 0.0)
    random = Random(3)
    events = unique(random_outcome(random, number) for number in range(400))
    put(archive, events)
    answers = opened(archive)
    query = AnswerQuery(words=("zebra",))
    steps = []
    for _ in range(500):
        found = answers.search(query, None, 1000)
        steps.append(found.searched_to)
        if found.searched_to is None:
            break
        assert all(hit.recorded_at >= found.searched_to - 86_400 for hit in found.hits)
        time.sleep(0.005)
    assert steps[0] is not None and steps[-1] is None
    assert all(later is None or later <= earlier for earlier, later in itertools.pairwise(steps))
    assert len(found.hits) == len(expected(events, query))


def test_without_an_archive_there_is_nothing_and_it_may_come(tmp_path):
    answers = AnswerIndex(ArchiveSettings(url=str(tmp_path / "archive")), VERSION_TAGS)
    answers.refresh()
    assert answers.search(AnswerQuery(), None, 10).hits == [] and answers.position(STREAM) == 0
    add(Archive(str(tmp_path / "archive")), [row(1)])
    answers.refresh()
    assert [hit.sequence for hit in answers.search(AnswerQuery(), None, 10).hits] == [1]


@pytest.mark.parametrize("url", ["", "off"])
def test_where_no_archive_is_nothing_is_looked_for_in_one(tmp_path, monkeypatch, url):
    monkeypatch.chdir(tmp_path)
    (tmp_path / url).mkdir(exist_ok=True)
    (tmp_path / url / "events").write_text("this is no archive")
    answers = AnswerIndex(ArchiveSettings(url=url), VERSION_TAGS)
    answers.look()
    answers.refresh()
    assert answers.complete and answers.problem() == "" and answers.position(STREAM) == 0
    assert answers.messages("key", 1.0) == [] and answers.search(AnswerQuery(), None, 9).hits == []
    assert answers._events is None


def test_what_takes_too_long_ends_in_a_line(monkeypatch):
    monkeypatch.setattr("groundwatch.archive.answers.SEARCH_SECONDS", 0.2)
    duck = duckdb.connect()
    with pytest.raises(TooSlow, match="narrow it, by time, model or protocol"), _in_time(duck):
        duck.execute("SELECT sum(a.range * b.range) FROM range(10_000_000) a, range(100_000) b").fetchall()
