"""The judge of second opinions, as settings name it: what is right, and one line for each mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from groundwatch.errors import SettingsError
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.settings.reading import load, with_second_judge

STRONG = """
[judges.strong.verification]
engine = "llm"
llm = { base_url = "https://judge.example/v1", model = "big" }
"""


def read(tmp_path: Path, text: str) -> Settings:
    file = tmp_path / "groundwatch.toml"
    file.write_text(text)
    return load(file, {})


def second(judge: str, more: str = "") -> str:
    return f"[second_opinion]\njudge = {judge!r}\n{more}"


def test_nobody_gives_one_without_a_setting(tmp_path: Path) -> None:
    section = read(tmp_path, "").second_opinion
    assert (section.judge, section.rule, section.share, section.per_hour) == ("", "uncertain", 0.02, 100)


@pytest.mark.parametrize(
    ("text", "engine", "protocols"),
    [
        (STRONG + second("strong"), "llm", ("faithscore",)),
        (second("triton"), "triton", ("faithscore",)),
        # Tri-HE keeps its own judge, which is the first one.
        (
            second("triton") + "[gateway]\nprotocols = ['faithscore', 'tri-he', 'pope']",
            "triton",
            ("faithscore",),
        ),
        (STRONG + second("strong", "protocols = ['tri-he']"), "llm", ("tri-he",)),
        ("[verification]\nengine = 'triton'\n" + second("reference"), "reference", ("faithscore",)),
    ],
)
def test_a_named_judge_or_an_engine(
    tmp_path: Path, text: str, engine: str, protocols: tuple[str, ...]
) -> None:
    settings = read(tmp_path, text)
    judge, found = with_second_judge(settings)
    assert judge.verification.by_protocol()[protocols[0]] == engine
    assert found == protocols
    assert settings.verification.by_protocol()[protocols[0]] != engine


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            second("nobody"),
            "setting 'second_opinion.judge': 'nobody' is none of [judges] (named are: none), and no engine "
            "(visual, triton, reference, detector, llm, calibrated, similarity)",
        ),
        (
            second("reference"),
            "setting 'second_opinion.judge': is the first judge of faithscore itself: name another one",
        ),
        (
            "[judges.same.visual]\nthreshold = 0.7\n" + second("same"),
            "setting 'second_opinion.judge': is the first judge of faithscore itself: name another one",
        ),
        (
            second("llm"),
            "setting 'second_opinion.judge': verification.llm: engine llm needs at least base_url and model "
            "here",
        ),
        (
            second("triton", "protocols = ['tri-he']"),
            "setting 'second_opinion.protocols': triton cannot judge tri-he: use calibrated or similarity or "
            "llm or reference",
        ),
        (
            second("triton", "protocols = ['genception']"),
            "setting 'second_opinion.protocols': genception has no claims to verify",
        ),
        (
            second("similarity"),
            "setting 'second_opinion.judge': similarity cannot judge faithscore: use visual or triton or llm "
            "or detector or reference",
        ),
        (
            "[judges.blind.verification]\nengine = 'noop'\n" + second("blind"),
            "setting 'second_opinion.judge': noop looks at nothing: its opinion would be none",
        ),
        (
            # The judge is wrong, and nothing is said of what follows from that.
            "[judges.strong.verification]\nengine = 'llm'\n" + second("strong"),
            "setting 'judges.strong.verification.llm': engine llm needs at least base_url and model here",
        ),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read(tmp_path, text)
    assert caught.value.problems == (told,)


@pytest.mark.parametrize(
    ("key", "value"), [("share", "0.0"), ("share", "1.5"), ("per_hour", "0"), ("rule", "'all'")]
)
def test_values_have_bounds(tmp_path: Path, key: str, value: str) -> None:
    with pytest.raises(SettingsError, match=f"setting 'second_opinion.{key}': must be"):
        read(tmp_path, second("triton", f"{key} = {value}"))


def test_prompts_of_its_own_are_refused(tmp_path: Path) -> None:
    (tmp_path / "prompts").mkdir()
    own = f"[judges.strong.prompts]\nfolder = '{tmp_path / 'prompts'}'\n"
    with pytest.raises(SettingsError, match="has prompts of its own, and a process has one set of prompts"):
        read(tmp_path, STRONG + own + second("strong"))
