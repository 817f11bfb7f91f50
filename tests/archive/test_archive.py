"""Rows go in once, are merged and go out for good, in a folder and in an object store alike."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from tests.archive.conftest import STREAM, add, outcome, row, rows

from groundwatch.archive import archive as module
from groundwatch.archive import merging
from groundwatch.archive import rows as schema
from groundwatch.archive.archive import Archive
from groundwatch.archive.manifest import Erasure, Manifest, commit, latest
from groundwatch.archive.query import Session
from groundwatch.archive.report import break_down
from groundwatch.archive.rows import CLAIMS, OUTCOMES, Row, to_events, to_tables
from groundwatch.archive.store import Store
from groundwatch.errors import UsageError
from groundwatch.events import Drawn
from groundwatch.reporting import Breakdown

Opener = Callable[[], Store]

OLD = Path(__file__).parents[1] / "data" / "archive-v1"
"""Of the outcomes 1 to 20."""


def sequences(store: Store, table: str = OUTCOMES) -> list[int]:
    with Session(store, latest(store)) as session:
        found = session.ask(f"SELECT sequence FROM {table} ORDER BY sequence")
    return [one[0] for one in found.rows]


def claims_of(several: Sequence[Row]) -> list[int]:
    return [one.sequence for one in several for _ in one.event.claims]


def test_rows_are_the_outcomes_and_back():
    wanted = rows(0, 40)
    tables = to_tables(wanted, ("release", "version"))
    assert [event for _, event in to_events(tables[OUTCOMES], tables[CLAIMS])] == [
        one.event for one in wanted
    ]
    assert tables[OUTCOMES]["version"].to_pylist() == [one.event.tags.get("version", "") for one in wanted]
    assert tables[CLAIMS].num_rows == len(claims_of(wanted)) > 0


def test_rows_go_in_once(open_store: Opener):
    several = rows(1, 30)
    archive = Archive(open_store())
    first = archive.add(several[:10], stream=STREAM, position=10)
    assert (first.outcomes, first.claims) == (10, len(claims_of(several[:10])))
    # The same again, and a batch that begins with what is there.
    add(archive, several[:10])
    add(Archive(open_store()), several)
    assert sequences(open_store()) == [one.sequence for one in several]
    assert sequences(open_store(), CLAIMS) == claims_of(several)
    assert latest(open_store()).position(STREAM) == 29


def test_days_and_runs_lie_apart(open_store: Opener):
    archive = Archive(open_store())
    add(archive, [row(1), row(30), row(31, run="replay/7")])
    parts = latest(open_store()).of(OUTCOMES)
    assert {(part.day.isoformat(), part.run, part.rows) for part in parts} == {
        ("2026-03-01", "live", 1),
        ("2026-03-02", "live", 1),
        ("2026-03-02", "replay/7", 1),
    }
    assert any("/day=2026-03-02/run=replay%2F7/" in part.name for part in parts)


def test_of_two_writers_one_wins_and_nothing_is_written_twice(open_store: Opener):
    one, other = Archive(open_store()), Archive(open_store())
    one.state(), other.state()
    add(one, rows(1, 10))
    add(other, rows(1, 20))
    add(one, rows(5, 25))
    assert sequences(open_store()) == list(range(1, 25))
    assert latest(open_store()).number == 3
    # What the loser had written is gone.
    named = {part.name for part in latest(open_store()).parts}
    assert {name for name in open_store().names() if name.endswith(".parquet")} == named


def test_an_outcome_takes_the_place_of_the_one_it_supersedes(open_store: Opener):
    archive = Archive(open_store())
    add(archive, rows(1, 10))
    add(archive, [row(4, sequence=10, supersedes=4), row(11), row(11, sequence=12, supersedes=11)])
    assert sequences(open_store()) == [1, 2, 3, 5, 6, 7, 8, 9, 10, 12]
    assert 4 not in sequences(open_store(), CLAIMS)


def test_a_new_stream_counts_from_one_again(open_store: Opener):
    archive = Archive(open_store())
    add(archive, rows(1, 5))
    archive.add([row(9, sequence=1)], stream=STREAM + 1, position=1)
    assert sequences(open_store()) == [1, 1, 2, 3, 4]
    state = latest(open_store())
    assert (state.position(STREAM), state.position(STREAM + 1)) == (4, 1)


def test_a_value_without_a_place_keeps_no_other_out(open_store: Opener):
    archive = Archive(open_store())
    several = [row(1), row(2, answer_words=2**70), row(3)]
    assert archive.add(several, stream=STREAM, position=3).unreadable == (2,)
    assert sequences(open_store()) == [1, 3]


def test_small_files_become_one(open_store: Opener, monkeypatch: pytest.MonkeyPatch):
    archive = Archive(open_store(), merge_files=4)
    for number in range(1, 9):
        add(archive, [row(number)])
    before = latest(open_store())
    with Session(open_store(), before) as asking:
        assert archive.maintain() >= 8
        # Who asked before reads on.
        assert asking.ask("SELECT count(*) FROM outcomes").rows == [[8]]
    assert len(latest(open_store()).of(OUTCOMES)) == 1
    assert sequences(open_store()) == list(range(1, 9))
    assert sequences(open_store(), CLAIMS) == claims_of(rows(1, 9))
    monkeypatch.setattr(module, "GRACE_SECONDS", 0.0)
    archive.maintain()
    named = {part.name for part in latest(open_store()).parts}
    assert {name for name in open_store().names() if name.endswith(".parquet")} == named
    assert latest(open_store()).retired == ()


def test_a_day_that_is_over_is_merged(open_store: Opener, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(merging, "SETTLED_SECONDS", -1.0)
    archive = Archive(open_store())
    add(archive, rows(1, 3))
    add(archive, rows(3, 6))
    archive.maintain()
    assert len(latest(open_store()).of(OUTCOMES)) == 1
    assert sequences(open_store()) == [1, 2, 3, 4, 5]


def test_a_new_column_has_its_default_in_old_files(open_store: Opener, monkeypatch: pytest.MonkeyPatch):
    archive = Archive(open_store(), merge_files=2)
    add(archive, rows(1, 3))
    monkeypatch.setattr(schema, "SCHEMA", 3)
    for place in ("groundwatch.archive.archive", "groundwatch.archive.query"):
        monkeypatch.setattr(f"{place}.SCHEMA", 3)
    for name, kind in (("region", pa.string()), ("height", pa.float64())):
        grown = schema.SCHEMAS[OUTCOMES].append(pa.field(name, kind))
        monkeypatch.setitem(schema.SCHEMAS, OUTCOMES, grown)
    monkeypatch.setitem(
        schema.ADDED,
        OUTCOMES,
        schema.ADDED[OUTCOMES] | {"region": (3, "it's everywhere"), "height": (3, None)},
    )

    def ask() -> list[list[object]]:
        with Session(open_store(), latest(open_store())) as session:
            return session.ask("SELECT sequence, region, height FROM outcomes ORDER BY sequence").rows

    # No file has the columns yet.
    assert ask() == [[1, "it's everywhere", None], [2, "it's everywhere", None]]
    columns = schema._outcome_columns
    monkeypatch.setattr(
        schema,
        "_outcome_columns",
        lambda events: itertools.chain(
            columns(events), [pa.array(["north"] * len(events)), pa.array([2.0] * len(events))]
        ),
    )
    add(archive, [row(3)])
    mixed = [[1, "it's everywhere", None], [2, "it's everywhere", None], [3, "north", 2.0]]
    assert ask() == mixed
    assert archive.maintain() > 0
    assert {part.schema for part in latest(open_store()).of(OUTCOMES)} == {3}
    assert ask() == mixed


def test_an_archive_of_the_first_version_goes_on(tmp_path: Path):
    """Written by the code of that version, before outcomes said how they were drawn."""
    place = tmp_path / "archive"
    shutil.copytree(OLD, place)
    wanted = [row(number, drawn=Drawn()) for number in range(1, 21)]

    def ask() -> tuple[list[list[object]], list[list[object]]]:
        store = Store(str(place))
        with Session(store, latest(store)) as session:
            drawn = session.ask(
                "SELECT sequence, weight, drawn, drawn_lowest, stratum, budget FROM outcomes ORDER BY 1"
            ).rows
            return drawn, session.ask("SELECT sequence, text, verdict FROM claims ORDER BY 1, claim").rows

    old = [[number, 1.0, 1.0, 1.0, "", ""] for number in range(1, 21)]
    said = [[one.sequence, claim.text, claim.decision.value] for one in wanted for claim in one.event.claims]
    assert ask() == (old, said)
    archive = Archive(Store(str(place)), merge_files=2)
    add(archive, [row(22)])
    drawn, _ = ask()
    assert drawn == [*old, [22, 4.0, 0.25, 0.25, "ordinary", "thrifty"]]
    assert archive.maintain() > 0
    assert {part.schema for part in latest(Store(str(place))).parts} == {schema.SCHEMA}
    assert ask()[0] == drawn
    with Session(Store(str(place)), latest(Store(str(place)))) as session:
        found = break_down(session, ("model",)).rows()
    events = Breakdown(("model",))
    for one in [*wanted, row(22)]:
        events.add(one.event)
    for mine, other in zip(found, events.rows(), strict=True):
        assert mine.by == other.by
        assert mine.hallucination_rate is not None and other.hallucination_rate is not None
        assert mine.hallucination_rate.value == pytest.approx(other.hallucination_rate.value)
        assert mine.hallucination_rate.low == pytest.approx(other.hallucination_rate.low)


def test_erased_rows_leave_no_byte(open_store: Opener):
    archive = Archive(open_store(), merge_files=2)
    several = rows(1, 20)
    add(archive, several[:10])
    add(archive, several[10:])
    archive.maintain()
    needle = [several[7].event.id.encode()]
    assert archive.search(needle)
    done = archive.erase(Erasure(keys=(several[7].key,)))
    assert (done.outcomes, done.claims) == (1, len(several[7].event.claims))
    assert archive.search(needle) == []
    assert sequences(open_store()) == [one for one in range(1, 20) if one != 8]
    assert archive.erase(Erasure(keys=(several[7].key,))).outcomes == 0
    archive.erase(Erasure(tenant="tenant-1"))
    assert archive.search([b"tenant-1"]) == []
    assert sequences(open_store()) == [2, 4, 6, 10, 12, 14, 16, 18]


def test_an_erasure_reaches_what_the_writer_still_holds(open_store: Opener):
    writer, several = Archive(open_store()), rows(1, 10)
    add(writer, several[:3])
    erasure = Erasure(keys=(several[6].key,), stream=STREAM, until=8)
    Archive(open_store()).erase(erasure)
    add(writer, several[3:5])
    assert latest(open_store()).erasures == (erasure,)
    add(writer, several[5:])
    assert sequences(open_store()) == [1, 2, 3, 4, 5, 6, 8, 9]
    assert latest(open_store()).erasures == ()


class Died(BaseException):
    """The process is gone."""


class Dying(Store):
    """A store whose process dies at one of its calls, before or after it, and does nothing more."""

    left = 10**9

    def _step(self) -> None:
        self.left -= 1
        if self.left <= 0:
            raise Died

    def create(self, name, data):
        self._step()
        super().create(name, data)
        self._step()

    def writing(self, name):
        self._step()
        return super().writing(name)

    def size(self, name):
        self._step()
        return super().size(name)

    def delete(self, name):
        self._step()
        super().delete(name)
        self._step()


def test_whoever_dies_wherever_the_next_one_completes_it(tmp_path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "GRACE_SECONDS", 0.0)
    several = [*rows(1, 12), row(4, sequence=12, supersedes=4)]
    gone = several[6]

    def life(store: Store) -> None:
        archive = Archive(store, merge_files=2)
        come = archive.state().position(STREAM)
        for end in (4, 8, 12):
            if end > come:
                archive.add(
                    [one for one in several if come < one.sequence <= end], stream=STREAM, position=end
                )
        archive.maintain()
        archive.erase(Erasure(keys=(gone.key,)))
        archive.maintain()

    died, calls = 0, 0
    while calls == died:
        store = Dying(str(tmp_path / str(calls)))
        store.prepare()
        calls += 1
        store.left = calls
        try:
            life(store)
        except Died:
            died += 1
        store.left = 10**9
        life(store)
        expected = [one.sequence for one in several if one.sequence not in (4, gone.sequence)]
        assert sequences(store) == expected, calls
        assert Archive(store).search([gone.event.id.encode()]) == []
        named = {part.name for part in latest(store).parts}
        assert {name for name in store.names() if name.endswith(".parquet")} == named
    assert died > 20


@pytest.mark.parametrize("data", [b"not json", b'{"number": "x"}'])
def test_a_foreign_manifest_is_refused(tmp_path, data):
    store = Store(str(tmp_path))
    store.create("manifests/000000000001.json", data)
    with pytest.raises(UsageError, match="is not an archive's manifest"):
        latest(store)


def test_a_newer_format_is_refused(tmp_path):
    store = Store(str(tmp_path))
    commit(store, Manifest(number=1, format=2))
    with pytest.raises(UsageError, match="upgrade"):
        latest(store)


def test_a_file_is_created_once(open_store: Opener):
    store = open_store()
    store.create("manifests/a", b"one")
    with pytest.raises(FileExistsError):
        store.create("manifests/a", b"two")
    assert store.read("manifests/a") == b"one"
    assert store.names("manifests") == ["manifests/a"]
    store.delete("manifests/a")
    store.delete("manifests/a")
    assert store.names() == []


def test_times_that_cannot_be_are_none(open_store: Opener):
    archive = Archive(open_store())
    add(archive, [row(1, recorded_at=1e300), row(2, recorded_at=0.0)])
    assert sequences(open_store()) == [1, 2]
    assert outcome(1).recorded_at > 0
