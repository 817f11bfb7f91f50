"""The repository that Triton reads: what is served, in which version."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import groundwatch
from groundwatch.errors import FileFormatError, UsageError
from groundwatch.models.repository import (
    KINDS,
    TEMPLATES,
    ServedModel,
    found_in,
    read_manifest,
    write_model,
    write_repository,
)

ROOT = Path(groundwatch.__file__).parents[2]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoints" / "lvlm_good"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "tokenizer.json").write_text("{}")
    return folder


def test_every_kind_has_a_template():
    assert {path.name for path in TEMPLATES.iterdir()} == {*KINDS, "llm"}
    for kind in KINDS:
        assert "backend" in (TEMPLATES / kind / "config.pbtxt").read_text()
        assert (TEMPLATES / kind / "1" / "model.py").is_file()
    json.loads((TEMPLATES / "llm" / "1" / "model.json").read_text())


def test_templates_are_triton_configurations():
    text_format = pytest.importorskip("google.protobuf.text_format")
    from tritonclient.grpc import model_config_pb2

    for path in TEMPLATES.glob("*/config.pbtxt"):
        config = text_format.Parse(path.read_text(), model_config_pb2.ModelConfig())
        assert config.backend in ("python", "vllm")


def test_a_model_is_written_with_its_parameters(tmp_path, checkpoint):
    from google.protobuf import text_format
    from tritonclient.grpc import model_config_pb2

    hard = 'say "yes"\nor \\no: {statement}'
    model = ServedModel(
        kind="verifier", checkpoint=str(checkpoint), parameters={"prompt_template": hard, "max_rows": 7}
    )
    version = write_model(tmp_path / "repository", "judge", model)
    folder = tmp_path / "repository" / "judge"
    config = text_format.Parse((folder / "config.pbtxt").read_text(), model_config_pb2.ModelConfig())
    assert config.parameters["PROMPT_TEMPLATE"].string_value == hard
    assert config.parameters["MAX_ROWS"].string_value == "7"
    assert config.parameters["MODEL_ID"].string_value == str(checkpoint)
    assert len(config.parameters["WEIGHTS_SHA256"].string_value) == 64
    assert list(config.version_policy.specific.versions) == [version]
    assert [path.name for path in folder.iterdir() if path.is_dir()] == [str(version)]


def test_another_checkpoint_is_another_version(tmp_path, checkpoint):
    model = ServedModel(kind="lvlm", checkpoint=str(checkpoint))
    first = write_model(tmp_path / "r", "lvlm", model)
    assert write_model(tmp_path / "r", "lvlm", model) == first
    other = write_model(tmp_path / "r", "lvlm", ServedModel(kind="lvlm", checkpoint="a/b"))
    (checkpoint / "config.json").write_text('{"changed": 1}')
    changed = write_model(tmp_path / "r", "lvlm", model)
    assert len({first, other, changed}) == 3


def test_what_is_no_longer_served_leaves_the_repository(tmp_path, checkpoint):
    model = ServedModel(kind="lvlm", checkpoint=str(checkpoint))
    write_repository(tmp_path / "r", {"one": model, "two": model})
    write_repository(tmp_path / "r", {"two": model})
    assert [path.name for path in (tmp_path / "r").iterdir()] == ["two"]


@pytest.mark.parametrize(
    ("name", "model", "says"),
    [
        ("../up", ServedModel(kind="lvlm", checkpoint="a/b"), "letters"),
        ("x", ServedModel(kind="lmv", checkpoint="a/b"), "no kind 'lmv'"),
        ("x", ServedModel(kind="lvlm", checkpoint="/there/is/none"), "no checkpoint"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, name, model, says):
    with pytest.raises(UsageError, match=says):
        write_model(tmp_path, name, model)


def test_a_manifest_names_models(tmp_path, checkpoint):
    path = tmp_path / "served.toml"
    path.write_text(
        '[lvlm]\nkind = "lvlm"\ncheckpoint = "./checkpoints/lvlm_good"\nparameters = { dtype = "float32" }\n'
        '[judge]\nkind = "verifier"\ncheckpoint = "llava-hf/llava-1.5-7b-hf"\n'
    )
    found = read_manifest(path)
    assert found["lvlm"].checkpoint == str(checkpoint)
    assert found["judge"].checkpoint == "llava-hf/llava-1.5-7b-hf"
    for wrong in ("", "[x", '[x]\nkind = "lvlm"', '[x]\nkind = "lvlm"\ncheckpoint = "a"\ncolour = 1'):
        path.write_text(wrong)
        with pytest.raises(FileFormatError):
            read_manifest(path)


def test_checkpoints_in_a_folder(checkpoint):
    folder = checkpoint.parent
    for name, file in (("generator", "model_index.json"), ("text", "modules.json"), ("notes", "a.txt")):
        (folder / name).mkdir()
        (folder / name / file).write_text("{}")
    (folder / "verifier").mkdir()
    for file in ("config.json", "tokenizer.json"):
        (folder / "verifier" / file).write_text("{}")
    (folder / "verifier_of_boxes").mkdir()
    for file in ("config.json", "tokenizer.json"):
        (folder / "verifier_of_boxes" / file).write_text('{"architectures": ["Owlv2ForObjectDetection"]}')
    (folder / "eye").mkdir()
    for file in ("config.json", "preprocessor_config.json"):
        (folder / "eye" / file).write_text("{}")
    assert {name: one.kind for name, one in found_in(folder).items()} == {
        "eye": "image_encoder",
        "generator": "generator",
        "lvlm_good": "lvlm",
        "text": "text_encoder",
        "verifier": "verifier",
        "verifier_of_boxes": "detector",
    }
