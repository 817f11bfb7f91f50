"""FaithScore's questions about annotated images, in the files that COCO, LLaVA and its authors publish."""

from __future__ import annotations

import asyncio
import json
from itertools import islice
from pathlib import Path

import pytest
from tests.support.cases import cases
from tests.support.command_line import CommandLine
from tests.support.llm_server import picture, running
from tools.miniature.answers import answer

from groundwatch.errors import FileFormatError, UsageError
from groundwatch.events import Decision, KnownFact, Reference
from groundwatch.miniature.language import holds, read
from groundwatch.miniature.world import scenes
from groundwatch.protocols.method import Question
from groundwatch.verification.engines.reference import Rules, knowledge, rule
from groundwatch_benchmarks.probing import suites
from groundwatch_benchmarks.worlds import MANNERS

CASES = cases(__file__)
NAME = "COCO_val2014_000000000007.png"
INSTANCES = {
    "images": [{"id": 7, "file_name": NAME}, {"id": 8, "file_name": "gone.jpg"}],
    "annotations": [{"image_id": 7, "category_id": 18}, {"image_id": 7, "category_id": 18}],
    "categories": [{"id": 18, "name": "dog"}],
}
CAPTIONS = {"images": INSTANCES["images"], "annotations": [{"image_id": 7, "caption": "A dog \n sits."}]}
PEOPLE = {"id": "000000000007", "answer": "", "stage 1": {}, "stage 2": {"There is a cat.": 0}}
ASKED = [
    {"question_id": at, "image": "000000000007.jpg", "text": text, "category": kind}
    for at, (kind, text) in enumerate((("conv", "What is it?"), ("complex", "Why does it sit?")))
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / NAME).write_bytes(picture("dog cat"))
    write(tmp_path, "instances_val2014.json", INSTANCES)
    return tmp_path


def write(folder: Path, name: str, *lines: object) -> None:
    (folder / name).write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def asked(folder: Path) -> list[Question]:
    return list(suites.benchmark("faithscore", folder).questions())


def test_images_that_only_have_annotations_are_asked_our_questions(folder: Path) -> None:
    suite = suites.benchmark("faithscore", folder)
    found = list(suite.questions())
    tags = [(one.tags["dataset"], one.tags["task"]) for one in found]
    llava = [("llava-1k", task) for task in ("conversation", "detailed-description", "complex-question")]
    assert tags == [*llava, ("mscoco-cap", "caption")]
    assert {one.unit for one in found} == {"000000000007"} and len({one.id for one in found}) == 4
    assert found[0].images[0].load() == picture("dog cat")
    assert {one.reference for one in found} == {Reference(objects=("dog",))}
    assert suite.left_out == {"no_image": 4}, "of the image that is not there"


def test_what_several_files_say_of_an_image_comes_together(folder: Path) -> None:
    write(folder, "captions_val2014.json", CAPTIONS)
    write(folder, "annotation.jsonl", PEOPLE, PEOPLE)
    write(folder, "qa90_questions.jsonl", *ASKED)
    found = asked(folder)
    assert [one.prompt for one in found[:2]] == ["What is it?", "Why does it sit?"]
    assert [one.tags["task"] for one in found] == ["conversation", "complex-question", "caption"]
    facts = (KnownFact(text="There is a cat.", holds=False), KnownFact(text="A dog sits.", holds=True))
    assert {one.reference for one in found} == {Reference(facts=facts, objects=("dog",))}


def test_what_is_wrong_in_a_file_is_one_line(folder: Path) -> None:
    missed = []
    for name, text, wanted in CASES["malformed"]:
        (folder / name).write_text(text)
        with pytest.raises(FileFormatError) as raised:
            asked(folder)
        if wanted not in str(raised.value) or name not in str(raised.value) or "\n" in str(raised.value):
            missed.append((name, text, str(raised.value)))
        (folder / name).unlink()
    assert missed == []
    (folder / "instances_val2014.json").unlink()
    with pytest.raises(UsageError, match="holds no annotated images"):
        asked(folder)


def test_the_world_knows_what_is_true_of_its_scenes() -> None:
    """Of right answers, and of those to the scene before: what the reference judge decides is so."""
    shown = list(islice(scenes(suites.SEED), 25))
    references = {one.unit: one.reference for one in suites.world("faithscore", 25).questions()}
    wrong, decided = [], 0
    for at, scene in enumerate(shown):
        known = references[f"scene-{at}"]
        assert known is not None
        for told in (scene, shown[at - 1]):
            for text in read(" ".join(answer(told, manner) for manner in MANNERS.values())).facts:
                if " than " in text:
                    continue
                found = rule(text, Rules(knowledge(known))).decision
                decided += found is not Decision.UNDECIDED
                true = Decision.SUPPORTED if holds(scene, text) else Decision.REFUTED
                if found not in (true, Decision.UNDECIDED):
                    wrong.append((at, text, found.value))
    assert wrong == [] and decided > 1000


@pytest.mark.slow
def test_a_model_is_asked_and_judged(nobody: CommandLine, folder: Path) -> None:
    """It names the cat in the image, which COCO's annotation has not and people say is not there."""
    pytest.importorskip("sentence_transformers")
    write(folder, "annotation.jsonl", PEOPLE)
    with running() as server:
        llm = "GROUNDWATCH_VERIFICATION__LLM__"
        env = {f"{llm}BASE_URL": server.base_url, f"{llm}MODEL": "ok"}
        for judge, score in (("reference", 0.5), ("visual", 1.0)):
            done = nobody(
                *("probe", "faithscore", "--target", server.base_url, "--model", "looks", "--json"),
                *("--benchmark", folder, "--folder", folder / "run", "--judge", judge),
                **env,
            )
            assert done.returncode == 0, done.stderr
            figures = json.loads(done.stdout)["figures"]
            for column in ("conversation", "detailed-description", "complex-question", "overall"):
                assert figures[column]["faithscore"]["value"] == pytest.approx(score), column
                assert figures[column]["sentence_level"]["value"] == pytest.approx(score), column
            assert (figures["overall"]["answers"], figures["overall"]["faithscore"]["n"]) == (3, 1)
            assert figures["mscoco-cap"]["answer_words"] == 8.0
            assert (figures["questions"], figures["unscored"]) == (4, 0)


def stated_refuted(run: Path, judge: str) -> float:
    """The share of refuted facts among those that are decided and no guess."""
    lines = map(json.loads, run.read_text().splitlines())
    outcomes = [line["outcome"] for line in lines if line["type"] == "outcome"]
    decisions = [
        claim["decision"]
        for outcome in outcomes
        if outcome["judges"]["verification"]["engine"] == judge
        for claim in outcome["claims"]
        if not claim.get("hedged")
    ]
    return decisions.count("refuted") / (decisions.count("refuted") + decisions.count("supported"))


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_the_miniature_models_on_triton(tmp_path: Path) -> None:
    """The better model has the better score, by the judge that looks and by the one that knows the scenes."""
    pytest.importorskip("pytriton", reason="needs the extra triton-server")
    from tests.support.triton import serving

    from groundwatch.models.repository import ServedModel
    from groundwatch.system.up import MINIATURE

    models = {
        name: ServedModel(kind="verifier" if name == "verifier" else "lvlm", checkpoint=str(MINIATURE / name))
        for name in ("lvlm_good", "lvlm_poor", "verifier")
    }
    scores, refuted = {}, {}
    async with serving(tmp_path / "triton", models) as server:
        line = CommandLine(tmp_path / "nobody", apart=True, GROUNDWATCH_TRITON__URL=server.url)
        for model in ("lvlm_good", "lvlm_poor"):
            typed = ("probe", "faithscore", "--target", f"triton://{server.url}", "--model", model, "--json")
            for judge in ("triton", "reference"):
                kept = ("--folder", tmp_path / model, "--limit", 60, "--judge", judge)
                done = await asyncio.to_thread(line, *typed, *kept)
                assert done.returncode == 0, done.stderr
                told = json.loads(done.stdout)
                figures = told["figures"]
                assert figures["unscored"] == 0, (model, judge, told["unscored"])
                scores[model, judge] = figures["overall"]["faithscore"]["value"]
                refuted[model, judge] = stated_refuted(tmp_path / model / "run.jsonl", judge)
    # What they guess of a picture ("This may be a page from a book"), the list of its scene refutes.
    for judge in ("triton", "reference"):
        assert scores["lvlm_good", judge] > scores["lvlm_poor", judge] + 0.2, scores
        assert refuted["lvlm_good", judge] <= 0.1 < refuted["lvlm_poor", judge] - 0.2, refuted
