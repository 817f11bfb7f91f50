"""Prompts in the user's own words: read with the settings, sent, and told by whoever was asked with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.command_line import CommandLine
from tests.support.llm_server import LlmServer, picture, running

from groundwatch.errors import SettingsError
from groundwatch.events import ResponseRecorded, own_prompts
from groundwatch.protocols import prompts, registry
from groundwatch.protocols.base import Stage
from groundwatch.protocols.genception.protocol import GenCeption
from groundwatch.protocols.prompts import asked_digest, packaged_names
from groundwatch.runtime.settings.reading import as_variables, load

EXTRACT = "# Instructions\nList what is there. OWN WORDS\n\n# Question\n{{answer}}\n"
ASK = "Tell me, in OWN WORDS, all that you see."


@pytest.fixture(autouse=True)
def _the_packages_own_afterwards():
    yield
    prompts.use({})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "prompts"


def write(folder: Path, files: dict[str, str | bytes]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def variables(folder: Path) -> dict[str, str]:
    return {"GROUNDWATCH_PROMPTS__FOLDER": str(folder)}


def test_what_cannot_take_a_prompts_place_is_refused_in_one_line(tmp_path):
    cases = json.loads((Path(__file__).parent / "data" / "own-prompts.json").read_text())
    wrong = {}
    for number, (name, text, expected) in enumerate(cases):
        place = write(tmp_path / str(number), {name: text})
        try:
            load(environment=variables(place))
            told = "taken"
        except SettingsError as error:
            (told,) = error.problems
        if expected not in told or "\n" in told:
            wrong[name, text] = told
    assert not wrong


def test_files_that_cannot_be_read_are_refused(folder):
    with pytest.raises(SettingsError, match="prompts cannot be read: No such file"):
        load(environment=variables(folder))
    write(folder, {"valor/match-names.md": b"\xff\xfe"})
    with pytest.raises(SettingsError, match=r"match-names\.md 'utf-8' codec"):
        load(environment=variables(folder))


def test_a_folder_may_hold_hidden_files_links_and_copies_of_ours(folder):
    """A ConfigMap is mounted as links into a hidden folder."""
    ours = registry.get("faithscore")
    mounted = folder / "..2026"
    write(mounted / "faithscore", {"verify.md": b"x", "decompose.md": b"x"})
    for name in ("verify", "decompose"):
        text = (Path(prompts.__file__).parent / "faithscore" / "prompts" / f"{name}.md").read_bytes()
        write(mounted / "faithscore", {f"{name}.md": text + b"\n" * (name == "verify")})
    (folder / "faithscore").symlink_to(mounted / "faithscore")
    before = {stage: ours.prompt_digest(stage) for stage in (Stage.EXTRACTION, Stage.VERIFICATION)}
    prompts.use(registry.own_prompts(str(folder)))
    assert ours.prompt_digest(Stage.EXTRACTION) == before[Stage.EXTRACTION]
    after = ours.prompt_digest(Stage.VERIFICATION)
    assert after.split()[0] != before[Stage.VERIFICATION]
    assert own_prompts(after) == ["faithscore/verify"]


def test_every_prompt_of_the_packages_can_be_given():
    folders = [path for path in Path(registry.protocols.__path__[0]).parent.rglob("prompts") if path.is_dir()]
    brought = {path.name for folder in folders for path in folder.glob("*.md")}
    places = {one.package for name in registry.names() if (one := registry.get(name)).package}
    packages = [*places, "groundwatch.captioning", "groundwatch.verification"]
    assert {f"{name}.md" for package in packages for name in packaged_names(package)} == brought


def test_the_page_has_every_name(folder):
    with pytest.raises(ValueError, match="is no prompt; there are") as refused:
        registry.own_prompts(str(write(folder, {"x.md": "x"})))
    names = str(refused.value).partition("there are ")[2].removesuffix(", each with .md").split(", ")
    page = (Path(__file__).parents[2] / "docs" / "prompts.md").read_text()
    assert len(names) > 20
    assert [name for name in names if f"`{name}`" not in page] == []


def test_a_chains_words_are_those_of_the_file(folder):
    chain, response = GenCeption(), ResponseRecorded(id="1", model="m", answer="")
    before = asked_digest(chain.description_prompt(response)), asked_digest(chain.generation_prompt(""))
    assert [own_prompts(one) for one in before] == [[], []]
    write(folder, {"genception/describe.md": ASK, "genception/generate.md": "Draw: {{description}}!"})
    prompts.use(registry.own_prompts(str(folder)))
    assert chain.description_prompt(response) == ASK
    assert chain.generation_prompt("a {{dog}}") == "Draw: a {{dog}}!"
    after = asked_digest(chain.description_prompt(response)), asked_digest(chain.generation_prompt(""))
    assert [own_prompts(one) for one in after] == [["genception/describe"], ["genception/generate"]]
    assert not {one.split()[0] for one in after} & set(before)


@pytest.fixture
def server():
    with running() as started:
        yield started


def judged(line: CommandLine, tmp_path: Path, server: LlmServer, **more: str) -> dict[str, Any]:
    answers = tmp_path / "answers.jsonl"
    answers.write_text(
        json.dumps({"id": "1", "model": "m", "answer": "A cow.", "reference": {"objects": ["cow"]}}) + "\n"
    )
    (tmp_path / "settings.toml").write_text(
        f'[extraction]\nengine = "llm"\nllm = {{ base_url = "{server.base_url}", '
        """model = 'echo:{"features":["cow"]}' }\n"""
    )
    typed = ("score", "valor-object-existence", answers, "--config", tmp_path / "settings.toml", "--json")
    done = line(*typed, **more)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def test_own_words_are_sent_to_the_judge_and_its_outcomes_stand_apart(
    nobody: CommandLine, server: LlmServer, tmp_path: Path, folder: Path
):
    write(folder, {"valor/object-existence.md": EXTRACT})
    ours, own = judged(nobody, tmp_path, server), judged(nobody, tmp_path, server, **variables(folder))
    assert (ours["own_prompts"], own["own_prompts"]) == ([], ["valor/object-existence"])
    sent = [json.dumps(request["messages"]) for request in server.requests]
    assert ["OWN WORDS" in text for text in sent] == [False, True]
    (before,), (after,) = ours["models"], own["models"]
    assert before["scored"] == after["scored"] == 1
    assert before["judges"]["matching"] == after["judges"]["matching"]
    assert before["fingerprint"] != after["fingerprint"]
    assert own_prompts(after["judges"]["extraction"]["prompt"]) == ["valor/object-existence"]
    told = nobody(
        *("score", "valor-object-existence", tmp_path / "answers.jsonl"),
        *("--config", tmp_path / "settings.toml"),
        **variables(folder),
    )
    assert "prompts: own: valor/object-existence" in told.stdout


def test_own_questions_of_a_suite_are_asked_anew_and_told(
    nobody: CommandLine, server: LlmServer, tmp_path: Path, folder: Path
):
    benchmark = tmp_path / "benchmark"
    write(benchmark, {"images/a.png": picture("dog ball")})
    annotated = {"image_id": "a", "gt_objects": ["dog", "ball"]}
    write(benchmark, {"object_existence.jsonl": json.dumps(annotated) + "\n"})
    write(folder, {"valor/ask_object_existence.md": ASK + "\n"})
    typed = [
        *("probe", "valor", "--target", server.base_url, "--model", "looks", "--benchmark", benchmark),
        *("--folder", tmp_path / "run"),
    ]
    typed += ["--engine", "noop", "--judge", "lexical"]
    first = json.loads(nobody(*typed, "--json").stdout)
    second = json.loads(nobody(*typed, "--json", **variables(folder)).stdout)
    assert (first["own_prompts"], second["own_prompts"]) == ([], ["valor/ask_object_existence"])
    asked = [request["messages"][-1]["content"] for request in server.requests]
    assert len(asked) == 2, "an answer to other words is no answer to these"
    assert ASK in json.dumps(asked[1]) and ASK not in json.dumps(asked[0])
    lines = [json.loads(line) for line in (tmp_path / "run" / "run.jsonl").read_text().splitlines()]
    tags = [line["response"]["tags"].get("prompt", "") for line in lines if line["type"] == "answer"]
    assert tags[0] == "" and tags[1].startswith("valor/ask_object_existence ")
    assert (
        "asked in words of your own: valor/ask_object_existence" in nobody(*typed, **variables(folder)).stdout
    )


def test_another_process_is_given_the_same_words(folder):
    """Of a replay, or of a service: by the setting, like all that judges."""
    write(folder, {"valor/object-existence.md": EXTRACT})
    settings = load(environment=variables(folder))
    assert load(environment=as_variables(settings, ("prompts",))).prompts == settings.prompts
