"""An archive of the format before Delta Lake, written by the code of that time."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.archive.conftest import STREAM, add, row

from groundwatch.archive import convert as module
from groundwatch.archive.archive import Archive
from groundwatch.archive.convert import convert
from groundwatch.archive.query import Session, break_down
from groundwatch.archive.store import Store
from groundwatch.errors import UsageError
from groundwatch.events import Drawn
from groundwatch.reporting import Breakdown

OLD = Path(__file__).parents[1] / "data" / "archive-v1"
"""Of the outcomes 1 to 20, before outcomes said how they were drawn."""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return Path(shutil.copytree(OLD, tmp_path / "archive"))


def check(archive: Archive) -> None:
    wanted = [row(number, drawn=Drawn()) for number in range(1, 21)]
    assert archive.snapshot().position(STREAM) == 20
    add(archive, [row(22)])
    with Session(archive.snapshot()) as session:
        drawn = session.ask(
            "SELECT sequence, weight, drawn, drawn_lowest, stratum, budget FROM outcomes ORDER BY 1"
        ).rows
        said = session.ask(
            "SELECT sequence, text, verdict FROM claims WHERE sequence < 22 ORDER BY 1, claim"
        ).rows
        found = break_down(session, ("model",)).rows()
    old = [[number, 1.0, 1.0, 1.0, "", ""] for number in range(1, 21)]
    assert drawn == [*old, [22, 4.0, 0.25, 0.25, "ordinary", "thrifty"]]
    assert said == [
        [one.sequence, claim.text, claim.decision.value] for one in wanted for claim in one.event.claims
    ]
    events = Breakdown(("model",))
    for one in [*wanted, row(22)]:
        events.add(one.event)
    for mine, other in zip(found, events.rows(), strict=True):
        assert mine.by == other.by
        assert mine.hallucination_rate is not None and other.hallucination_rate is not None
        assert mine.hallucination_rate.value == pytest.approx(other.hallucination_rate.value)


def test_it_becomes_a_delta_lake_table(place: Path):
    with pytest.raises(UsageError, match="groundwatch admin archive convert"):
        Archive(str(place)).snapshot()
    assert convert(Archive(str(place))) == 20
    check(Archive(str(place)))
    assert {path.name for path in place.iterdir()} == {"_delta_log", "day=2026-03-01"}
    with pytest.raises(UsageError, match="there is no archive of the format before"):
        convert(Archive(str(place)))


def test_in_an_object_store(s3: dict[str, object], tmp_path: Path):
    url = f"s3://bucket/{tmp_path.name}"
    archive = Archive(url, s3)
    for path in OLD.rglob("*.*"):
        with archive.store.files.open_output_stream(path.relative_to(OLD).as_posix()) as file:
            file.write(path.read_bytes())
    with pytest.raises(UsageError, match="groundwatch admin archive convert"):
        archive.snapshot()
    assert convert(Archive(url, s3)) == 20
    check(Archive(url, s3))


class Died(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("step", ["_finish", "_convert_day", "delete"])
def test_who_dies_converting_begins_anew(place: Path, monkeypatch: pytest.MonkeyPatch, step: str):
    with monkeypatch.context() as patch:
        if step == "delete":
            original = Store.names

            def names(self: Store, folder: str = "") -> list[str]:
                if folder == "outcomes":
                    raise Died
                return original(self, folder)

            patch.setattr(Store, "names", names)
        else:
            work = getattr(module, step)

            def die(*arguments: object) -> None:
                work(*arguments)
                raise Died

            patch.setattr(module, step, die)
        with pytest.raises(Died):
            convert(Archive(str(place)))
    with pytest.raises(UsageError, match="groundwatch admin archive convert"):
        Archive(str(place)).snapshot()
    assert convert(Archive(str(place))) == 20
    check(Archive(str(place)))


def test_a_foreign_manifest_is_refused(place: Path):
    (place / "manifests" / "000000000002.json").write_bytes(b"not json")
    with pytest.raises(UsageError, match="is not an archive's manifest"):
        convert(Archive(str(place)))
