"""A run on disk: what is kept, what a kill leaves, who may go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from groundwatch.errors import FileFormatError, UsageError
from groundwatch.events import ChainStep, Judge, ResponseRecorded, ResponseScored
from groundwatch.events import OutcomeKind as Kind
from groundwatch_benchmarks.probing.suites import Header, Judged, ProbeAnswer, Round, RunFile

HEADER = Header(suite="pope", model="m", source="/benchmark")
WHO = Judge(engine="openai", model="m")


def answer(key: str, text: str = "Yes.", *, again: bool = False) -> ProbeAnswer:
    response = ResponseRecorded(id=key, model="m", answer=text, protocols=("pope",))
    return ProbeAnswer(key=key, response=response, judge=WHO, again=again)


def filled(folder: Path) -> None:
    run = RunFile(folder, HEADER)
    run.add(answer("a", "", again=True))
    run.add(answer("a"))
    run.add(Round(key="c", number=1, step=ChainStep(description="A dog.", similarity=0.5), judges={"x": WHO}))
    outcome = ResponseScored(id="a", model="m", protocol="pope", outcome=Kind.SCORED, score=1.0)
    run.add(Judged(key="a:x", outcome=outcome))
    run.close()


def test_what_was_kept_is_there_again_and_the_last_word_counts(tmp_path: Path) -> None:
    filled(tmp_path)
    run = RunFile(tmp_path, HEADER)
    assert run.answers == {"a": answer("a")}
    assert run.rounds["c"][1].step.similarity == 0.5
    assert run.outcomes["a:x"].score == 1.0
    run.close()


@pytest.mark.parametrize("cut", [1, 20, 200])
def test_a_torn_line_is_cut_away(tmp_path: Path, cut: int) -> None:
    filled(tmp_path)
    path = tmp_path / "run.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    run = RunFile(tmp_path, HEADER)
    assert run.answers["a"] == answer("a") and not run.outcomes
    run.add(answer("b"))
    run.close()
    assert whole.startswith(path.read_bytes().rpartition(b'{"type":"answer"')[0])
    run = RunFile(tmp_path, HEADER)
    assert set(run.answers) == {"a", "b"}
    run.close()


def test_a_run_that_was_killed_before_its_first_line_begins_anew(tmp_path: Path) -> None:
    (tmp_path / "run.jsonl").write_bytes(b'{"type":"run","su')
    RunFile(tmp_path, HEADER).close()
    assert (tmp_path / "run.jsonl").read_bytes().count(b"\n") == 1


def test_damage_in_the_middle_is_no_kill(tmp_path: Path) -> None:
    filled(tmp_path)
    path = tmp_path / "run.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2][:-20] + b"\n"
    path.write_bytes(b"".join(lines))
    with pytest.raises(FileFormatError, match=r"run\.jsonl:3: is no line of a probe's run"):
        RunFile(tmp_path, HEADER)


def test_another_run_does_not_go_on_here(tmp_path: Path) -> None:
    filled(tmp_path)
    with pytest.raises(UsageError, match="is a run with model 'm', not 'other'"):
        RunFile(tmp_path, Header(suite="pope", model="other", source="/benchmark"))
    RunFile(tmp_path, HEADER).close()


def test_two_at_once_are_refused(tmp_path: Path) -> None:
    run = RunFile(tmp_path, HEADER)
    with pytest.raises(UsageError, match="another probe is at work there"):
        RunFile(tmp_path, HEADER)
    run.close()
    RunFile(tmp_path, HEADER).close()


def test_images_are_kept_by_content_hash(tmp_path: Path) -> None:
    run = RunFile(tmp_path, HEADER)
    name = run.keep_image(b"an image")
    assert run.keep_image(b"an image") == name and len(name) == 64
    assert run.image(name) == b"an image"
    assert [path.name for path in (tmp_path / "images").iterdir()] == [name]
    run.close()


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UsageError, match="cannot be written"):
        RunFile(tmp_path / "file", HEADER)
