"""A protocol that is installed beside groundwatch: found by its entry point, and served like any other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.command_line import CommandLine, Up
from tests.support.llm_server import picture, running

TOY = '''
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from groundwatch.events import Claim, Decision, Judge, Label, ResponseRecorded, SubSentence, Verdict
from groundwatch.protocols.base import EvaluationProtocol, ExtractionRules, Score, Stage
from groundwatch.protocols.method import Benchmark, CommandResult, Method, MethodSettings
from groundwatch.protocols.planted import Kind
from groundwatch.protocols.method import Question
from groundwatch.protocols.method import Tally
from groundwatch.verification.engines.base import Verification


def words(response):
    answer = response.answer
    unit = SubSentence(start=0, end=len(answer), text=answer, label=Label.DESCRIPTIVE)
    return (unit,), tuple(Claim(text=word, category="word") for word in answer.split())


class Reader:
    batch = 8

    def judge(self, protocol):
        return Judge(engine="reader", version="1")

    async def verify(self, extracted, protocol):
        return [
            Verification(
                verdicts=tuple(
                    Verdict(decision=Decision.REFUTED if claim.text.isupper() else Decision.SUPPORTED)
                    for claim in event.claims
                )
            )
            for event in extracted
        ]

    async def close(self):
        pass


class Toy(EvaluationProtocol):
    name = "toy"
    route = (Stage.EXTRACTION, Stage.VERIFICATION, Stage.SCORING)
    rules = ExtractionRules(from_answer=words)
    verifiers = ("toy:Reader",)
    sees = {Kind.OBJECT: frozenset({"word"})}

    def __init__(self, worth=1.0):
        self.worth = worth

    def score(self, judged):
        right = [verdict.decision is Decision.SUPPORTED for verdict in judged.verdicts]
        return Score(score=self.worth * sum(right) / len(right))


class ToySettings(MethodSettings):
    worth: float = 1.0

    def protocols(self):
        return (Toy(self.worth),)


def answers(path):
    if not path.read_bytes().startswith(b"TOY "):
        return None
    return [ResponseRecorded(id="1", model="toy-model", answer=path.read_text()[4:])]


def annotate(file, annotation, read):
    return list(read(file))


def suite(folder, images):
    for line in (folder / "questions.txt").read_text().splitlines():
        yield Question(id=line, protocol="toy", prompt=line, images=(images.picture("a.png"),))


def figures(pairs):
    return {"asked": len(pairs)}


def validate(file: Annotated[Path, Meta(description="What people said.")]):
    """The toy against people."""
    return {"people": len(file.read_text().splitlines())}


async def build(
    file: Annotated[Path, Meta(description="Words.")],
    *,
    out: Annotated[Path, Meta(description="Questions.")],
    at_most: Annotated[int, Meta(ge=1, description="So many.")] = 10,
    progress,
):
    """Questions about words."""
    words = file.read_text().split()[:at_most]
    progress("asking", len(words), len(words))
    out.write_text("".join(f"Is there a {word}?\\n" for word in words))
    return CommandResult(numbers={"questions": len(words)}, problem="" if words else "no words")


METHOD = Method(
    name="toy",
    protocols=(Toy(),),
    settings=ToySettings,
    benchmark=Benchmark(
        tally=Tally(compute=lambda request: {"lines": len(request.file.read_text().splitlines())}),
        answers=answers,
        annotate=annotate,
        validation="toy:validate",
        dataset="toy:build",
        suite=suite,
        figures=figures,
    ),
)
'''


def install(folder: Path, code: str = TOY, name: str = "toy") -> None:
    """What pip leaves of a package with one module and one entry point."""
    (folder / f"{name}.py").write_text(code)
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[groundwatch.protocols]\n{name} = {name}:METHOD\n")


@pytest.fixture
def plugged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """The commands of somebody who has the toy installed."""
    plugins, data = tmp_path / "plugins", tmp_path / "data"
    plugins.mkdir()
    data.mkdir()
    install(plugins)
    monkeypatch.setenv("PYTHONPATH", str(plugins))
    return CommandLine(data, apart=True)


@pytest.fixture
def responses(tmp_path: Path) -> Path:
    file = tmp_path / "responses.jsonl"
    answers = ("a dog and a CAT", "two dogs")
    file.write_text(
        "".join(
            json.dumps({"id": str(at), "model": "m", "answer": answer, "protocols": ["toy"]}) + "\n"
            for at, answer in enumerate(answers)
        )
    )
    return file


@pytest.mark.slow
def test_a_plug_in_is_judged_and_reported_live(plugged: CommandLine, responses: Path):
    up = Up(plugged.folder, apart=True, GROUNDWATCH_PROTOCOLS__TOY__WORTH="0.5")
    try:
        assert up("submit", responses).returncode == 0
        assert up.settled(2)["scored"] == 2
        (row,) = up.json("report")["models"]
    finally:
        assert up.stop() == 0
    assert (row["protocol"], row["score"]["value"]) == ("toy", pytest.approx((0.8 + 1) / 4))
    assert row["judges"]["verification"]["engine"] == "reader"


@pytest.mark.slow
def test_files_are_judged_by_a_plug_in(plugged: CommandLine, responses: Path, tmp_path: Path):
    (judged,) = plugged.json("score", "toy", responses)["models"]
    assert judged["score"]["value"] == pytest.approx((0.8 + 1) / 2)
    assert plugged.json("score", "toy", responses, "--annotation", responses)["models"] == [judged]
    assert plugged.json("score", "toy", responses, "--recorded") == {"lines": 2}
    own = tmp_path / "answers.toy"
    own.write_text("TOY a dog")
    assert plugged.json("score", "toy", own)["models"][0]["model"] == "toy-model"
    config = tmp_path / "settings.toml"
    config.write_text("[protocols.toy]\nworth = 0.5\n")
    (halved,) = plugged.json("score", "toy", responses, "--config", config)["models"]
    assert halved["score"]["value"] == pytest.approx(judged["score"]["value"] / 2)
    config.write_text("[protocols.toy]\nworht = 0.5\n")
    complaint = plugged.complaint("score", "toy", responses, "--config", config)
    found = f"{config}: setting 'protocols.toy.worht': no such setting"
    assert complaint == f"{found}; did you mean protocols.toy.worth?"


@pytest.mark.slow
def test_a_plug_in_has_commands_of_its_own(plugged: CommandLine, responses: Path, tmp_path: Path):
    assert "The toy against people." in plugged("validate", "--help").stdout
    assert plugged.json("validate", "toy", responses) == {"people": 2}
    words, out = tmp_path / "words.txt", tmp_path / "questions.txt"
    words.write_text("dog cat tree")
    assert plugged.json("dataset", "toy", words, "--out", out, "--at-most", 2) == {"questions": 2}
    assert out.read_text() == "Is there a dog?\nIs there a cat?\n"
    words.write_text("")
    done = plugged("dataset", "toy", words, "--out", out)
    assert done.returncode == 1
    assert done.stderr == "groundwatch: no words\n"
    found = plugged.json("validate", "planted", "--protocol", "toy", "--answers", 4)
    assert [(one["protocol"], one["kind"]) for one in found["found"]] == [("toy", "object")]


@pytest.mark.slow
def test_a_suite_of_a_plug_in_is_asked(plugged: CommandLine, tmp_path: Path):
    benchmark = tmp_path / "benchmark"
    benchmark.mkdir()
    (benchmark / "a.png").write_bytes(picture("dog"))
    (benchmark / "questions.txt").write_text("Is there a dog?\nIs there a cat?\n")
    with running() as server:
        found = plugged.json(
            *("probe", "toy", "--target", server.base_url, "--model", "looks"),
            *("--benchmark", benchmark, "--folder", tmp_path / "run"),
        )
    assert (found["answered"], found["scored"], found["figures"]) == (2, 2, {"asked": 2})


@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        (
            "import nowhere",
            "protocol plug-in 'wrong' of wrong 1.0: cannot be loaded: "
            "ModuleNotFoundError: No module named 'nowhere'",
        ),
        ("METHOD = 7", "protocol plug-in 'wrong' of wrong 1.0: wrong:METHOD is no Method"),
        (
            TOY.replace('"toy"', '"pope"'),
            "protocol plug-in 'wrong' of wrong 1.0: the name 'pope' is taken",
        ),
        (
            TOY.replace('name = "toy"', 'name = "to.y"'),
            "protocol plug-in 'wrong' of wrong 1.0: 'to.y' is no name: use a-z, 0-9, - and _, at most 64",
        ),
    ],
)
def test_a_wrong_plug_in_is_one_clear_line(tmp_path: Path, code: str, complaint: str):
    install(tmp_path, code, "wrong")
    typed = CommandLine(tmp_path, apart=True)
    assert typed.complaint("score", "faithscore", tmp_path / "file", PYTHONPATH=str(tmp_path)) == complaint
