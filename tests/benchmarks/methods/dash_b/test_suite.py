"""DASH-B in its published layout, with objects and images of our own."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.cases import cases
from tests.support.command_line import CommandLine
from tests.support.llm_server import picture, running

from groundwatch.errors import FileFormatError
from groundwatch_benchmarks.methods.dash_b.suite import RATES, rates
from groundwatch_benchmarks.probing import suites

CASES = cases(__file__)
FILES = {"neg": {"lamp": {"1.png": "dog"}, "dog": {"2.png": "lamp"}}, "pos": {"lamp": {"1.png": "lamp dog"}}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The image 1.png shows no lamp among the negatives, and one among the positives; 3.png is not there."""
    for part, objects in FILES.items():
        listed: dict[str, list[str]] = {}
        for name, images in objects.items():
            place = tmp_path / "images" / part / "coco" / name
            place.mkdir(parents=True)
            for image, words in images.items():
                (place / image).write_bytes(picture(words))
            listed[name] = [*images, "3.png"]
        path = tmp_path / "images" / f"dash_benchmark_{part}.json"
        path.write_text(json.dumps({"coco": listed}))
    return tmp_path


def test_each_question_has_the_image_of_its_own_folder(folder: Path) -> None:
    suite = suites.benchmark("dash-b", folder)
    found = {one.id: one for one in suite.questions()}
    assert list(found) == ["neg/coco/lamp/1.png", "neg/coco/dog/2.png", "pos/coco/lamp/1.png"]
    assert suite.left_out == {"no_image": 3}
    one = found["pos/coco/lamp/1.png"]
    assert one.prompt == "Is there a lamp in the image?"
    assert one.images[0].load() == picture("lamp dog")
    assert found["neg/coco/lamp/1.png"].images[0].load() == picture("dog")
    truths = [one.reference.facts[0].holds for one in found.values() if one.reference]
    assert truths == [False, False, True]


def test_what_is_wrong_in_a_file_is_one_line(folder: Path) -> None:
    path = folder / "images" / "dash_benchmark_neg.json"
    missed = []
    for text, wanted in CASES["malformed"]:
        path.write_text(text)
        with pytest.raises(FileFormatError) as raised:
            list(suites.benchmark("dash-b", folder).questions())
        if wanted not in str(raised.value) or "\n" in str(raised.value):
            missed.append((text, str(raised.value)))
    assert missed == []
    path.unlink()
    with pytest.raises(FileFormatError, match=r"DASH-B's file dash_benchmark_neg\.json"):
        list(suites.benchmark("dash-b", folder).questions())


def test_the_figures_by_hand() -> None:
    missed = []
    for counts, expected in CASES["rates"]:
        found = rates(counts)
        if found != pytest.approx(dict(zip(RATES, expected, strict=True))):
            missed.append((counts, found))
    assert missed == []


@given(
    st.dictionaries(st.sampled_from(["tp", "fp", "tn", "fn", "unread_yes", "unread_no"]), st.integers(0, 9))
)
def test_a_refusal_never_pays(counts: dict[str, int]) -> None:
    found = rates(counts)
    worse: dict[str, Any] = rates({**counts, "unread_no": counts.get("unread_no", 0) + 1})
    for name in ("accuracy", "tnr"):
        assert found[name] is None or worse[name] <= found[name]
    values = (found["harmonic_mean"], found["tpr"], found["tnr"])
    if None not in values:
        assert min(values[1:]) - 1e-9 <= values[0] <= max(values[1:]) + 1e-9


def test_a_model_is_asked_and_its_unread_reply_is_wrong(nobody: CommandLine, folder: Path) -> None:
    with running() as server:
        for model, read, accuracy in (("looks", 1.0, 1.0), ("echo:Ja doch,looks", 2 / 3, 2 / 3)):
            done = nobody(
                *("probe", "dash-b", "--target", server.base_url, "--model", model, "--at-once", 1, "--json"),
                *("--benchmark", folder, "--folder", folder / f"run-{read:.1f}"),
            )
            assert done.returncode == 0, done.stderr
            figures = json.loads(done.stdout)["figures"]
            assert (figures["read"], figures["accuracy"]) == (pytest.approx(read), pytest.approx(accuracy))
            assert (figures["questions"], figures["intervals"]["tnr"]["n"]) == (3, 3)


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_the_miniature_model_on_triton(tmp_path: Path) -> None:
    """Images of the world in the published layout, asked by a process of its own."""
    pytest.importorskip("pytriton", reason="needs the extra triton-server")
    from tests.support.triton import serving

    from groundwatch.models.repository import ServedModel
    from groundwatch.system.up import MINIATURE

    root = tmp_path / "benchmark" / "images"
    listed: dict[str, dict[str, list[str]]] = {"neg": {}, "pos": {}}
    for at, one in enumerate(suites.world("dash-b", 20).questions()):
        name, holds = one.tags["category"], bool(one.reference and one.reference.facts[0].holds)
        part = "pos" if holds else "neg"
        place = root / part / "world" / name
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{at}.png").write_bytes(one.images[0].load())
        listed[part].setdefault(name, []).append(f"{at}.png")
    for part, objects in listed.items():
        (root / f"dash_benchmark_{part}.json").write_text(json.dumps({"world": objects}))
    models = {"lvlm_good": ServedModel(kind="lvlm", checkpoint=str(MINIATURE / "lvlm_good"))}
    async with serving(tmp_path / "triton", models) as server:
        line = CommandLine(tmp_path / "nobody", apart=True)
        typed = ("probe", "dash-b", "--target", f"triton://{server.url}", "--model", "lvlm_good", "--json")
        kept = ("--benchmark", tmp_path / "benchmark", "--folder", tmp_path / "run")
        done = await asyncio.to_thread(line, *typed, *kept)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)["figures"]
    assert (figures["questions"], figures["read"]) == (40, 1.0)
    assert figures["accuracy"] >= 0.9
    assert figures["accuracy"] == pytest.approx((figures["tpr"] + figures["tnr"]) / 2)
