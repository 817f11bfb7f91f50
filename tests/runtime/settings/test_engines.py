"""Who verifies which protocol's claims, as settings say it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from groundwatch.errors import SettingsError
from groundwatch.models.settings import ChatSettings
from groundwatch.protocols import registry
from groundwatch.runtime.settings import CaptioningSettings, Settings, StageSettings, held_at_once
from groundwatch.runtime.settings.judges import EngineSettings
from groundwatch.runtime.settings.reading import load, with_judge

CHAT = 'llm = { base_url = "http://judge/v1", model = "m" }\n'
BY_TRUTH = ("amber-attribute", "amber-relation")
"""Protocols that the known truth alone decides."""

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
        ("", "reference reference reference reference calibrated reference"),
        ("embedded", "reference reference reference reference calibrated reference"),
        ("triton", "reference reference triton reference calibrated triton"),
        ("visual", "reference reference visual reference calibrated visual"),
        ("llm", "reference reference llm reference llm llm"),
        ("reference", "reference reference reference reference reference reference"),
        ("similarity", "reference reference reference reference similarity reference"),
        ("noop", "noop noop noop noop noop noop"),
    ],
)
def test_an_engine_is_for_all_that_it_can_judge(engine: str, judges: str) -> None:
    chat = ChatSettings(base_url="http://judge/v1", model="m")
    found = StageSettings(engine=engine, llm=chat).by_protocol()
    names = ("amber-existence", "dash-b", "faithscore", "pope", "tri-he", "vlm2")
    known = "noop" if engine == "noop" else "reference"
    assert found == dict(zip(names, judges.split(), strict=True)) | dict.fromkeys(BY_TRUTH, known)


ENGINES = ("reference", "similarity", "calibrated", "visual", "triton", "detector", "llm")
CAN = {
    "amber-attribute": "reference",
    "amber-existence": "reference visual triton detector",
    "amber-relation": "reference",
    "dash-b": "reference visual triton detector",
    "faithscore": "reference visual triton detector llm",
    "pope": "reference visual triton detector llm",
    "tri-he": "reference similarity calibrated llm",
    "vlm2": "reference visual triton llm",
}
"""Who can judge which protocol's claims; of those that are not here nobody, for they verify nothing."""


def test_every_protocol_with_every_engine() -> None:
    """One that cannot judge is refused with those that can: named for a protocol, or in its cascade."""
    llm = {"base_url": "http://judge/v1", "model": "m"}
    missed = []
    for name in registry.names():
        protocol, can = registry.get(name), CAN.get(name, "").split()
        for engine in (*ENGINES, "blip", "lexical"):
            steps = [{"engine": "noop"}, {"engine": engine}]
            given = {"engine": "cascade", "cascade": steps}
            for whole, own in (({}, {"engine": engine}), ({}, given), (given, {"engine": "cascade"})):
                try:
                    found = StageSettings(**{"llm": llm, "protocols": {name: own}, **whole})
                    told = found.judges()[name]
                    right = engine in can and told in (engine, f"noop > {engine}")
                except ValidationError as error:
                    told = str(error)
                    wanted = f"{engine} cannot judge {name}: use {' or '.join(protocol.verifiers)}"
                    if not can:
                        wanted = f"{name} has no claims to verify"
                    if whole and engine not in ENGINES:
                        wanted = "has no protocol that all of its judges can judge"
                    right = engine not in can and wanted in told
                if not right:
                    missed.append((name, engine, whole, own, told))
    assert missed == []


def test_a_protocol_has_an_engine_of_its_own(tmp_path: Path) -> None:
    found = read(tmp_path, PAPERS).verification
    assert found.by_protocol() == dict.fromkeys(BY_TRUTH, "reference") | {
        "amber-existence": "reference",
        "dash-b": "reference",
        "faithscore": "triton",
        "pope": "llm",
        "tri-he": "similarity",
        "vlm2": "triton",
    }
    tri_he, pope = (found.of(registry.get(name)) for name in ("tri-he", "pope"))
    assert (tri_he.embedding_model, tri_he.llm) == ("/models/mpnet", found.llm)
    assert pope.llm is not None and pope.llm.model == "pope"


STEPS = f"""cascade = [
    {{ engine = "embedded" }},
    {{ engine = "visual", refuted_below = 0.1, supported_above = 0.9 }},
    {{ engine = "llm", {CHAT.strip().replace('"m"', '"large"')} }},
]
"""
CASCADE = f'[verification]\nengine = "cascade"\n{CHAT}{STEPS}'


def test_a_cascade_is_for_all_that_each_of_its_judges_can_judge(tmp_path: Path) -> None:
    found = read(tmp_path, CASCADE).verification
    several = "reference > visual (<0.1, >0.9) > llm"
    by_label = ("amber-existence", "dash-b", "pope", *BY_TRUTH)
    others = dict.fromkeys(by_label, "reference") | {"tri-he": "calibrated"}
    assert found.judges() == dict.fromkeys(("faithscore", "vlm2"), several) | others
    models = [step.llm.model for step in found.of(registry.get("faithscore")).cascade if step.llm]
    assert models == ["m", "m", "large"], "what a step does not say is said by the section"
    own = "[verification.protocols.faithscore]\n"
    found = read(
        tmp_path, f'{CASCADE}{own}cascade = [{{ engine = "visual" }}, {{ engine = "llm" }}]'
    ).verification
    judges = {"faithscore": "visual > llm", "vlm2": several} | others
    assert found.judges() == judges
    found = read(tmp_path, f'{own}engine = "cascade"\n{CHAT}{STEPS}').verification
    assert found.judges() == judges | {"faithscore": several, "vlm2": "reference"}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (('"embedded"', '"cascade"'), "[0].engine': no cascade within a cascade: name its judges here"),
        (("0.1", "0.95"), "[1].supported_above': must not be below refuted_below"),
        (("0.1", "nan"), "[1].refuted_below': must be a finite number"),
        (("0.9", "1.5"), "[1].supported_above': must be at most 1"),
        (('"large" }', '"large" }, refuted_below = 0.1'), "': must end with a judge without bounds"),
        (('engine = "embedded"', "refuted_below = 0.5"), "[0].engine': is missing"),
        (('"llm", llm', '"triton", cascade'), "[2].cascade': no such setting"),
        (('"embedded"', '"similarity"'), "': has no protocol that all of its judges can judge"),
        (('"embedded"', '"eyes"'), "': has no protocol that all of its judges can judge"),
    ],
)
def test_a_cascade_that_cannot_be_is_refused(tmp_path: Path, change: tuple[str, str], told: str) -> None:
    text = CASCADE.replace(*change, 1)
    assert text != CASCADE
    with pytest.raises(SettingsError) as caught:
        read(tmp_path, text)
    assert len(caught.value.problems) == 1
    assert f"setting 'verification.cascade{told}" in caught.value.problems[0]


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        ("", "'verification.protocols.tri-he.cascade': engine cascade needs its judges here, in order"),
        ('cascade = [{engine = "llm"}]', "tri-he.cascade': must have two judges or more"),
        (
            'cascade = [{engine = "llm"}, {engine = "triton"}]',
            "tri-he.cascade[1].engine': triton cannot judge tri-he: use calibrated or similarity or llm",
        ),
        (
            'cascade = [{engine = "similarity"}, {engine = "llm"}]',
            "tri-he.cascade[1].llm': engine llm needs at least base_url and model here",
        ),
    ],
)
def test_one_protocols_cascade_that_cannot_be_is_refused(tmp_path: Path, steps: str, told: str) -> None:
    text = f'[verification.protocols.tri-he]\nengine = "cascade"\n{steps}'
    with pytest.raises(SettingsError) as caught:
        read(tmp_path, text)
    assert [told in one for one in caught.value.problems] == [True]


def judging(settings: Settings, text: str) -> Settings:
    """The settings with a judge `other` of these sections."""
    return settings.model_copy(update={"judges": {"other": tomllib.loads(text)}})


def test_another_cascade_takes_the_place_of_judges_that_it_can_replace(tmp_path: Path) -> None:
    own = (
        '[verification.protocols.pope]\nengine = "visual"\n[verification.protocols.tri-he]\nengine = "llm"\n'
    )
    settings = read(
        tmp_path, own.replace('"visual"\n', f'"visual"\n{CHAT}').replace('"llm"\n', f'"llm"\n{CHAT}')
    )
    judges = with_judge(judging(settings, CASCADE), "other").verification.judges()
    assert judges["faithscore"].startswith("reference > visual") and judges["tri-he"] == "llm"
    assert judges["pope"] == "reference"
    assert with_judge(
        read(tmp_path, CASCADE + own.replace('"llm"', '"similarity"')), ""
    ).verification.judges()


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
    assert "'verification.protocols.tri-he.engine': visual cannot judge tri-he: use calibrated or" in told
    assert "'verification.protocols.pope.engine': lexical cannot judge pope: use reference or" in told


def test_another_judge_for_all_that_it_can_serve_or_for_one(tmp_path: Path) -> None:
    settings = read(tmp_path, PAPERS + f"[judges.seen.verification]\nengine = 'visual'\n{CHAT}")
    everyone = with_judge(settings, "seen").verification.by_protocol()
    by_label = dict.fromkeys((*BY_TRUTH, "amber-existence", "dash-b", "pope"), "reference")
    looking = dict.fromkeys(("faithscore", "vlm2"), "visual")
    assert everyone == looking | by_label | {"tri-he": "similarity"}
    other = judging(settings, "[verification.protocols.tri-he]\nengine = 'llm'\n")
    one = with_judge(other, "other").verification.by_protocol()
    assert one == settings.verification.by_protocol() | {"tri-he": "llm"}
    other = judging(settings, "[verification.protocols.tri-he]\nengine = 'triton'\n")
    with pytest.raises(SettingsError, match=r"'judges\.other\..*triton cannot judge tri-he"):
        with_judge(other, "other")


def test_settings_of_a_judge_are_looked_up_by() -> None:
    """As the judgement cache does."""
    where = {"base_url": "http://vllm:8000/v1", "model": "m"}
    thinking = {"extra_body": {"chat_template_kwargs": {"enable_thinking": False}}}
    plain, quiet = ChatSettings.model_validate(where), ChatSettings.model_validate(where | thinking)
    known = {plain: 1, quiet: 2}
    assert known[ChatSettings.model_validate(where | thinking)] == 2 and known[plain] == 1


def test_the_documented_judges_are_the_papers(tmp_path: Path) -> None:
    """The recipe for the papers' checkpoints, and the tables of who can judge what."""
    docs = Path(__file__).parents[3] / "docs"
    (recipe,) = re.findall(r"```toml\n(.*?)```", (docs / "models.md").read_text(), re.DOTALL)
    judges = read(tmp_path, recipe).verification.by_protocol()
    own = {name: registry.get(name).verifier("triton") for name in judges}
    assert judges == own | {"tri-he": "similarity"}, "the paper's, where ours is calibrated"
    told = (docs / "settings.md").read_text()
    for name, word in (
        ("faithscore", "FaithScore"),
        ("tri-he", "Tri-HE"),
        ("pope", "POPE"),
        ("vlm2", "VLM²-Bench"),
        ("dash-b", "DASH-B"),
        ("amber-existence", "AMBER, existence"),
        ("amber-attribute", "AMBER, attribute and relation"),
    ):
        verifiers = ", ".join(f"`{one}`" for one in registry.get(name).verifiers)
        assert f"| {word} | {verifiers} |" in told
    refused = registry.get("tri-he").why_not("triton")
    assert f"`setting 'verification.protocols.tri-he.engine': {refused}`" in told


@given(st.integers(1, 1_000), st.integers(0, 500))
def test_all_replicas_may_hold_what_they_ask_for(replicas: int, concurrency: int) -> None:
    stage = StageSettings(replicas=replicas, concurrency=concurrency)
    held = held_at_once(Settings(verification=stage, captioning=CaptioningSettings(replicas=replicas)))
    assert held["verification"] >= max(5_000, 2 * replicas * concurrency)
    assert held["scoring"] == 5_000
    assert held["captioning"] >= 400 * replicas
    assert stage.model_copy(update={"max_ack_pending": 7}).held_at_once(concurrency) == 7
