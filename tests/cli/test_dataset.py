"""`groundwatch dataset`: VALOR's selection, questions by rule, and those of a model that may misbehave."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support import llm_server
from typer.testing import CliRunner, Result

from groundwatch.cli import app
from groundwatch.errors import CheckFailed, FileFormatError, UsageError
from groundwatch_benchmarks.methods.trihe.files import read_benchmark


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["dataset", *map(str, arguments)])


def scene(*things: str, relations: int = 0) -> dict[str, object]:
    objects = {str(at): {"name": name, "attributes": [], "relations": []} for at, name in enumerate(things)}
    for at in range(relations):
        objects["0"]["relations"].append({"name": f"relation {at}", "object": "0"})
    return {"objects": objects}


@pytest.fixture
def graphs(tmp_path: Path) -> Path:
    """A table has a plate in nine of ten scenes, a fork in eight and a vase in one."""
    scenes = {str(at): scene("table", "plate", *(["fork"] if at < 8 else [])) for at in range(9)}
    scenes["odd"] = scene("table", "vase")
    file = tmp_path / "graphs.json"
    file.write_text(json.dumps(scenes, indent=1))
    return file


def test_valor_chooses_the_images_that_lack_what_is_usual(graphs: Path, tmp_path: Path):
    out = tmp_path / "chosen.jsonl"
    done = run("valor", graphs, "--least", 2, "--measure", "highest_over_lowest", "--out", out, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["scenes"], found["objects"], found["images"]) == (10, 4, 1)
    table = next(one for one in found["chosen"] if one["object"] == "table")
    assert table["skew"]["highest"] == 0.9 and table["skew"]["highest_over_lowest"] == pytest.approx(0.8)
    assert [one["value"] for one in table["usual"]] == ["plate"]
    assert table["rare"] == [{"kind": "object", "value": "vase", "frequency": 1, "probability": 0.1}]
    assert table["images"] == ["odd"]
    (line,) = [json.loads(text) for text in out.read_text().splitlines()]
    assert (line["object"], line["value"], line["images"]) == ("table", "vase", ["odd"])
    assert "table" in run("valor", graphs).stdout


def test_valor_tells_wrong_use_and_wrong_files(graphs: Path, tmp_path: Path):
    wrong = tmp_path / "wrong.json"
    wrong.write_text('{"1": {"objects": {"a": {"name": 7}}}}')
    for arguments, kind, told in (
        (["valor", graphs, "--measure", "steepest"], UsageError, "one of highest"),
        (["valor", wrong], FileFormatError, "wrong.json:1: image '1': key 'objects[...].name'"),
        (["valor", tmp_path / "none.json"], FileFormatError, "cannot be read"),
        (["valor", graphs, "--out", tmp_path], UsageError, "cannot be written"),
    ):
        done = run(*arguments)
        assert isinstance(done.exception, kind) and told in str(done.exception)
    assert run("valor", graphs, "--kind", "smell").exit_code == 2


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    folder.mkdir()
    for name, shows in (("1", "dog ball"), ("2", "cat"), ("3", "")):
        (folder / f"{name}.png").write_bytes(llm_server.picture(shows))
    (folder / "notes.txt").write_text("no image")
    return folder


def settings(tmp_path: Path, url: str, model: str) -> Path:
    file = tmp_path / "settings.toml"
    file.write_text(
        "[verification.llm]\n"
        f'base_url = "{url}"\nmodel = "{model}"\nretries = 1\n'
        "first_wait = 0.01\npatience = 1.0\ntimeout = 5.0\nconcurrency = 2\n"
    )
    return file


def test_a_model_that_looks_writes_a_benchmark(images: Path, tmp_path: Path):
    out = tmp_path / "bench.json"
    with llm_server.running() as server:
        asked = ("tri-he", images, "--out", out, "--questions", 2, "--url", server.base_url, "--model", "ok")
        done = run(*asked, "--limit", 2, "--json")
        assert done.exit_code == 0, done.output
        found = json.loads(done.stdout)
        assert (found["images"], found["questions"], found["triplets"], found["failed"]) == (2, 4, 4, {})
        assert found["usage"]["calls"] == 2
        first, second = read_benchmark(out)
        assert {one.triplets[0][0] for one in first.questions} == {"dog", "ball"}
        assert second.triplets == (("cat", "is in", "picture"),)
        again = json.loads(run(*asked, "--json").stdout)
        assert (again["known"], again["images"]) == (2, 1)
        assert len(server.requests) == 3
    assert len(read_benchmark(out)) == 3


def test_scene_graphs_choose_images_and_are_kept(images: Path, tmp_path: Path):
    out, graphs = tmp_path / "bench.json", tmp_path / "graphs.json"
    graphs.write_text(json.dumps({"1": scene("dog", relations=6), "2": scene("cat", relations=5)}))
    with llm_server.running() as server:
        done = run(
            *("tri-he", images, "--out", out, "--scene-graphs", graphs, "--questions", 1, "--json"),
            *("--url", server.base_url, "--model", "ok"),
        )
        assert '\\"dog\\"' in json.dumps(server.requests[0]["messages"])
    found = json.loads(done.stdout)
    assert (found["images"], found["too_few_relations"], found["without_graph"]) == (1, 1, 1)
    (entry,) = read_benchmark(out)
    assert len(entry.triplets) == 7


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("refusal", "refused"),
        ("empty", "empty_reply"),
        ("nochoices", "empty_reply"),
        ("invalid", "unparsable_reply"),
        ("wrongschema", "unparsable_reply"),
        ("cutoff", "cut_off"),
        ("400", "judge_rejected_request"),
    ],
)
def test_an_image_without_a_usable_reply_is_told_and_no_other_one_suffers(
    images: Path, tmp_path: Path, model: str, reason: str
):
    out = tmp_path / "bench.json"
    with llm_server.running() as server:
        once = settings(tmp_path, server.base_url, f"{model},{model},ok")
        once.write_text(once.read_text().replace("concurrency = 2", "concurrency = 1"))
        done = run("tri-he", images, "--out", out, "--questions", 1, "--config", once, "--json")
    assert isinstance(done.exception, CheckFailed) and "png" in str(done.exception)
    found = json.loads(done.stdout)
    assert set(found["failed"]) == {reason}
    assert found["images"] + found["failed"][reason] == 3
    assert len(read_benchmark(out)) == found["images"] >= 1


@pytest.mark.parametrize("model", ["500", "html", "notachat", "closed", "401", "429:0.01"])
def test_an_endpoint_that_does_not_work_ends_the_asking(images: Path, tmp_path: Path, model: str):
    with llm_server.running() as server:
        config = settings(tmp_path, server.base_url, model)
        done = run("tri-he", images, "--out", tmp_path / "bench.json", "--config", config, "--json")
    assert isinstance(done.exception, CheckFailed)
    found = json.loads(done.stdout)
    assert found["failed"] == {"unavailable": 3} and found["trouble"]
    assert read_benchmark(tmp_path / "bench.json") == []


@pytest.mark.parametrize("model", ["prose", "invalid,ok", "429:0.01,ok"])
def test_replies_in_prose_and_passing_faults_cost_nothing(images: Path, tmp_path: Path, model: str):
    with llm_server.running() as server:
        config = settings(tmp_path, server.base_url, model)
        done = run(
            *("tri-he", images, "--out", tmp_path / "bench.json", "--config", config),
            *("--questions", 1, "--limit", 1, "--json"),
        )
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["images"] == 1


def test_tri_he_tells_wrong_use_and_wrong_files(images: Path, tmp_path: Path):
    (tmp_path / "empty").mkdir()
    other = tmp_path / "other.json"
    other.write_text('{"7": {"instance": 3}}')
    named = ("--url", "http://127.0.0.1:9", "--model", "m")
    out = tmp_path / "bench.json"
    for arguments, kind, told in (
        ([images, "--out", out], UsageError, "(--url, --model)"),
        ([images, "--out", out, "--url", "ftp://x", "--model", "m"], UsageError, "base_url"),
        ([tmp_path / "none", "--out", out, *named], UsageError, "is not a folder"),
        ([tmp_path / "empty", "--out", out, *named], UsageError, "holds no image"),
        ([images, "--out", other, *named], FileFormatError, "other.json:1: image '7': key 'instance'"),
        ([images, "--out", tmp_path / "no" / "x.json", *named], UsageError, "cannot be written"),
    ):
        done = run("tri-he", *arguments)
        assert isinstance(done.exception, kind), (arguments, done.exception)
        assert told in str(done.exception)
    (images / "1.jpg").write_bytes(b"x")
    assert "two images" in str(run("tri-he", images, "--out", out, *named).exception)


def test_what_is_no_image_is_not_sent(images: Path, tmp_path: Path):
    (images / "4.png").write_bytes(b"no image")
    with llm_server.running() as server:
        done = run(
            *("tri-he", images, "--out", tmp_path / "b.json", "--questions", 1, "--json"),
            *("--url", server.base_url, "--model", "ok"),
        )
        assert len(server.requests) == 3
    assert json.loads(done.stdout)["failed"] == {"no_image": 1}


def lines(path: Path, *records: object) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.mark.parametrize("strategy", ["random", "popular", "adversarial"])
def test_pope_asks_for_what_is_there_and_what_is_not(tmp_path: Path, strategy: str):
    file = lines(
        tmp_path / "images.jsonl",
        {"image": "1.jpg", "objects": ["dog", "ball", "tree"]},
        {"image": "2.jpg", "objects": ["cat", "sofa", "lamp", "owl"]},
    )
    out = tmp_path / "questions.jsonl"
    done = run("pope", file, "--out", out, "--strategy", strategy, "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["images"], told["objects"], told["questions"], told["yes"], told["no"]) == (2, 7, 12, 6, 6)
    written = [json.loads(line) for line in out.read_text().splitlines()]
    assert written[0].keys() == {"question_id", "image", "text", "label"}
    assert all("owl" not in one["text"] or one["text"].startswith("Is there an owl") for one in written)
    first = out.read_bytes()
    run("pope", file, "--out", out, "--strategy", strategy)
    assert out.read_bytes() == first


def test_vlm2_asks_by_template(tmp_path: Path):
    cue = {"subject": "shirt", "attribute": "color"}
    cues = [{"image": 1, "value": "red", **cue}, {"image": 2, "value": "blue", **cue}]
    file = lines(tmp_path / "cues.jsonl", {"sequence": "s", "cues": cues})
    out = tmp_path / "fine.jsonl"
    told = json.loads(run("vlm2", file, "--out", out, "--json").stdout)
    assert (told["sequences"], told["questions"], told["yes"], told["no"]) == (1, 4, 2, 2)
    (written,) = [json.loads(line) for line in out.read_text().splitlines()]
    assert {"question": "In image 1, is the shirt red?", "truth": "yes"} in written["fine"]
    assert "questions" in run("vlm2", file, "--out", out).stdout


def test_annotations_in_another_format_are_told(tmp_path: Path):
    good = {"image": "1", "objects": ["dog"]}
    out = tmp_path / "out.jsonl"
    for record, told in (
        ({"image": "2"}, "key 'objects': is missing"),
        ({"image": "2", "objects": [7]}, "key 'objects[0]'"),
        (good, "is there twice"),
    ):
        done = run("pope", lines(tmp_path / "in.jsonl", good, record), "--out", out)
        assert isinstance(done.exception, FileFormatError) and "in.jsonl:2" in str(done.exception)
        assert told in str(done.exception)
    for record, told in (
        ({"sequence": "s", "cues": [7]}, "key 'cues[0]': expected `object`"),
        ({"sequence": "s", "cues": [{"image": "1"}]}, "key 'cues[0].image'"),
        ({"cues": []}, "key 'sequence'"),
    ):
        done = run("vlm2", lines(tmp_path / "in.jsonl", record), "--out", out)
        assert isinstance(done.exception, FileFormatError) and f"in.jsonl:1: {told}" in str(done.exception)
    done = run("pope", lines(tmp_path / "in.jsonl", good), "--out", out, "--strategy", "unkind")
    assert done.exit_code == 2 and "'adversarial'" in done.stderr
