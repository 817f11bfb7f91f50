"""Settings: one file, then the environment, and every error names its key."""

from __future__ import annotations

from pathlib import Path

import pytest

from groundwatch.errors import SettingsError
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.settings.reading import load


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "groundwatch.toml"
    path.write_text(text, "utf-8")
    return path


def test_no_file_is_needed() -> None:
    assert load(environment={}) == Settings()


def test_file_then_environment(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
        data_dir = "/data"
        [nats]
        url = "nats://file"
        replicas = 3
        [gateway]
        protocols = ["faithscore"]
        [[gateway.sampling]]
        rate = 0.25
        model = "heron-7b"
        [protocols.faithscore.weights]
        color = 0.5
        """,
    )
    found = load(
        path, {"GROUNDWATCH_NATS__URL": "nats://variable", "GROUNDWATCH_GATEWAY__INTAKE__MAX_IMAGES": "3"}
    )
    assert found.data_dir == "/data"
    assert (found.nats.url, found.nats.replicas) == ("nats://variable", 3)
    assert found.gateway.intake.max_images == 3
    assert found.gateway.sampling[0].rate == 0.25
    assert found.protocols.faithscore.weights == {"color": 0.5}


def test_the_environment_may_name_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, '[nats]\nurl = "nats://here"\n')
    assert load(environment={"GROUNDWATCH_CONFIG": str(path)}).nats.url == "nats://here"


def test_a_commands_token_is_no_setting() -> None:
    assert load(environment={"GROUNDWATCH_TOKEN": "acme-token-0123456789"}) == Settings()
    assert load(environment={"GROUNDWATCH_URL": "http://gateway:8787"}) == Settings()


@pytest.mark.parametrize(
    ("name", "text", "found"),
    (
        ("GROUNDWATCH_EXTRACTION__ENGINE", "noop", lambda s: s.extraction.engine == "noop"),
        ("GROUNDWATCH_EXTRACTION__ENGINE", '"noop"', lambda s: s.extraction.engine == "noop"),
        ("GROUNDWATCH_EXTRACTION__ENGINE", "7", lambda s: s.extraction.engine == "7"),
        ("GROUNDWATCH_NATS__CREDENTIALS", "true", lambda s: s.nats.credentials == "true"),
        ("GROUNDWATCH_DATA_DIR", "2024-01-01", lambda s: s.data_dir == "2024-01-01"),
        ("GROUNDWATCH_EXTRACTION__CONCURRENCY", "8", lambda s: s.extraction.concurrency == 8),
        ("GROUNDWATCH_RETRY__FIRST_DELAY", "2", lambda s: s.retry.first_delay == 2.0),
        (
            "GROUNDWATCH_GATEWAY__PROTOCOLS",
            '["faithscore"]',
            lambda s: s.gateway.protocols == ("faithscore",),
        ),
        ("GROUNDWATCH_GATEWAY__SAMPLING", "[{rate = 0.5}]", lambda s: s.gateway.sampling[0].rate == 0.5),
    ),
)
def test_variables_are_read_as_toml_or_as_text(name: str, text: str, found) -> None:
    assert found(load(environment={name: text}))


@pytest.mark.parametrize(
    ("environment", "says"),
    (
        (
            {"GROUNDWATCH_NATS__URLL": "x"},
            "setting 'nats.urll': no such setting; did you mean nats.url?",
        ),
        (
            {"GROUNDWATCH_GATWAY__PORT": "1"},
            "setting 'gatway.port': no such setting; did you mean gateway.port?",
        ),
        ({"GROUNDWATCH_NONSENSE": "x"}, "setting 'nonsense': no such setting"),
        (
            {"GROUNDWATCH_GATEWAY__GRPC__REPLAYS": "2"},
            "setting 'gateway.grpc.replays': no such setting; gateway.replays is one",
        ),
        ({"GROUNDWATCH_NATS__REPLICAS": "many"}, "setting 'nats.replicas': must be a valid integer"),
        ({"GROUNDWATCH_NATS__REPLICAS": "9"}, "setting 'nats.replicas': must be at most 5"),
        ({"GROUNDWATCH_ALARM__RESPONSES": "9"}, "setting 'alarm.responses': must be at least 100"),
        ({"GROUNDWATCH_ALARM__LEARN": "1"}, "setting 'alarm.learn': must be at least 20"),
        ({"GROUNDWATCH_ALARM__MARGIN": "-0.1"}, "setting 'alarm.margin': must be at least 0"),
        ({"GROUNDWATCH_ALARM__MARGIN": "nan"}, "setting 'alarm.margin': must be a finite number"),
        ({"GROUNDWATCH_ALARM__OBJECTIVE": "1.0"}, "setting 'alarm.objective': must be less than 1"),
        ({"GROUNDWATCH_NATS__PUBLISH_TIMEOUT": "0"}, "setting 'nats.publish_timeout'"),
        ({"GROUNDWATCH_NATS__PUBLISH_TIMEOUT": "nan"}, "setting 'nats.publish_timeout'"),
        ({"GROUNDWATCH_NATS__MAX_PAYLOAD": "10"}, "setting 'nats.max_payload'"),
        ({"GROUNDWATCH_RETRY__ATTEMPTS": "0"}, "setting 'retry.attempts'"),
        ({"GROUNDWATCH_RETRY__FIRST_DELAY": "-1"}, "setting 'retry.first_delay'"),
        ({"GROUNDWATCH_RETRY__MAX_DELAY": "0.5"}, "setting 'retry.max_delay'"),
        ({"GROUNDWATCH_GATEWAY__PORT": "70000"}, "setting 'gateway.port'"),
        ({"GROUNDWATCH_GATEWAY__INTAKE__IN_FLIGHT": "0"}, "setting 'gateway.intake.in_flight'"),
        ({"GROUNDWATCH_GATEWAY__INTAKE__MAX_IMAGE_PIXELS": "0"}, "setting 'gateway.intake.max_image_pixels'"),
        ({"GROUNDWATCH_GATEWAY__INTAKE__MAX_IMAGES": "-1"}, "setting 'gateway.intake.max_images'"),
        ({"GROUNDWATCH_TELEMETRY__PORT": "-1"}, "setting 'telemetry.port'"),
        ({"GROUNDWATCH_TELEMETRY__LOG_LEVEL": "loud"}, "setting 'telemetry.log_level'"),
        ({"GROUNDWATCH_TELEMETRY__LOG_FORMAT": "xml"}, "setting 'telemetry.log_format'"),
        ({"GROUNDWATCH_TELEMETRY__MAX_LABELS": "0"}, "setting 'telemetry.max_labels'"),
        (
            {"GROUNDWATCH_PROTOCOLS__FAITHSCORE__WEIGHTS__COLOR": "-1"},
            "setting 'protocols.faithscore.weights.color'",
        ),
        ({"GROUNDWATCH_EXTRACTION__CONCURRENCY": "-2"}, "setting 'extraction.concurrency'"),
        ({"GROUNDWATCH_VERIFICATION__ENGINE": "llm"}, "setting 'verification.llm'"),
        (
            {"GROUNDWATCH_VERIFICATION__PROTOCOLS__TRI-HE__ENGINE": "triton"},
            "setting 'verification.protocols.tri-he.engine': triton cannot judge tri-he: "
            "use calibrated or similarity or llm or reference$",
        ),
        (
            {"GROUNDWATCH_VERIFICATION__PROTOCOLS__FAITHSCORE__ENGINE": "visual"},
            "setting 'verification.protocols.faithscore.llm': engine visual needs",
        ),
        (
            {"GROUNDWATCH_VERIFICATION__PROTOCOLS__CHAIR__ENGINE": "reference"},
            "setting 'verification.protocols.chair.engine': chair has no claims to verify",
        ),
        (
            {"GROUNDWATCH_VERIFICATION__PROTOCOLS__CHESS__ENGINE": "llm"},
            "setting 'verification.protocols.chess': no protocol 'chess'; known are amber, ",
        ),
        (
            {"GROUNDWATCH_MATCHING__PROTOCOLS__FAITHSCORE__ENGINE": "noop"},
            "setting 'matching.protocols': only for verification",
        ),
        ({"GROUNDWATCH_VERIFICATION__LLM__MODEL": "m"}, "setting 'verification.llm.base_url': is missing"),
        (
            {
                "GROUNDWATCH_VERIFICATION__LLM__MODEL": "m",
                "GROUNDWATCH_VERIFICATION__LLM__BASE_URL": "ftp://x",
            },
            "setting 'verification.llm.base_url': must be an http",
        ),
        ({"GROUNDWATCH_GATEWAY__SAMPLING": "[{rate = 2}]"}, r"setting 'gateway.sampling\[0\].rate'"),
        ({"GROUNDWATCH_DATA_DIR": "x", "GROUNDWATCH_DATA_DIR__X": "y"}, "'data_dir' is a value"),
    ),
)
def test_every_error_names_its_key(environment: dict[str, str], says: str) -> None:
    with pytest.raises(SettingsError, match=says) as caught:
        load(environment=environment)
    assert "\n" not in str(caught.value)


def test_an_error_in_a_file_names_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, "[nats]\nurll = 'x'\n")
    with pytest.raises(SettingsError, match=rf"{path}: setting 'nats\.urll': no such setting"):
        load(path, {})


def test_a_setting_that_stands_elsewhere_by_now_is_told_with_its_place(tmp_path: Path) -> None:
    path = written(
        tmp_path, "[gateway.grpc]\nreplays = 2\nreplay_nkey_seed_file = '/seed'\ncomparisons = 1\n"
    )
    with pytest.raises(SettingsError) as caught:
        load(path, {})
    assert [line.removeprefix(f"{path}: setting 'gateway.grpc.") for line in caught.value.problems] == [
        "replays': no such setting; gateway.replays is one",
        "replay_nkey_seed_file': no such setting; gateway.replay_nkey_seed_file is one",
        "comparisons': no such setting; gateway.http.comparisons is one",
    ]


@pytest.mark.parametrize("text", ("[nats\n", "a = = 1"))
def test_a_file_that_is_not_toml(tmp_path: Path, text: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(SettingsError, match=rf"{path}: is not TOML"):
        load(path, {})


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(SettingsError, match="is not TOML"):
        load(path, {})


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read"):
        load(tmp_path / "none.toml", {})


def test_what_kubernetes_puts_into_the_environment_is_not_ours() -> None:
    links = {
        "GROUNDWATCH_GATEWAY_SERVICE_HOST": "10.0.0.1",
        "GROUNDWATCH_GATEWAY_SERVICE_PORT": "8787",
        "GROUNDWATCH_GATEWAY_SERVICE_PORT_HTTP": "8787",
        "GROUNDWATCH_GATEWAY_PORT": "tcp://10.0.0.1:8787",
        "GROUNDWATCH_GATEWAY_PORT_8787_TCP": "tcp://10.0.0.1:8787",
        "GROUNDWATCH_GATEWAY_PORT_8787_TCP_PROTO": "tcp",
        "GROUNDWATCH_GATEWAY_PORT_8787_TCP_ADDR": "10.0.0.1",
        "GROUNDWATCH_PORT": "tcp://10.0.0.1:8787",
        "GROUNDWATCH_SERVICE_HOST": "10.0.0.1",
    }
    assert load(environment=links) == Settings()


def test_settings_bring_no_client_broker_or_web_framework() -> None:
    import subprocess
    import sys

    heavy = {"openai", "httpx", "starlette", "aiohttp", "faststream", "nats", "torch"}
    code = f"import sys, groundwatch.runtime.settings; sys.exit(str(sys.modules.keys() & {heavy} or ''))"
    done = subprocess.run((sys.executable, "-c", code), check=False, capture_output=True, text=True)
    assert done.stderr.strip() == ""
