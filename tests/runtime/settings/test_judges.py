"""Judges that settings name, and how far the settings in a run's record may reach."""

from __future__ import annotations

import pytest

from groundwatch.errors import SettingsError, UsageError
from groundwatch.models.settings import ChatSettings, TritonSettings
from groundwatch.runtime.settings import Settings, StageSettings
from groundwatch.runtime.settings.reading import (
    JUDGING,
    as_variables,
    judging_sections,
    load,
    with_file,
    with_judge,
    with_run,
)

OURS = {"base_url": "http://judge.internal/v1", "model": "m", "api_key_env": "JUDGE_KEY"}
STRICT = """
[judges.strict.verification]
engine = "llm"
llm = { base_url = "http://judge.internal/v1", model = "m", api_key_env = "JUDGE_KEY" }
[judges.strict.visual]
threshold = 0.9
"""


def llm(**changes: str) -> StageSettings:
    return StageSettings(engine="llm", llm=ChatSettings(**(OURS | changes)))


def settings_of(tmp_path, text: str, **environment: str) -> Settings:
    path = tmp_path / "settings.toml"
    path.write_text(text)
    return load(path, environment)


def test_a_named_judge_lies_over_the_settings_in_use(tmp_path):
    settings = settings_of(tmp_path, STRICT + "[extraction]\nengine = 'noop'\n")
    judge = with_judge(settings, "strict")
    assert judge.verification.llm == ChatSettings(**OURS)
    assert (judge.visual.threshold, judge.extraction.engine) == (0.9, "noop")
    assert with_judge(settings, "") == settings
    with pytest.raises(UsageError, match="no judge 'mild' is named in the settings; named are: strict"):
        with_judge(settings, "mild")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("[judges.a.gateway]\nport = 1", "'judges.a.gateway'"),
        ("[judges.a]\nverification = 'llm'", "'judges.a.verification'"),
        ("[judges.a.verification]\nengine = 'llm'", "'judges.a.verification.llm'"),
        ("[judges.a.verification]\nconcurrency = 'x'", "'judges.a.verification.concurrency'"),
        ("[judges.'a b'.verification]\nengine = 'noop'", "'judges'"),
    ],
)
def test_a_wrong_named_judge_is_a_wrong_setting(tmp_path, text, word):
    with pytest.raises(SettingsError) as caught:
        settings_of(tmp_path, text)
    assert word in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"base_url": "http://evil.test/v1"},
        {"api_key_env": "AWS_SECRET_ACCESS_KEY"},
    ],
)
@pytest.mark.parametrize("stage", ["extraction", "verification", "matching", "scoring"])
def test_a_run_shows_no_key_to_an_address_that_is_not_ours(changes, stage):
    ours = Settings(verification=llm())
    theirs = judging_sections(ours.model_copy(update={stage: llm(**changes)}))
    with pytest.raises(SettingsError) as caught:
        with_run(ours, theirs)
    assert next(iter(changes.values())) in str(caught.value)


@pytest.mark.parametrize(
    "theirs",
    [
        Settings(verification=StageSettings(embedding_model="/somewhere")),
        Settings(verification=StageSettings(engine="triton"), triton=TritonSettings(url="evil.test:1")),
        Settings(
            verification=StageSettings(engine="triton"),
            triton=TritonSettings(url="ours:8001", tls=True, tls_ca="/theirs.pem"),
        ),
    ],
)
def test_a_run_loads_no_folder_and_asks_no_triton_of_its_own(theirs):
    with pytest.raises(SettingsError, match="nowhere in these settings"):
        with_run(Settings(triton=TritonSettings(url="ours:8001", tls=True)), judging_sections(theirs))


def test_a_run_reads_no_prompts_of_its_own(tmp_path):
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "salaries.md").write_text("x")
    begun = judging_sections(Settings()) | {"prompts": {"folder": str(tmp_path / "secrets")}}
    with pytest.raises(SettingsError, match=r"prompts in .* nowhere in these settings") as refused:
        with_run(Settings(), begun)
    assert "salaries" not in str(refused.value)
    (tmp_path / "own" / "pope").mkdir(parents=True)
    (tmp_path / "own" / "pope" / "verify.md").write_text(
        "# Instructions\nJudge.\n# Question\n{{reference}} {{answered}}"
    )
    ours = settings_of(tmp_path, f"[judges.own.prompts]\nfolder = '{tmp_path / 'own'}'\n")
    begun = judging_sections(with_judge(ours, "own"))
    assert with_run(ours, begun).prompts.folder == str(tmp_path / "own")


def test_a_run_is_judged_by_what_its_record_says_within_that(tmp_path):
    ours = settings_of(tmp_path, STRICT)
    begun = judging_sections(with_judge(ours, "strict"))
    assert with_run(ours, begun).verification == llm()
    # An unused Triton is of no interest; engines and thresholds are free.
    theirs = Settings(verification=StageSettings(engine="noop"), triton=TritonSettings(url="unused:1"))
    assert with_run(ours, judging_sections(theirs)).verification.engine == "noop"
    assert with_run(ours, {}) == ours


def test_an_operators_file_reaches_what_it_names(tmp_path):
    path = tmp_path / "with.toml"
    path.write_text(
        "[verification]\nengine = 'llm'\nllm = { base_url = 'http://new.test/v1', model = 'm' }\n"
    )
    settings = with_file(Settings(), path)
    assert with_run(settings, judging_sections(settings)).verification.llm.base_url == "http://new.test/v1"
    with pytest.raises(SettingsError):
        with_run(Settings(), judging_sections(settings))


def test_variables_bring_settings_over_as_they_are(tmp_path):
    text = STRICT + '[retention.tenants."a \\u00e9 \\u007f \\"b\\""]\nasked = 1e22\n'
    settings = settings_of(tmp_path, text)
    variables = as_variables(settings, ("nats", *JUDGING, "judges", "retention"))
    assert load(None, variables) == settings
