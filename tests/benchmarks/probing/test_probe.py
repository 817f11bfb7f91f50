"""groundwatch probe against a server that looks, misbehaves and gets killed upon."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support import fakes
from tests.support.chains import seed_picture
from tests.support.command_line import CommandLine
from tests.support.llm_server import LlmServer, picture, running

from groundwatch.judging.files import with_engines
from groundwatch.models.settings import ChatSettings
from groundwatch.protocols import registry
from groundwatch.runtime.settings import Settings, StageSettings

WORDS = {"a": "dog ball", "b": "cat on table", "c": "tree", "d": "dog tree"}


@pytest.fixture
def server() -> Iterator[LlmServer]:
    with running() as started:
        yield started


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Small benchmarks in their published layouts, with the images of `WORDS` and none for `gone`."""
    where = tmp_path / "benchmark"
    (where / "images").mkdir(parents=True)
    for name, words in WORDS.items():
        (where / "images" / f"{name}.png").write_bytes(picture(words))
    asked = [(image, thing) for image in (*WORDS, "gone") for thing in ("dog", "tree")]
    lines = [
        {
            "question_id": number,
            "image": f"{image}.png",
            "text": f"Is there a {thing} in the image?",
            "label": "yes" if thing in WORDS.get(image, "") else "no",
        }
        for number, (image, thing) in enumerate(asked, start=1)
    ]
    for strategy in ("random", "popular"):
        write_lines(where / f"coco_pope_{strategy}.json", lines)
    return where


def write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def arguments(server: LlmServer, folder: Path, model: str = "looks", suite: str = "pope") -> list[object]:
    return [
        *("probe", suite, "--target", server.base_url, "--model", model, "--benchmark", folder),
        *("--folder", folder.parent / "run"),
    ]


@pytest.fixture
def nobody(nobody: CommandLine, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    monkeypatch.setattr("groundwatch_benchmarks.probing.suites.PAUSE", 0.01)
    monkeypatch.setattr("groundwatch_benchmarks.probing.suites.PAUSE", 0.01)
    return nobody


def probe(line: CommandLine, *typed: object, **env: str) -> dict[str, Any]:
    done = line(*typed, "--json", **env)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def test_pope_of_a_model_that_sees(nobody: CommandLine, server: LlmServer, folder: Path) -> None:
    told = probe(nobody, *arguments(server, folder))
    assert (told["questions"], told["answered"], told["scored"]) == (16, 16, 16)
    assert told["left_out"] == {"no_image": 4}
    figures = told["figures"]
    assert (figures["accuracy"], figures["f1"], figures["yes_ratio"]) == (1.0, 1.0, 0.5)
    assert set(figures["by_category"]) == {"random", "popular"}
    assert figures["intervals"]["accuracy"]["n"] == len(WORDS)
    (model,) = told["models"]
    assert (model["protocol"], model["scored"]) == ("pope", 16)
    shown = nobody(*arguments(server, folder)).stdout
    assert "accuracy" in shown
    assert len(server.requests) == 16, "the second run had nothing to ask"


def test_what_a_model_cannot_answer_is_counted_beside_its_score(
    nobody: CommandLine, server: LlmServer, folder: Path
) -> None:
    """Each of these meets one question; the rest is answered."""
    script = "looks,empty,refusal,huge,echo:Ja gewiss doch,400,looks"
    told = probe(nobody, *arguments(server, folder, script), "--at-once", 1)
    assert told["unanswered"] == {
        "answer_too_long": 1,
        "empty_reply": 1,
        "judge_rejected_request": 1,
        "refused": 1,
    }
    assert told["scored"] == 11
    assert sum(told["unscored"].values()) == 5
    figures = told["figures"]
    assert figures["unscored_by_reason"] == told["unscored"]
    assert figures["accuracy"] == 1.0


def test_a_fault_is_asked_again_when_the_run_goes_on(
    nobody: CommandLine, server: LlmServer, folder: Path
) -> None:
    script = ",".join(["looks", *["html"] * 9, "looks"])
    typed = [*arguments(server, folder, script), "--at-once", 1]
    told = probe(nobody, *typed)
    assert told["unanswered"] == {"not_a_completion": 1}
    asked = len(server.requests)
    told = probe(nobody, *typed)
    assert told["unanswered"] == {} and told["scored"] == 16
    assert len(server.requests) == asked + 1


@pytest.mark.slow
def test_a_model_that_times_out(nobody: CommandLine, server: LlmServer, folder: Path) -> None:
    script = ",".join(["looks", *["looks:2"] * 9, "looks"])
    told = probe(nobody, *arguments(server, folder, script), "--at-once", 1, "--timeout", 0.3)
    assert told["unanswered"] == {"timeout": 1}
    assert told["scored"] == 15


@pytest.mark.slow
def test_a_killed_run_goes_on_with_what_is_missing(
    nobody: CommandLine, server: LlmServer, folder: Path, tmp_path: Path
) -> None:
    machine = CommandLine(tmp_path / "nothing")
    typed = [*arguments(server, folder, "looks:0.3"), "--at-once", 2, "--json"]
    kept = folder.parent / "run" / "run.jsonl"
    for enough in (2, 6):
        process = machine.start(*typed)
        deadline = time.monotonic() + 200
        while not kept.exists() or kept.read_bytes().count(b'"answer"') < enough:
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait(30)
    with kept.open("ab") as torn:
        torn.write(b'{"type":"answer","key":"torn')
    told = probe(nobody, *typed[:-1])
    assert (told["answered"], told["scored"]) == (16, 16)
    asked = Counter(json.dumps(request["messages"]) for request in server.requests)
    once = Counter(number for number in asked.values())
    # Each text is in both files; only the two questions in flight at a kill may have been asked twice.
    assert sum(asked.values()) <= 16 + 2 * 2, once


def test_a_bad_target_is_one_line(nobody: CommandLine, server: LlmServer, folder: Path) -> None:
    bad = arguments(server, folder)
    for target, wanted in (
        ("ftp://x", "must be http(s)"),
        ("localhost:8000", "must be http(s)"),
        ("http://127.0.0.1:9/v1", "cannot be reached"),
        ("triton://127.0.0.1:9", "no answer"),
        (server.base_url.removesuffix("/v1"), "check the settings"),
    ):
        bad[3] = target
        assert wanted in nobody.complaint(*bad, "--timeout", 2)


def test_wrong_use_is_one_line(nobody: CommandLine, server: LlmServer, folder: Path, tmp_path: Path) -> None:
    probe(nobody, *arguments(server, folder), "--limit", 2)
    assert "is a run with model 'looks'" in nobody.complaint(*arguments(server, folder, "other"))
    typed = arguments(server, folder)
    assert "draws its own" in nobody.complaint(*typed[:6], "--images", tmp_path)
    assert "no suite 'popes'" in nobody.complaint(*typed[:1], "popes", *typed[2:])
    (tmp_path / "empty").mkdir()
    typed[7] = tmp_path / "empty"
    assert "POPE's question files" in nobody.complaint(*typed)
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "coco_pope_random.json").write_bytes((folder / "coco_pope_random.json").read_bytes())
    typed[7] = bare
    assert "name the folder of the images (--images)" in nobody.complaint(*typed)


def test_notes_first_then_unseen(nobody: CommandLine, server: LlmServer, folder: Path) -> None:
    benchmark = {
        "c": {
            "triplets": ["(tree, is, green)"],
            "all_object": ["tree"],
            "object": [],
            "instance": [{"question": "What is there?", "answer": "A tree.", "triplet": []}],
        }
    }
    (folder / "tri-he.json").write_text(json.dumps(benchmark))
    typed = arguments(server, folder, suite="tri-he")
    told = probe(nobody, *typed, "--strategy", "triplets-first", "--engine", "noop", "--judge", "noop")
    assert (told["strategy"], told["answered"]) == ("triplets-first", 1)
    first, second = server.requests
    assert isinstance(first["messages"][0]["content"], list)
    assert "There is a tree." in second["messages"][0]["content"], "notes are given, and no image"
    assert "is a run with strategy" in nobody.complaint(*typed)


def test_sequences_and_their_gate(nobody: CommandLine, server: LlmServer, folder: Path) -> None:
    def asked(thing: str, truth: str) -> dict[str, str]:
        return {"question": f"Is there a {thing}?", "truth": truth}

    lines = [
        {
            "sequence": "s1",
            "task": "objects",
            "images": ["a.png", "b"],
            "coarse": asked("dog", "yes"),
            "fine": [asked("cat", "yes"), asked("tree", "yes")],
        },
        {
            "sequence": "s2",
            "task": "objects",
            "images": ["c"],
            "coarse": asked("dog", "yes"),
            "fine": [asked("tree", "yes")],
        },
        {"sequence": "s3", "task": "objects", "images": ["gone"], "coarse": asked("dog", "yes"), "fine": []},
    ]
    write_lines(folder / "sequences.jsonl", lines)
    told = probe(nobody, *arguments(server, folder, suite="vlm2"))
    assert (told["questions"], told["left_out"]) == (5, {"no_image": 1})
    assert told["figures"]["score_sum"] == 0.5 and told["figures"]["sequences"] == 2
    assert len(server.requests[0]["messages"][0]["content"]) == 3, "two images and a question"


def test_valor_by_subset(nobody: CommandLine, server: LlmServer, folder: Path) -> None:
    write_lines(
        folder / "object_existence.jsonl",
        [
            {"image_id": "a", "gt_objects": ["dog", "ball"]},
            {"image_id": "b", "gt_objects": ["cat", "chair", "lamp"]},
        ],
    )
    told = probe(nobody, *arguments(server, folder, suite="valor"))
    (subset,) = told["figures"].values()
    assert subset["responses"] == 2
    assert subset["faithfulness"] == pytest.approx(3 / 4), "the table is not annotated"
    assert subset["coverage"] == pytest.approx(3 / 5)
    assert subset["coverage_interval"]["low"] < 3 / 5 < subset["coverage_interval"]["high"]


@pytest.fixture
def seeds(tmp_path: Path) -> Path:
    where = tmp_path / "seeds"
    for number in range(3):
        (where / "count").mkdir(parents=True, exist_ok=True)
        (where / "count" / f"{number}.png").write_bytes(seed_picture(number))
    return where


def test_chains_go_on_with_the_round_that_they_were_in(
    nobody: CommandLine, server: LlmServer, seeds: Path
) -> None:
    drawing = {"GROUNDWATCH_GENERATION__ENGINE": fakes.GENERATION}
    typed = [*arguments(server, seeds, suite="genception"), "--t", 4, "--at-once", 1]
    told = probe(nobody, *typed, **drawing)
    assert (told["answered"], told["scored"]) == (3, 3)
    assert len(server.requests) == 12
    run = seeds.parent / "run" / "run.jsonl"
    lines = run.read_bytes().splitlines(keepends=True)
    assert len(lines) == 1 + 12
    run.write_bytes(b"".join(lines[:6]) + lines[6][:50])
    again = probe(nobody, *typed, **drawing)
    assert len(server.requests) == 12 + 7, "five rounds were kept"
    assert again["figures"] == told["figures"]
    assert told["figures"]["gc_interval"]["n"] == 3 and told["figures"]["by_category"]["count"]["n"] == 3
    images = list((seeds.parent / "run" / "images").iterdir())
    assert all(len(image.name) == 64 for image in images)
    assert "needs an image generator" in nobody.complaint(*typed)


def test_a_chain_that_breaks_off_has_a_reason(nobody: CommandLine, server: LlmServer, seeds: Path) -> None:
    drawing = {"GROUNDWATCH_GENERATION__ENGINE": fakes.GENERATION}
    typed = [*arguments(server, seeds, "looks,looks,refusal,looks", suite="genception"), "--at-once", 1]
    told = probe(nobody, *typed, **drawing)
    assert (told["scored"], told["unanswered"], told["unscored"]) == (2, {"refused": 1}, {"refused": 1})


@pytest.mark.slow
def test_answers_go_into_a_running_system(
    up: Any, nobody: CommandLine, server: LlmServer, folder: Path
) -> None:
    before = up.json("audit")["recorded"]
    typed = [*arguments(server, folder), "--submit", up.gateway]
    told = probe(nobody, *typed)
    assert told["submitted"] == {"accepted": 16, "duplicates": 0, "refused": 0, "unanswered": 0}
    again = probe(nobody, *typed)
    assert again["submitted"]["duplicates"] == 16
    up.settled(before + 16)
    (model,) = [one for one in up.json("report")["models"] if one["model"] == "looks"]
    assert (model["protocol"], model["scored"]) == ("pope", 16)


def test_a_judge_that_is_named_for_all_leaves_labels_alone_and_one_for_a_protocol_does_not() -> None:
    chat = ChatSettings(base_url="http://judge/v1", model="m")
    settings = Settings(verification=StageSettings(engine="visual", llm=chat))
    for name in ("pope", "dash-b", "amber-existence"):
        protocol = registry.get(name)
        assert settings.verification.of(protocol).engine == "reference"
        asked = with_engines(settings, {"verification": "visual"}, name).verification
        assert asked.of(protocol).engine == "visual"
        others = {one for one, engine in asked.by_protocol().items() if engine == "visual"}
        assert others == {"faithscore", "vlm2", name}
