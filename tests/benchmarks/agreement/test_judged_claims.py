"""People's labels beside any verifier: from the terminal, by a server that looks at the images."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.annotation.conftest import Publish, outcome, publish
from tests.conftest import BusFactory
from tests.runtime.conftest import record
from tests.support.command_line import CommandLine
from tests.support.llm_server import LlmServer, picture, running

from groundwatch.events import Decision, FactOpinion, Label, ResponseRecorded, SubSentence
from groundwatch.reviews.files import lines_of
from groundwatch.reviews.opinions import opinion_on

__all__ = ["publish"]

TRUE, FALSE = "non-hallucination", "hallucination"
SEEN = {"a": "dog ball", "b": "cat"}
SAID = {
    "a": [("There is a dog.", TRUE), ("There is a cat.", FALSE), ("There is a ball.", FALSE)],
    "b": [("There is a cat.", TRUE), ("There is a dog.", FALSE)],
}


@pytest.fixture
def server() -> Iterator[LlmServer]:
    with running() as started:
        yield started


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    folder.mkdir()
    for name, words in SEEN.items():
        (folder / f"{name}.png").write_bytes(picture(words))
    return folder


def asking(server: LlmServer, engine: str = "visual", model: str = "ok") -> dict[str, str]:
    llm = "GROUNDWATCH_VERIFICATION__LLM__"
    named = {"GROUNDWATCH_VERIFICATION__ENGINE": engine, f"{llm}MODEL": model}
    return {**named, f"{llm}BASE_URL": server.base_url}


def labelled(folder: Path, *gone: str) -> Path:
    items = [
        {
            "image_path": f"/elsewhere/{name}.png",
            "task_type": "vqa" if name == "b" else "image-caption",
            "response": " ".join(claim for claim, _ in SAID.get(name, SAID["a"])),
            "segments": [
                {"segment": claim, "claims": [{"claim": claim, "claim_label": label}]}
                for claim, label in SAID.get(name, SAID["a"])
            ],
        }
        for name in (*SEEN, *gone)
    ]
    path = folder / "val.json"
    path.write_text(json.dumps(items))
    return path


def test_each_claim_is_judged_by_its_image(
    nobody: CommandLine, server: LlmServer, images: Path, tmp_path: Path
) -> None:
    """The judge sees the ball that people call hallucinated: one of five is wrong."""
    typed = ("validate", "claims", labelled(tmp_path), "--images", images)
    done = nobody(*typed, "--json", **asking(server))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["claims"], found["undecided"], found["answers"]) == (5, 0, 2)
    assert found["accuracy"]["value"] == pytest.approx(4 / 5)
    assert found["hallucination.precision"]["value"] == 1.0
    assert found["hallucination.recall"]["value"] == pytest.approx(2 / 3)
    assert found["non_hallucination.precision"]["value"] == pytest.approx(2 / 3)
    # Six pairs; the ball ties with a claim that holds, twice.
    assert found["auc"]["value"] == pytest.approx((4 + 2 * 0.5) / 6)
    assert found["segments"]["claims"] == 5
    assert set(found["by_task"]) == {"image-caption", "vqa"}
    assert found["by_task"]["vqa"]["accuracy"]["value"] == 1.0
    assert "reference" not in json.dumps(server.requests), "nobody tells the judge what people say"
    assert "precision" in nobody(*typed, **asking(server)).stdout


def test_what_cannot_be_judged_is_not_covered(
    nobody: CommandLine, server: LlmServer, images: Path, tmp_path: Path
) -> None:
    typed = ("validate", "claims", labelled(tmp_path, "gone"), "--images", images, "--json")
    found = json.loads(nobody(*typed, **asking(server, "llm")).stdout)
    assert (found["claims"], found["undecided"]) == (8, 3)
    assert found["coverage"]["value"] == pytest.approx(5 / 8)
    assert found["auc"] is None, "this judge tells no probability"


def test_wrong_use_is_one_line(nobody: CommandLine, server: LlmServer, images: Path, tmp_path: Path) -> None:
    file = labelled(tmp_path)
    env = asking(server)
    for typed, wanted in (
        ((), "visual looks at images: name their folder (--images)"),
        (("--judge", "reference"), "name a judge that looks at it (--judge)"),
        (("--judge", "psychic"), "psychic cannot judge faithscore"),
        (("--images", images, "--protocol", "chair"), "chair has no claims to verify"),
        (("--images", tmp_path / "none"), "is not a folder"),
    ):
        assert wanted in nobody.complaint("validate", "claims", file, *typed, **env)
    file.write_text('[{"image_path": "a.png"}]')
    assert "key 'segments'" in nobody.complaint("validate", "claims", file, "--images", images, **env)


def annotation(folder: Path) -> Path:
    lines: list[dict[str, Any]] = [
        {
            "id": name,
            "answer": " ".join(claim for claim, _ in SAID[name]),
            "stage 1": {claim: 1 for claim, _ in SAID[name]},
            "stage 2": {claim: int(label == TRUE) for claim, label in SAID[name]},
        }
        for name in (*SEEN, "a")
    ]
    path = folder / "annotation.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.mark.slow
def test_the_tables_of_verifiers(
    nobody: CommandLine, server: LlmServer, images: Path, tmp_path: Path
) -> None:
    pytest.importorskip("sentence_transformers")
    typed = (
        "validate",
        "faithscore",
        annotation(tmp_path),
        "--images",
        images,
        "--judge",
        "visual",
        "--json",
    )
    done = nobody(*typed, **asking(server))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    # Of eight facts the two balls are judged otherwise than people do.
    assert found["table_2"]["accuracy"]["value"] == pytest.approx(6 / 8)
    assert (found["table_2"]["claims"], found["compared"]) == (8, 3)
    assert set(found["table_9"]) == set(found["table_8"]) == {"pearson", "spearman", "kendall"}
    # People: 1/3, 1/2, 1/3; the judge: 2/3, 1/2, 2/3.
    assert found["table_9"]["pearson"]["value"] == pytest.approx(-1.0)
    by_reference = json.loads(nobody("validate", "faithscore", annotation(tmp_path), "--json").stdout)
    assert "table_2" not in by_reference, "the reference judge would be judged by itself"
    assert by_reference["table_8"]["pearson"]["value"] == pytest.approx(1.0)


@pytest.mark.slow
async def test_what_people_say_of_live_answers_is_held_against_a_verifier(
    nobody: CommandLine,
    server: LlmServer,
    images: Path,
    tmp_path: Path,
    bus_factory: BusFactory,
    publish: Publish,
) -> None:
    """As `review export --format faithscore` writes it, by the images' digests, under any names."""
    pytest.importorskip("sentence_transformers")
    bus = await bus_factory("annotation")
    opinions = []
    for name, said in SAID.items():
        answer = " ".join(claim for claim, _ in said)
        seen = hashlib.sha256((images / f"{name}.png").read_bytes()).hexdigest()
        units = tuple(
            SubSentence(start=at, end=at + len(claim), text=claim, label=Label.DESCRIPTIVE)
            for claim, _ in said
            for at in [answer.index(claim)]
        )
        scored = outcome(name, units=units)
        await record(bus, ResponseRecorded(id=name, model="lvlm", answer=answer, images=(seen,)))
        await publish([scored])
        facts = tuple(
            FactOpinion(
                text=claim,
                category="entity",
                decision=Decision.SUPPORTED if label == TRUE else Decision.REFUTED,
            )
            for claim, label in said
        )
        labels = tuple(unit.label for unit in units)
        opinions.append(opinion_on(scored, reviewer="ann", labels=labels, facts=facts, given_at=1.0))
    file = tmp_path / "exported.jsonl"
    file.write_text(
        "".join([json.dumps(line) + "\n" async for line in lines_of(bus, opinions, "faithscore")])
    )
    typed = ("validate", "faithscore", file, "--images", images, "--judge", "visual", "--json")
    done = await asyncio.to_thread(nobody, *typed, **asking(server))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    # Of five facts the one ball is judged otherwise than people do.
    assert found["table_2"]["accuracy"]["value"] == pytest.approx(4 / 5)
    assert (found["table_2"]["claims"], found["answers"]) == (5, 2)
    assert found["recogniser"]["accuracy"] == 1.0
