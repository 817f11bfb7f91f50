"""SQL over archive and stream, shut in; and the report that is the same from rows and from events."""

from __future__ import annotations

from datetime import date

import pytest
from tests.archive.conftest import DAY, STREAM, add, row, rows
from tests.support.breakdown import break_down_events

from groundwatch.archive.outcomes import Archive
from groundwatch.archive.query import Session, Tail, break_down
from groundwatch.errors import UsageError
from groundwatch.events import OutcomeKind


@pytest.fixture
def archive(tmp_path):
    archive = Archive(str(tmp_path / "archive"))
    add(archive, rows(1, 60))
    return archive


async def several(*found):
    for one in found:
        yield one


async def test_what_is_only_in_the_stream_is_there_too(open_archive, tmp_path):
    archive = open_archive()
    add(archive, rows(1, 10))
    tail = Tail(tmp_path, ("version",))
    await tail.read(several(row(4, sequence=10, supersedes=4), row(11)))
    with Session(open_archive().snapshot(), tail) as session:
        found = session.ask("SELECT sequence FROM outcomes ORDER BY ALL").rows
        assert [one[0] for one in found] == [1, 2, 3, 5, 6, 7, 8, 9, 10, 11]
        claims = session.ask("SELECT DISTINCT sequence FROM claims ORDER BY ALL").rows
        assert [one[0] for one in claims] == [1, 2, 3, 6, 7, 8, 9, 10, 11]


def test_an_empty_archive_has_its_columns():
    with Session(None) as session:
        assert session.ask("SELECT count(*), sum(refuted) FROM outcomes").rows == [[0, None]]
        assert session.ask("SELECT verdict FROM claims").rows == []


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("selct 1", "syntax error"),
        ("SELECT nothing FROM outcomes", "nothing"),
        ("SELECT * FROM nowhere", "nowhere"),
        ("SELECT 1; SELECT 2", "one SELECT is wanted"),
        ("", "one SELECT is wanted"),
        ("DROP VIEW outcomes", "one SELECT is wanted"),
        ("CREATE TABLE mine AS SELECT 1", "one SELECT is wanted"),
        ("COPY outcomes TO '/tmp/stolen.csv'", "one SELECT is wanted"),
        ("EXPLAIN ANALYZE COPY outcomes TO '/tmp/stolen.csv'", "one SELECT is wanted"),
        ("SET enable_external_access = true", "one SELECT is wanted"),
        ("ATTACH '/tmp/some.db'", "one SELECT is wanted"),
        ("INSTALL httpfs", "one SELECT is wanted"),
        ("SELECT * FROM read_csv('/etc/passwd')", "disabled by configuration"),
        ("SELECT * FROM read_text('/etc/passwd')", "disabled by configuration"),
        ("SELECT * FROM glob('/etc/*')", "disabled by configuration"),
        ("SELECT * FROM '/etc/passwd'", "does not exist"),
        ("SELECT * FROM tail", "does not exist"),
        ("SELECT sequence / 0::INT, error('mine') FROM outcomes", "mine"),
    ],
)
def test_nothing_else_can_be_read_or_done(archive, sql, told):
    tail = [1, 2, 3]
    with Session(archive.snapshot()) as session, pytest.raises(UsageError) as raised:
        session.ask(sql)
    assert told in str(raised.value)
    assert "\n" not in str(raised.value)
    assert len(tail) == 3


def test_files_of_other_days_are_not_opened(archive, tmp_path):
    snapshot = archive.snapshot()
    for file in snapshot.files():
        if file.day != date(2026, 3, 2):
            (tmp_path / "archive" / "outcomes" / file.path).write_bytes(b"not Parquet")
    with Session(snapshot, since=date(2026, 3, 2), until=date(2026, 3, 2)) as session:
        assert session.ask("SELECT DISTINCT day FROM outcomes").rows == [[date(2026, 3, 2)]]
        assert session.ask("SELECT DISTINCT day FROM claims").rows == [[date(2026, 3, 2)]]
        assert break_down(session, ("model",)).rows()


def test_one_run_alone(archive):
    archive.add([row(61, run="replay/7")], created=STREAM, position=61)
    with Session(archive.snapshot(), run="replay/7") as session:
        assert session.ask("SELECT sequence FROM outcomes").rows == [[61]]


@pytest.mark.parametrize(
    "by", [("model",), ("model", "category"), ("strategy", "tenant"), ("day", "category"), ("it's no tag",)]
)
@pytest.mark.parametrize("hours", [None, (10, 30)])
def test_the_report_is_the_same_from_rows_and_from_events(archive, by, hours):
    since, until = (DAY + 3_600 * hours[0], DAY + 3_600 * hours[1]) if hours else (None, None)
    with Session(archive.snapshot()) as session:
        from_rows = break_down(session, by, since=since, until=until, run="live").rows()
    events = (row(number).event for number in range(1, 60))
    wanted = break_down_events(
        by, (one for one in events if since is None or since <= one.recorded_at < until)
    ).rows()
    assert len(from_rows) == len(wanted) > 0
    for one, other in zip(from_rows, wanted, strict=True):
        assert (one.by, one.fingerprint, one.responses, one.scored, one.unscored) == (
            other.by,
            other.fingerprint,
            other.responses,
            other.scored,
            other.unscored,
        )
        assert one.coverage == other.coverage
        for mine, wanted_one in (
            (one.hallucination_rate, other.hallucination_rate),
            (one.score, other.score),
        ):
            assert (mine is None) == (wanted_one is None)
            if mine is not None and wanted_one is not None:
                assert (mine.value, mine.low, mine.high) == pytest.approx(
                    (wanted_one.value, wanted_one.low, wanted_one.high), rel=1e-9
                )
                assert mine.n == wanted_one.n


def test_scores_that_are_equal_are_so_in_both(tmp_path):
    """Their interval is another one than that of scores that differ by rounding."""
    archive = Archive(str(tmp_path / "archive"))
    equal = [row(number, score=0.1, outcome=OutcomeKind.SCORED) for number in range(1, 60, 4)]
    add(archive, equal)
    events = break_down_events((), (one.event for one in equal))
    with Session(archive.snapshot()) as session:
        ((found,), (wanted,)) = break_down(session, ()).rows(), events.rows()
    assert found.score is not None and wanted.score is not None
    assert (found.score.low, found.score.high) == pytest.approx((wanted.score.low, wanted.score.high))


def test_rows_of_other_streams_are_others(archive):
    archive.add([row(1, sequence=1)], created=STREAM + 5, position=1)
    with Session(archive.snapshot()) as session:
        assert session.ask("SELECT count(*) FROM outcomes WHERE sequence = 1").rows == [[2]]
