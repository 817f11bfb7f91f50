"""Who verifies which protocol's claims, as settings say it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from groundwatch.errors import SettingsError
from groundwatch.models.settings import ChatSettings
from groundwatch.protocols import registry
from groundwatch.runtime.settings import EngineSettings, Settings, StageSettings
from groundwatch.runtime.settings.reading import judging_sections, load, with_file, with_judge, with_run

CHAT = 'llm = { base_url = "http://judge/v1", model = "m" }\n'
PAPERS = f"""
[verification]
engine = "triton"
{CHAT}
[verification.protocols.tri-he]
engine = "similarity"
embedding_model = "/models/mpnet"
[verification.protocols.pope]
engine = "llm"
llm = {{ base_url = "http://other/v1", model = "pope" }}
"""


def read(tmp_path: Path, text: str, **environment: str) -> Settings:
    path = tmp_path / "settings.toml"
    path.write_text(text)
    return load(path, environment)


@pytest.mark.parametrize(
    ("engine", "judges"),
    [
        ("", "reference reference similarity reference"),
        ("embedded", "reference reference similarity reference"),
        ("triton", "triton triton similarity triton"),
        ("visual", "visual visual similarity visual"),
        ("llm", "llm llm llm llm"),
        ("reference", "reference reference reference reference"),
        ("similarity", "reference reference similarity reference"),
        ("noop", "noop noop noop noop"),
    ],
)
def test_an_engine_is_for_all_that_it_can_judge(engine: str, judges: str) -> None:
    chat = ChatSettings(base_url="http://judge/v1", model="m")
    found = StageSettings(engine=engine, llm=chat).by_protocol()
    assert found == dict(zip(("faithscore", "pope", "tri-he", "vlm2"), judges.split(), strict=True))


def test_a_protocol_has_an_engine_of_its_own(tmp_path: Path) -> None:
    found = read(tmp_path, PAPERS).verification
    assert found.by_protocol() == {
        "faithscore": "triton",
        "pope": "llm",
        "tri-he": "similarity",
        "vlm2": "triton",
    }
    tri_he, pope = (found.of(registry.get(name)) for name in ("tri-he", "pope"))
    assert (tri_he.embedding_model, tri_he.llm) == ("/models/mpnet", found.llm)
    assert pope.llm is not None and pope.llm.model == "pope"


def test_variables_name_it_too(tmp_path: Path) -> None:
    key = "GROUNDWATCH_VERIFICATION__PROTOCOLS"
    found = read(tmp_path, PAPERS, **{f"{key}__TRI-HE__ENGINE": "llm"}).verification.protocols["tri-he"]
    assert found == EngineSettings(engine="llm", embedding_model="/models/mpnet")
    found = read(tmp_path, PAPERS, **{key: '{tri-he = {engine = "llm"}}'}).verification
    assert found.protocols == {"tri-he": EngineSettings(engine="llm")}


def test_judges_that_cannot_serve_are_all_told_at_once(tmp_path: Path) -> None:
    text = PAPERS.replace("similarity", "visual").replace('"llm"', '"lexical"') + "[nats]\nreplicas = 9\n"
    with pytest.raises(SettingsError) as caught:
        read(tmp_path, text)
    told = " ".join(caught.value.problems)
    assert len(caught.value.problems) == 3
    assert "'verification.protocols.tri-he.engine': visual cannot judge tri-he: use similarity or" in told
    assert "'verification.protocols.pope.engine': lexical cannot judge pope: use reference or" in told


def test_another_judge_for_all_that_it_can_serve_or_for_one(tmp_path: Path) -> None:
    settings = read(tmp_path, PAPERS + f"[judges.seen.verification]\nengine = 'visual'\n{CHAT}")
    everyone = with_judge(settings, "seen").verification.by_protocol()
    assert everyone == {"faithscore": "visual", "pope": "visual", "tri-he": "similarity", "vlm2": "visual"}
    other = tmp_path / "other.toml"
    other.write_text("[verification.protocols.tri-he]\nengine = 'llm'\n")
    one = with_file(settings, other).verification.by_protocol()
    assert one == settings.verification.by_protocol() | {"tri-he": "llm"}
    other.write_text("[verification.protocols.tri-he]\nengine = 'triton'\n")
    with pytest.raises(SettingsError, match=r"other.toml: .*triton cannot judge tri-he"):
        with_file(settings, other)


def test_the_documented_judges_are_the_papers(tmp_path: Path) -> None:
    """The recipe for the papers' checkpoints, and the tables of who can judge what."""
    docs = Path(__file__).parents[3] / "docs"
    (recipe,) = re.findall(r"```toml\n(.*?)```", (docs / "models.md").read_text(), re.DOTALL)
    judges = read(tmp_path, recipe).verification.by_protocol()
    assert judges == {name: registry.get(name).verifier("triton") for name in judges}
    told = (docs / "operations.md").read_text()
    for name, word in (("faithscore", "FaithScore"), ("tri-he", "Tri-HE"), ("pope", "POPE, VLM²-Bench")):
        verifiers = ", ".join(f"`{one}`" for one in registry.get(name).verifiers)
        assert f"| {word} | {verifiers} |" in told
    refused = registry.get("tri-he").why_not("triton")
    assert f"`setting 'verification.protocols.tri-he.engine': {refused}`" in told


def test_a_run_reaches_no_further_by_one_protocols_judge(tmp_path: Path) -> None:
    settings = read(tmp_path, PAPERS)
    assert with_run(settings, judging_sections(settings)) == settings
    theirs = judging_sections(settings)
    theirs["verification"]["protocols"]["pope"]["llm"]["base_url"] = "http://evil.test/v1"
    with pytest.raises(SettingsError, match=r"evil\.test"):
        with_run(settings, theirs)
