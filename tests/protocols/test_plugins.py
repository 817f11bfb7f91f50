"""A protocol that is installed beside groundwatch: found by its entry point, and served like any other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.command_line import CommandLine, Up

TOY = """
from groundwatch.events import Claim, Decision, Judge, Verdict
from groundwatch.protocols.base import EvaluationProtocol, ExtractionRules, Score, Stage
from groundwatch.protocols.method import Method
from groundwatch.protocols.tally import Tally
from groundwatch.verification.engines.base import Verification


def words(response):
    return (), tuple(Claim(text=word, category="word") for word in response.answer.split())


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
    verifier = "toy:Reader"

    def score(self, judged):
        right = [verdict.decision is Decision.SUPPORTED for verdict in judged.verdicts]
        return Score(score=sum(right) / len(right))


def validate(file):
    return {"people": len(file.read_text().splitlines())}


METHOD = Method(
    name="toy",
    protocols=(Toy(),),
    tally=Tally(compute=lambda request: {"lines": len(request.file.read_text().splitlines())}),
    validation="toy:validate",
)
"""


def install(folder: Path, code: str = TOY, name: str = "toy") -> None:
    """What pip leaves of a package with one module and one entry point."""
    (folder / f"{name}.py").write_text(code)
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[groundwatch.protocols]\n{name} = {name}:METHOD\n")


@pytest.mark.slow
def test_a_plug_in_is_judged_reported_tallied_and_validated(tmp_path: Path, monkeypatch):
    plugins, data = tmp_path / "plugins", tmp_path / "data"
    plugins.mkdir()
    data.mkdir()
    install(plugins)
    monkeypatch.setenv("PYTHONPATH", str(plugins))
    file = tmp_path / "responses.jsonl"
    answers = ("a dog and a CAT", "two dogs")
    file.write_text(
        "".join(
            json.dumps({"id": str(at), "model": "m", "answer": answer, "protocols": ["toy"]}) + "\n"
            for at, answer in enumerate(answers)
        )
    )
    typed = CommandLine(data, apart=True)
    assert typed.json("score", "toy", file)["protocol"] == "toy"
    assert typed.json("score", "toy", file, "--recorded") == {"lines": 2}
    assert typed.json("validate", "toy", file) == {"people": 2}
    up = Up(data, apart=True)
    try:
        assert up("submit", file).returncode == 0
        assert up.settled(2)["scored"] == 2
        (row,) = up.json("report")["models"]
    finally:
        assert up.stop() == 0
    assert (row["protocol"], row["score"]["value"]) == ("toy", pytest.approx((0.8 + 1) / 2))
    assert row["judges"]["verification"]["engine"] == "reader"


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
