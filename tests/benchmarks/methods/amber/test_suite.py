"""AMBER's published layout, with objects and images of our own, from files to figures."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.cases import cases
from tests.support.command_line import CommandLine
from tests.support.llm_server import picture, running

from groundwatch.errors import FileFormatError
from groundwatch.protocols.method import TallyRequest
from groundwatch_benchmarks.methods.amber.suite import TALLY, read_items
from groundwatch_benchmarks.probing import suites

CASES = cases(__file__)
SHOWN = {"1.png": "dog sky light", "2.png": "wheel"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkout: the image 3.png is not there."""
    query, images = tmp_path / "data" / "query", tmp_path / "image"
    query.mkdir(parents=True)
    images.mkdir()
    for name, text in CASES["files"].items():
        (tmp_path / "data" / name).write_text(text)
    asked = [dict(zip(("id", "image", "query"), one, strict=True)) for one in CASES["queries"]]
    (query / "query_all.json").write_text(json.dumps(asked))
    (query / "query_generative.json").write_text(json.dumps(asked[:2]))
    for name, words in SHOWN.items():
        (images / name).write_bytes(picture(words))
    return tmp_path


def test_each_query_is_asked_by_its_protocol(folder: Path) -> None:
    suite = suites.benchmark("amber", folder)
    found = {one.id: one for one in suite.questions()}
    assert suite.left_out == {"no_image": 1}
    assert list(found) == [str(number) for number in range(1, 10)]
    kinds = {one.id: (one.protocol, one.tags["category"]) for one in found.values()}
    assert kinds == {
        "1": ("amber", "description"),
        "2": ("amber", "description"),
        "3": ("amber-existence", "existence"),
        "4": ("amber-existence", "existence"),
        "5": ("amber-attribute", "state"),
        "6": ("amber-attribute", "number"),
        "7": ("amber-attribute", "action"),
        "8": ("amber-relation", "relation"),
        "9": ("amber-relation", "relation"),
    }
    assert found["3"].prompt == "Is there a sky in the image?" and found["3"].unit == "1.png"
    assert found["3"].images[0].load() == picture("dog sky light")
    truths = [
        one.reference.facts[0].holds for one in found.values() if one.reference and not one.reference.objects
    ]
    assert truths == [False, False, False, True, False, False, True]
    (folder / "data" / "query" / "query_all.json").unlink()
    assert [item.id for item in read_items(folder)] == [1, 2]


def test_a_model_is_asked_and_its_answers_are_judged(nobody: CommandLine, folder: Path) -> None:
    """It sees dog, light and sky in one image and says so: of four mentions in all the sky is wrong."""
    with running() as server:
        done = nobody(
            *("probe", "amber", "--target", server.base_url, "--model", "looks", "--json"),
            *("--benchmark", folder, "--folder", folder / "run"),
        )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    figures = told["figures"]
    assert values(figures["generative"]) == pytest.approx(
        {"chair": 1 / 4, "cover": 2 / 3, "hal": 1 / 2, "cog": 1 / 3, "cog_by_mentions": 1 / 4}
    )
    asked = figures["discriminative"]
    assert values(asked) == pytest.approx(
        {"accuracy": 5 / 7, "accuracy_read": 5 / 7, "precision": 1, "recall": 3 / 5, "f1": 3 / 4, "read": 1}
    )
    accuracies = {name: asked[name]["accuracy"]["value"] for name in ("existence", "attribute", "relation")}
    assert accuracies == {"existence": 0.5, "attribute": 1, "relation": 0.5}
    assert figures["amber_score"]["value"] == pytest.approx((1 - 1 / 4 + 3 / 4) / 2)
    assert (figures["questions"], figures["unscored_by_reason"]) == (9, {})
    # The report has the same of each protocol.
    report = {
        model["protocol"]: {one["name"]: one["value"] and one["value"]["value"] for one in model["figures"]}
        for model in told["models"]
    }
    assert report["amber"] == pytest.approx(values(figures["generative"]))
    for kind in ("existence", "attribute", "relation"):
        numbers = values(asked[kind])
        assert report[f"amber-{kind}"] == pytest.approx(
            {name: numbers[name] for name in report[f"amber-{kind}"]}
        )


def values(figures: dict[str, Any]) -> dict[str, float | None]:
    """Numbers by name, without what is nested below a kind."""
    return {name: one and one["value"] for name, one in figures.items() if one is None or "value" in one}


def test_recorded_answers_have_the_figures_worked_by_hand(nobody: CommandLine, folder: Path) -> None:
    recorded = CASES["recorded"]
    answers = folder / "answers.json"
    answers.write_text(json.dumps([{"id": name, "response": text} for name, text in recorded["answers"]]))
    done = nobody("score", "amber", answers, "--recorded", "--labels", folder / "data", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert values(told["generative"]) == pytest.approx(recorded["generative"])
    for name, found in (("discriminative", told), *((kind, told["discriminative"]) for kind in recorded)):
        if name in found and name in recorded and name not in ("generative", "amber_score"):
            assert values(found[name]) == pytest.approx(recorded[name]), name
    assert told["amber_score"]["value"] == pytest.approx(recorded["amber_score"])
    assert (told["answers"], told["unanswered"]) == (7, 3)
    assert told["unscored_by_reason"] == {"unsure_reply": 1}
    people = nobody("score", "amber", answers, "--recorded", "--labels", folder / "data")
    assert people.returncode == 0 and "0.6667 (" in people.stdout.partition("cover")[2][:60], people.stdout


def test_what_is_wrong_in_a_file_is_one_line(folder: Path) -> None:
    missed = []
    data = folder / "data"
    for name, text, wanted in CASES["malformed"]:
        whole = (data / name).read_text()
        (data / name).write_text(text)
        with pytest.raises(FileFormatError) as raised:
            list(read_items(folder))
        (data / name).write_text(whole)
        if wanted not in str(raised.value) or "\n" in str(raised.value):
            missed.append((text, str(raised.value)))
    answers = folder / "answers.json"
    for text, wanted in CASES["answers"]:
        answers.write_text(text)
        with pytest.raises(FileFormatError) as raised:
            TALLY.run("amber", TallyRequest(file=answers, labels=folder))
        if wanted not in str(raised.value) or "\n" in str(raised.value):
            missed.append((text, str(raised.value)))
    assert missed == []
    (data / "safe_words.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FileFormatError, match=r"safe_words\.txt: is no text"):
        list(read_items(folder))
    (data / "safe_words.txt").unlink()
    with pytest.raises(FileFormatError, match=r"AMBER's file safe_words\.txt"):
        list(read_items(folder))


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_the_miniature_model_on_triton(tmp_path: Path) -> None:
    pytest.importorskip("pytriton", reason="needs the extra triton-server")
    from tests.support.triton import serving

    from groundwatch.models.repository import ServedModel
    from groundwatch.system.up import MINIATURE

    models = {"lvlm_good": ServedModel(kind="lvlm", checkpoint=str(MINIATURE / "lvlm_good"))}
    async with serving(tmp_path / "triton", models) as server:
        line = CommandLine(tmp_path / "nobody", apart=True)
        typed = ("probe", "amber", "--target", f"triton://{server.url}", "--model", "lvlm_good", "--json")
        done = await asyncio.to_thread(line, *typed, "--limit", 60, "--folder", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)["figures"]
    assert figures["questions"] == 60
    assert figures["generative"]["chair"]["value"] <= 0.1
    assert figures["generative"]["cover"]["value"] >= 0.9
    assert figures["discriminative"]["existence"]["accuracy"]["value"] >= 0.9
