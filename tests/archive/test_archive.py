"""Rows go in once, are merged and go out for good, in a folder and in an object store alike."""

from __future__ import annotations

import stat
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from tests.archive.conftest import STREAM, add, outcome, row, rows
from tests.support.archived import holding

from groundwatch.archive import outcomes as schema
from groundwatch.archive import table as table_module
from groundwatch.archive.outcomes import CLAIMS, OUTCOMES, Archive, Row, to_table
from groundwatch.archive.query import Session
from groundwatch.archive.table import Change, Erasure
from groundwatch.errors import SettingsError, UsageError

Opener = Callable[..., Archive]


def sequences(archive: Archive, table: str = OUTCOMES) -> list[int]:
    with Session(archive.snapshot()) as session:
        found = session.ask(f"SELECT sequence FROM {table} ORDER BY sequence")
    return [one[0] for one in found.rows]


def claims_of(several: Sequence[Row]) -> list[int]:
    return [one.sequence for one in several for _ in one.event.claims]


def data_files(archive: Archive) -> set[str]:
    return {name for name in archive.store.names() if not name.startswith("_delta_log/")}


def named_files(archive: Archive) -> set[str]:
    return {file.path for file in archive.snapshot().files()}


def test_rows_go_in_once(open_archive: Opener):
    several = rows(1, 30)
    archive = open_archive()
    first = archive.add(several[:10], created=STREAM, position=10)
    assert first.counts == {OUTCOMES: 10, CLAIMS: len(claims_of(several[:10]))}
    # The same again, and a batch that begins with what is there.
    add(archive, several[:10])
    add(open_archive(), several)
    assert sequences(open_archive()) == [one.sequence for one in several]
    assert sequences(open_archive(), CLAIMS) == claims_of(several)
    assert open_archive().snapshot().position(STREAM) == 29


def test_another_engine_reads_it(tmp_path: Path):
    """Polars has a reader of its own."""
    archive = Archive(str(tmp_path / "archive"), merge_files=2)
    several = rows(1, 60)
    add(archive, several[:30])
    add(archive, several[30:])
    archive.maintain()
    archive.erase(Erasure(keys=(several[6].key,)))
    wanted = [one for one in several if one is not several[6]]
    found = pl.scan_delta(str(tmp_path / "archive" / "outcomes")).sort("sequence").collect()
    assert found["response_id"].to_list() == [one.event.id for one in wanted]
    assert found["day"].to_list() == [one.day for one in wanted]
    texts = found.select(pl.col("claims").explode().struct.field("text").drop_nulls())["text"]
    assert texts.to_list() == [claim.text for one in wanted for claim in one.event.claims]


def test_days_lie_apart(open_archive: Opener):
    archive = open_archive()
    add(archive, [row(1), row(30), row(31, run="replay/7")])
    files = archive.snapshot().files()
    assert {(file.day.isoformat(), file.rows) for file in files} == {("2026-03-01", 1), ("2026-03-02", 2)}


@pytest.mark.parametrize("new", [True, False])
def test_of_two_writers_one_wins_and_nothing_is_written_twice(open_archive: Opener, monkeypatch, new):
    one, other = open_archive(), open_archive()
    commit = Change.commit

    def commit_second(self: Change) -> None:
        if self._store is other.store and self.base.version < 2:
            add(one, rows(5, 15))
        commit(self)

    if not new:
        add(one, rows(1, 10))
    monkeypatch.setattr(Change, "commit", commit_second)
    add(other, rows(1, 20))
    assert sequences(open_archive()) == list(range(5 if new else 1, 20))
    # What the loser had written is gone.
    assert data_files(one) == named_files(one)


def test_an_outcome_takes_the_place_of_the_one_it_supersedes(open_archive: Opener):
    archive = open_archive()
    add(archive, rows(1, 10))
    before = archive.snapshot().version
    add(archive, [row(4, sequence=10, supersedes=4), row(11), row(11, sequence=12, supersedes=11)])
    assert archive.snapshot().version == before + 1
    assert sequences(open_archive()) == [1, 2, 3, 5, 6, 7, 8, 9, 10, 12]
    assert 4 not in sequences(open_archive(), CLAIMS)


def test_a_new_stream_counts_from_one_again(open_archive: Opener):
    archive = open_archive()
    add(archive, rows(1, 5))
    archive.add([row(9, sequence=1)], created=STREAM + 1, position=1)
    assert sequences(open_archive()) == [1, 1, 2, 3, 4]
    state = open_archive().snapshot()
    assert (state.position(STREAM), state.position(STREAM + 1)) == (4, 1)


def test_a_value_without_a_place_keeps_no_other_out(open_archive: Opener):
    archive = open_archive()
    several = [row(1), row(2, answer_words=2**70), row(3)]
    assert archive.add(several, created=STREAM, position=3).unreadable == (2,)
    assert sequences(open_archive()) == [1, 3]


def test_small_files_become_one(open_archive: Opener, monkeypatch: pytest.MonkeyPatch):
    archive = open_archive(merge_files=4)
    for number in range(1, 9):
        add(archive, [row(number)])
    with Session(archive.snapshot()) as asking:
        assert archive.maintain() >= 8
        # Who asked before reads on.
        assert asking.ask("SELECT count(*), sum(answer_words) FROM outcomes").rows == [[8, 36]]
    assert len(archive.snapshot().files()) == 1
    assert sequences(open_archive()) == list(range(1, 9))
    assert sequences(open_archive(), CLAIMS) == claims_of(rows(1, 9))
    assert archive.snapshot().position(STREAM) == 8
    assert data_files(archive) > named_files(archive)
    monkeypatch.setattr(table_module, "GRACE_HOURS", 0)
    monkeypatch.setattr(table_module, "VACUUM_SECONDS", -1.0)
    archive.maintain()
    assert data_files(archive) == named_files(archive)


def test_a_day_that_is_over_is_merged(open_archive: Opener, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(table_module, "SETTLED_SECONDS", -1.0)
    archive = open_archive()
    add(archive, rows(1, 3))
    add(archive, rows(3, 6))
    archive.maintain()
    assert len(archive.snapshot().files()) == 1
    assert sequences(open_archive()) == [1, 2, 3, 4, 5]


def test_a_new_column_is_null_in_old_files(open_archive: Opener, monkeypatch: pytest.MonkeyPatch):
    archive = open_archive(merge_files=2)
    add(archive, rows(1, 3))
    grown = schema.SCHEMA.append(pa.field("region", pa.string())).append(pa.field("height", pa.float64()))
    monkeypatch.setattr(Archive, "spec", msgspec.structs.replace(schema.OUTCOMES_TABLE, schema=grown))
    monkeypatch.setattr("groundwatch.archive.query.SCHEMA", grown)

    def ask() -> list[list[object]]:
        with Session(open_archive().snapshot()) as session:
            return session.ask("SELECT sequence, region, height FROM outcomes ORDER BY sequence").rows

    # No file has the columns yet.
    assert ask() == [[1, None, None], [2, None, None]]

    def larger(several: Sequence[Row], tags: Sequence[str]) -> pa.Table:
        table = to_table(several, tags)
        table = table.append_column("region", pa.array(["north"] * len(several)))
        return table.append_column("height", pa.array([2.0] * len(several)))

    monkeypatch.setattr("groundwatch.archive.outcomes.to_table", larger)
    add(archive, [row(3)])
    mixed = [[1, None, None], [2, None, None], [3, "north", 2.0]]
    assert ask() == mixed
    assert archive.maintain() > 0
    assert ask() == mixed


def test_erased_rows_leave_no_byte(open_archive: Opener):
    archive = open_archive(merge_files=2)
    several = rows(1, 20)
    add(archive, several[:10])
    add(archive, several[10:])
    archive.maintain()
    needle = [several[7].event.id.encode(), several[7].key.encode()]
    assert holding(archive.store, needle)
    assert archive.erase(Erasure(keys=(several[7].key,), until={STREAM: 99})) == 1
    assert holding(archive.store, needle) == []
    assert data_files(archive) == named_files(archive)
    assert sequences(open_archive()) == [one for one in range(1, 20) if one != 8]
    assert archive.erase(Erasure(keys=(several[7].key,))) == 0
    archive.erase(Erasure(tenant="tenant-1"))
    assert holding(archive.store, [b"tenant-1"]) == []
    assert sequences(open_archive()) == [2, 4, 6, 10, 12, 14, 16, 18]


def test_no_text_of_an_outcome_is_in_the_log(tmp_path: Path):
    archive = Archive(str(tmp_path / "archive"), merge_files=2)
    texts = {
        text for one in rows(1, 20) for text in (one.key, one.event.id, one.event.tenant, one.event.model)
    }
    texts |= {claim.text for one in rows(1, 20) for claim in one.event.claims}
    for number in range(1, 20):
        add(archive, [row(number)])
    archive.maintain()
    archive.erase(Erasure(keys=(row(3).key,), until={STREAM: 99}))
    archive.erase(Erasure(tenant="tenant-0"))
    DeltaTable(archive.store.address).create_checkpoint()
    log = sorted((tmp_path / "archive" / "outcomes" / "_delta_log").iterdir())
    assert any(path.name.endswith(".checkpoint.parquet") for path in log)
    for name in holding(archive.store, [text.encode() for text in texts]):
        assert not name.startswith("_delta_log/"), name


def test_the_position_outlives_the_log(tmp_path: Path):
    """delta-rs deletes what a checkpoint holds after thirty days."""
    archive = Archive(str(tmp_path / "archive"))
    add(archive, rows(1, 5))
    add(archive, rows(5, 9))
    DeltaTable(archive.store.address).create_checkpoint()
    for path in sorted((tmp_path / "archive" / "outcomes" / "_delta_log").glob("*.json"))[:-1]:
        path.unlink()
    again = Archive(str(tmp_path / "archive"))
    assert again.begin().position(STREAM) == 8
    add(again, rows(1, 11))
    assert sequences(again) == list(range(1, 11))
    assert again.erase(Erasure(keys=(row(3).key,), until={STREAM: 20})) == 1
    assert holding(again.store, [row(3).event.id.encode()]) == []


def test_an_erasure_reaches_what_the_writer_still_holds(open_archive: Opener):
    writer, several = open_archive(), rows(1, 10)
    add(writer, several[:3])
    open_archive().erase(Erasure(keys=(several[6].key,), until={STREAM: 8}))
    add(writer, several[3:5])
    add(writer, several[5:])
    assert sequences(open_archive()) == [1, 2, 3, 4, 5, 6, 8, 9]
    # The same response, recorded later, is another matter.
    add(writer, [row(7, sequence=12)])
    assert 12 in sequences(open_archive())


def test_an_erasure_that_comes_while_the_writer_writes(open_archive: Opener, monkeypatch):
    """Its files are named by no state and may be deleted: then the writer writes them anew."""
    writer, several = open_archive(), rows(1, 10)
    add(writer, several[:3])
    commit, gone = Change.commit, Erasure(keys=(several[6].key, several[1].key), until={STREAM: 9})

    def erase_first(self: Change) -> None:
        if self._store is writer.store and self.base.version < 2:
            open_archive().erase(gone)
        commit(self)

    monkeypatch.setattr(Change, "commit", erase_first)
    add(writer, several[3:])
    assert sequences(open_archive()) == [1, 3, 4, 5, 6, 8, 9]
    assert holding(writer.store, [several[6].key.encode()]) == []
    assert data_files(writer) == named_files(writer)


class Died(BaseException):
    """The process is gone."""


class Steps:
    """The process dies behind so many of its files and transactions, and does nothing more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, left: int) -> None:
        self.left = left
        discard = Change.discard
        for name in ("commit", "write"):
            monkeypatch.setattr(Change, name, self._dying(getattr(Change, name)))
        monkeypatch.setattr(
            Change, "discard", lambda change, state: discard(change, state) if self.left > 0 else None
        )

    def _dying(self, work: Callable[..., None]) -> Callable[..., None]:
        def dying(*arguments: object, **options: object) -> None:
            work(*arguments, **options)
            self.left -= 1
            if self.left <= 0:
                raise Died

        return dying


def test_whoever_dies_wherever_the_next_one_completes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    several = [*rows(1, 12), row(4, sequence=12, supersedes=4)]
    gone = several[6]

    def life(archive: Archive) -> None:
        come = archive.snapshot().position(STREAM)
        for end in (7, 12):
            if end > come:
                archive.add(
                    [one for one in several if come < one.sequence <= end], created=STREAM, position=end
                )
        archive.maintain()
        archive.erase(Erasure(keys=(gone.key,)))
        archive.maintain()

    died, calls = 0, 0
    while calls == died:
        calls += 1
        with monkeypatch.context() as patch:
            Steps(patch, calls)
            try:
                life(Archive(str(tmp_path / str(calls)), merge_files=2))
            except Died:
                died += 1
        again = Archive(str(tmp_path / str(calls)), merge_files=2)
        life(again)
        expected = [one.sequence for one in several if one.sequence not in (4, gone.sequence)]
        assert sequences(again) == expected, calls
        assert holding(again.store, [gone.event.id.encode()]) == []
    assert died > 8


def test_what_no_table_is_is_one_line(tmp_path: Path):
    log = tmp_path / "outcomes" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").write_text("not json")
    with pytest.raises((UsageError, OSError)) as raised:
        Archive(str(tmp_path)).snapshot()
    assert "\n" not in str(raised.value)


def test_times_that_cannot_be_are_none(open_archive: Opener):
    archive = open_archive()
    add(archive, [row(1, recorded_at=1e300), row(2, recorded_at=0.0)])
    assert sequences(open_archive()) == [1, 2]
    assert outcome(1).recorded_at > 0


def test_an_archive_made_here_is_its_owners_alone(tmp_path: Path):
    root = tmp_path / "above" / "archive"
    add(Archive(str(root)), rows(1, 3))
    assert {stat.S_IMODE(path.stat().st_mode) for path in (root, root.parent)} == {0o700}


def test_a_folder_keeps_its_rights(tmp_path: Path):
    tmp_path.chmod(0o755)
    add(Archive(str(tmp_path)), rows(1, 3))
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


@pytest.mark.parametrize(
    ("url", "options", "told"),
    [("nonsense://here", {}, "archive.url"), ("s3://bucket", {"client_kwargs": {}}, "client_kwargs")],
)
def test_a_place_that_cannot_be_is_refused(url, options, told):
    with pytest.raises(SettingsError, match=told):
        Archive(url, options)
