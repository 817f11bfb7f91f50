"""Judges that settings name."""

from __future__ import annotations

import pytest

from groundwatch.errors import SettingsError, UsageError
from groundwatch.models.settings import ChatSettings
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.settings.reading import (
    JUDGING,
    as_variables,
    load,
    with_judge,
)

OURS = {"base_url": "http://judge.internal/v1", "model": "m", "api_key_env": "JUDGE_KEY"}
STRICT = """
[judges.strict.verification]
engine = "llm"
llm = { base_url = "http://judge.internal/v1", model = "m", api_key_env = "JUDGE_KEY" }
[judges.strict.visual]
threshold = 0.9
"""


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
        ("[judges.a.verificaton]\nengine = 'noop'", "did you mean judges.a.verification?"),
        ("[judges.a.verification]\nengin = 'noop'", "did you mean judges.a.verification.engine?"),
    ],
)
def test_a_wrong_named_judge_is_a_wrong_setting(tmp_path, text, word):
    with pytest.raises(SettingsError) as caught:
        settings_of(tmp_path, text)
    assert word in str(caught.value)


def test_variables_bring_settings_over_as_they_are(tmp_path):
    text = STRICT + '[retention.tenants."a \\u00e9 \\u007f \\"b\\""]\nasked = 1e22\n'
    settings = settings_of(tmp_path, text)
    variables = as_variables(settings, ("nats", *JUDGING, "judges", "retention"))
    assert load(None, variables) == settings
