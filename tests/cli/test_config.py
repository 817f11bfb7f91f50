"""`groundwatch admin config check`: every problem of a file and the environment at once, one line each."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.support.endpoints import EndpointServer
from typer.testing import CliRunner, Result

from groundwatch.cli import app, main
from groundwatch.system.settings_check import is_local

LLM = '[verification]\nengine = "llm"\n[verification.llm]\nmodel = "m"\nbase_url = "{url}"\n'


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Runs the command on a file's text with variables; gives its result. `show` in place of `check`."""
    for name in list(os.environ):
        if name.startswith("GROUNDWATCH_") or name == "OPENAI_API_KEY":
            monkeypatch.delenv(name)

    def run(
        text: str | None, *arguments: str, command: str = "check", ask: bool = False, **variables: str
    ) -> Result:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        file = tmp_path / "groundwatch.toml"
        if text is not None:
            file.write_text(text)
        asked = ("--offline",) if command == "check" and not ask else ()
        return CliRunner().invoke(
            app, ["admin", "config", command, *([str(file)] if text is not None else []), *asked, *arguments]
        )

    return run


def lines(result: Result) -> list[str]:
    """The problems: on standard error, each with the program's name before it, and exit status 2."""
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    told = result.stderr.splitlines()
    assert all(line.startswith("groundwatch: ") for line in told)
    return [line.removeprefix("groundwatch: ") for line in told]


def test_defaults_are_right(check):
    result = check(None)
    assert result.exit_code == 0
    assert result.stderr == ""
    assert result.stdout.startswith("settings are right: no file, 0 variables\n")
    assert "extraction reader" in result.stdout


def notes(result: Result) -> str:
    assert result.exit_code == 0, result.stderr
    return " ".join(result.output.split())


OIDC = """
[gateway.login]
url = "https://gw.example"
cookie_secret_env = "COOKIE"
[gateway.login.oidc]
issuer = "https://id.example"
client_id = "groundwatch"
client_secret_env = "CLIENT"
[[gateway.login.oidc.groups]]
name = "*"
role = "viewer"
tenant = "*"
"""


def test_who_may_come_in_is_looked_at(check, tmp_path):
    told = lines(check(OIDC, COOKIE="short"))
    assert [line for line in told if "gateway.login" in line] == [
        "setting 'gateway.login.cookie_secret_env': the secret needs at least 32 characters: make one with "
        "openssl rand -hex 32",
        "setting 'gateway.login.oidc.client_secret_env': the variable CLIENT is not set or empty",
    ]
    told = lines(check('[gateway]\ntokens_file = "/none/such"\n'))
    assert any("gateway.tokens_file" in line and "No such file" in line for line in told)
    assert "accounts" in notes(check(OIDC, COOKIE="c" * 32, CLIENT="secret"))


def test_what_is_open_to_others_or_to_nobody_is_said(check, tmp_path):
    assert "gateway.open" not in notes(check('[gateway]\nhost = "127.0.0.1"\n'))
    assert "answers its own machine alone" in notes(check('[gateway]\nhost = "0.0.0.0"\n'))
    told = notes(check('[gateway]\nhost = "0.0.0.0"\nopen = true\n'))
    assert "whoever reaches the gateway may do everything" in told
    tokens = tmp_path / "tokens"
    tokens.write_text("* every-token-0123456789\n")
    told = notes(check(f'[gateway]\nhost = "0.0.0.0"\ntokens_file = "{tokens}"\n'))
    assert "gateway.open" not in told and "each knows its own alone" in told


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (('url = "https://gw.example"\n', ""), "'gateway.login.url': is missing"),
        (("https://gw.example", "https://gw.example/pages"), "ends with the host"),
        (("https://gw.example", "gw.example"), "must be an address"),
        (("https://id.example", "http://id.example"), "must be https"),
        (('role = "viewer"', 'role = "sender"'), "role"),
        (('tenant = "*"', ""), "tenant': is missing"),
        (('client_id = "groundwatch"', 'client_id = "groundwatch"\nscopes = ["email"]'), "openid"),
    ],
)
def test_a_wrong_login_is_told_by_its_key(check, change, word):
    told = lines(check(OIDC.replace(*change), COOKIE="c" * 32, CLIENT="secret"))
    assert any(word in line for line in told), told


def test_every_problem_is_told_at_once(check, tmp_path):
    told = lines(
        check(
            """
            [nats]
            url = "http://user:geheim@x:4222"
            nkey_seed_file = "/nope.nk"
            [gateway]
            prot = 5
            protocols = ["faithscore", "faitscore"]
            [[gateway.sampling]]
            rate = 3
            [[gateway.sampling]]
            rate = 0.5
            protocol = "valr"
            [[gateway.sampling]]
            rat = 0.5
            [extraction]
            engine = "lmm"
            [verification]
            engine = "llm"
            concurrency = -1
            [verification.llm]
            base_url = "https://api.example.com"
            model = "m"
            api_key_env = "NOPE_KEY"
            [matching]
            engine = "llm"
            [generation]
            engine = "openai"
            [generation.llm]
            base_url = "ftp://x"
            model = "m"
            [captioning.models.heron]
            base_url = "http://heron/v1"
            model = ""
            [captioning.models.osprey]
            base_url = "http://osprey:8000/v1/chat/completions"
            model = "x"
            [protocols.faithscore.weights]
            entties = 2
            [retry]
            attempts = 0
            first_delay = "soon"
            """,
            GROUNDWATCH_DATA_DIR=str(tmp_path / "groundwatch.toml" / "data"),
            GROUNDWATCH_GATEWAY__PORT="abc",
            GROUNDWATCH_NIX="3",
        )
    )
    file = tmp_path / "groundwatch.toml"
    expected = [
        f"{file}: setting 'captioning.models.heron.model': must be named",
        f"{file}: setting 'gateway.prot': no such setting; did you mean gateway.port?",
        "GROUNDWATCH_GATEWAY__PORT: setting 'gateway.port': must be a valid integer",
        f"{file}: setting 'gateway.sampling[2].rate': is missing",
        f"{file}: setting 'gateway.sampling[2].rat': no such setting",
        f"{file}: setting 'generation.llm.base_url': must be an http(s) address",
        f"{file}: setting 'retry.first_delay': must be a valid number",
        "GROUNDWATCH_NIX: setting 'nix': no such setting",
        f"{file}: setting 'retry.attempts': must be at least 1",
        f"{file}: setting 'gateway.sampling[0].rate': must be at most 1",
        f"{file}: setting 'verification.concurrency': must be at least 0",
        f"{file}: setting 'matching.llm': engine llm needs at least base_url and model here",
        f"{file}: setting 'protocols.faithscore.weights.entties': no such category",
        f"{file}: setting 'gateway.protocols[1]': no protocol 'faitscore'; known are ",
        f"{file}: setting 'gateway.sampling[1].protocol': no protocol 'valr'; known are ",
        "setting 'nats.url': 'http://…@x:4222' is no address such as nats://host:4222",
        "setting 'nats.nkey_seed_file': no file at /nope.nk",
        f"setting 'data_dir': {file}/data cannot be written: {file} is no folder",
        "setting 'captioning.models.osprey.base_url': leave out /chat/completions: ",
        "setting 'verification.llm.base_url': 'https://api.example.com' has no path",
        "setting 'verification.llm.api_key_env': the variable NOPE_KEY is not set or empty",
        "setting 'extraction.engine': no engine 'lmm'; known are reader, llm, noop",
    ]
    for start in expected:
        assert sum(line.startswith(start) for line in told) == 1, (start, told)
    assert len(told) == len(expected), told
    assert "geheim" not in "\n".join(told)


@pytest.mark.parametrize("stage", ["extraction", "captioning", "generation", "matching", "verification"])
def test_an_engine_that_no_stage_knows(check, stage):
    (told,) = lines(check(f'[{stage}]\nengine = "warp"\n'))
    assert told.startswith(f"setting '{stage}.engine': no engine 'warp'; known are ")


def test_scoring_has_no_engine(check):
    assert lines(check('[scoring]\nengine = "llm2"\n')) == [
        "setting 'scoring.engine': scoring has no engines: leave it out"
    ]


@pytest.mark.parametrize(
    ("url", "key", "told"),
    [
        ("http://vllm:8000/v1", "", ""),
        ("http://10.1.2.3:8000/v1", "", ""),
        ("https://api.example.com/v1", "sk", ""),
        ("https://api.example.com/openai/v4/", "sk", ""),
        ("https://api.example.com/v1", "", "api_key_env': the variable OPENAI_API_KEY is not set"),
        ("http://vllm:8000", "", "base_url': 'http://vllm:8000' has no path"),
        ("http://vllm:8000/v1/completions", "", "base_url': leave out /completions"),
        ("http:///v1", "sk", "base_url': 'http:///v1' names no host"),
    ],
)
def test_an_endpoint_of_a_stage(check, url, key, told):
    result = check(LLM.format(url=url), **({"OPENAI_API_KEY": key} if key else {}))
    if told:
        (line,) = lines(result)
        assert line.startswith("setting 'verification.llm.") and told in line
    else:
        assert (result.exit_code, result.stderr) == (0, "")


def test_it_tells_who_judges_which_protocol(check):
    text = '[verification]\nengine = "triton"\n[verification.protocols.pope]\nengine = "reference"\n'
    labelled = dict.fromkeys(("amber-attribute", "amber-existence", "amber-relation", "dash-b"), "reference")
    judges = labelled | {
        "faithscore": "triton",
        "pope": "reference",
        "tri-he": "calibrated",
        "vlm2": "triton",
    }
    told = ", ".join(f"{name} {engine}" for name, engine in judges.items())
    assert f"judges: {told}\n" in check(text).stdout
    assert json.loads(check(text, "--json").stdout)["judges"] == judges


def test_it_tells_who_judges_in_a_row_and_looks_at_each_endpoint(check):
    llm = 'llm = { model = "m", base_url = "http://vllm:8000/v1" }'
    steps = f'cascade = [{{ engine = "triton", supported_above = 0.9 }}, {{ engine = "llm", {llm} }}]\n'
    text = f'[verification.protocols.faithscore]\nengine = "cascade"\n{steps}'
    assert "faithscore triton (>0.9) > llm, pope reference, tri-he" in check(text).stdout
    (line,) = lines(check(text.replace("8000/v1", "8000")))
    assert line.startswith(
        "setting 'verification.protocols.faithscore.cascade[1].llm.base_url': 'http://vllm:80"
    )
    shared = f"[verification]\n{llm}\n{text.replace(', ' + llm, '')}"
    assert "is not used" not in check(shared).stdout
    assert "'verification.llm': is not used" in check(shared.replace('"llm" }', '"reference" }')).stdout


def test_a_protocols_own_endpoint_is_looked_at(check):
    llm = '[verification.protocols.tri-he.llm]\nmodel = "m"\nbase_url = "http://vllm:8000"\n'
    engine = '[verification.protocols.tri-he]\nengine = "llm"\n'
    (line,) = lines(check(engine + llm))
    assert line.startswith("setting 'verification.protocols.tri-he.llm.base_url': 'http://vllm:8000' has no")
    (line,) = lines(check(f"[judges.j]\n{engine}{llm}".replace("[verification", "[judges.j.verification")))
    assert line.startswith("setting 'judges.j.verification.protocols.tri-he.llm.base_url'")
    assert "llm': is not used by the engine that is set" in check(llm).stdout


def test_what_is_allowed_and_may_not_be_meant_is_a_note(check):
    text = '[extraction]\nengine = "noop"\n[extraction.llm]\nmodel = "m"\nbase_url = "http://v/api"\n'
    result = check(text)
    assert result.exit_code == 0
    assert "note: setting 'extraction.llm': is not used by the engine that is set" in result.stdout
    text = text.replace("noop", "llm")
    assert "note: setting 'extraction.llm.base_url': 'http://v/api' has no version" in check(text).stdout


def test_what_is_effective_says_where_it_comes_from(check, tmp_path):
    result = check(
        LLM.format(url="http://vllm:8000/v1"),
        "--json",
        command="show",
        GROUNDWATCH_NATS__URL="nats://me:geheim@host:4222",
        GROUNDWATCH_VERIFICATION__LLM__MODEL="7",
    )
    assert result.exit_code == 0, result.stdout
    found = json.loads(result.stdout)
    file = str(tmp_path / "groundwatch.toml")
    assert found["set"]["verification.llm.base_url"] == {"value": "http://vllm:8000/v1", "from": file}
    assert found["set"]["nats.url"] == {"value": "nats://…@host:4222", "from": "GROUNDWATCH_NATS__URL"}
    assert found["set"]["verification.llm.model"]["from"] == "GROUNDWATCH_VERIFICATION__LLM__MODEL"
    assert found["effective"]["verification"]["llm"]["model"] == "7"
    assert found["effective"]["gateway"]["port"] == 8787
    assert "geheim" not in result.stdout


def test_more_requests_at_once_than_messages_are_given_out(check):
    text = "[extraction]\nreplicas = 100\nconcurrency = 64\nmax_ack_pending = {}\n"
    (told,) = lines(check(text.format(6399)))
    assert told == (
        "setting 'extraction.max_ack_pending': 6399 is below what 100 replicas ask for at once, 64 each: "
        "set at least 6400, or 0 to have it computed"
    )
    assert check(text.format(6400)).exit_code == check(text.format(0)).exit_code == 0


def test_problems_as_json(check):
    result = check("[gateway]\nport = -1\n", "--json")
    assert result.exit_code == 2
    found = json.loads(result.stdout)
    assert found["ok"] is False
    assert len(found["problems"]) == 1


def test_files_that_are_not_there(check, tmp_path):
    nats = '[nats]\ntls_ca = "/nope/ca.pem"\ncredentials = "/nope/a.creds"\n'
    told = lines(check(f'{nats}[triton]\ntls = true\ntls_ca = "/nope/t"\n'))
    assert len(told) == 3
    for key in ("nats.tls_ca", "nats.credentials", "triton.tls_ca"):
        assert any(line.startswith(f"setting '{key}': ") and "/nope/" in line for line in told), told
    (told,) = lines(check('[matching]\nembedding_model = "/nope/model"\n'))
    assert told.startswith("setting 'matching.embedding_model': /nope/model")


@pytest.mark.parametrize(
    ("content", "told"), [(None, "cannot be read"), ("x =", "is not TOML"), ("[nats\n", "is not TOML")]
)
def test_a_file_that_cannot_be_read(check, tmp_path, content, told):
    file = tmp_path / "other.toml"
    if content is not None:
        file.write_text(content)
    found = lines(check(None, str(file), GROUNDWATCH_GATEWAY__PORT="-1"))
    assert found[0].startswith(f"{file}: {told}")
    assert found[1].startswith("GROUNDWATCH_GATEWAY__PORT: setting 'gateway.port': must be")
    assert len(found) == 2


def test_the_file_that_the_environment_names(check, tmp_path):
    file = tmp_path / "named.toml"
    file.write_text("[gateway]\nport = 1234\n")
    named = {"GROUNDWATCH_CONFIG": str(file), "GROUNDWATCH_SERVICE_PORT": "tcp://10.0.0.1:80"}
    assert check(None, **named).exit_code == 0
    result = check(None, command="show", **named)
    assert result.exit_code == 0
    assert f"gateway.port = 1234   ({file})" in result.stdout


def test_a_value_where_a_section_belongs(check):
    (told,) = lines(check("[nats]\nurl = 'nats://h'\n", GROUNDWATCH_NATS__URL__HOST="x"))
    assert told.startswith("GROUNDWATCH_NATS__URL__HOST: setting 'nats.url': must be a valid string")


def test_only_the_stage_that_runs_in_this_container(check):
    text = '[matching]\nengine = "warp"\n'
    assert check(text, "--stage", "verification").exit_code == 0
    assert check(text, "--stage", "matching").exit_code == 2
    wrong = check(text, "--stage", "gateway")
    assert "no stage 'gateway' with engines" in str(wrong.exception)


def test_an_engine_whose_packages_are_missing(check, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    told = lines(check(None, "--stage", "extraction", "--stage", "verification", "--stage", "matching"))
    assert len(told) == 3
    for line in told:
        assert "does not run here" in line
        assert "pip install 'groundwatch[embedded]'" in line


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("localhost", True),
        ("vllm.models.svc", True),
        ("host.docker.internal", True),
        ("::1", True),
        ("192.168.1.4", True),
        ("8.8.8.8", False),
        ("api.openai.com", False),
    ],
)
def test_hosts_near_and_far(host, local):
    assert is_local(host) is local


SECRET = "pl4nt3d"
PLANTED = f"""
[nats]
url = "nats://user:p/{SECRET}?,@@127.0.0.1:1,nats://{SECRET}@127.0.0.1:2"
[archive]
url = "s3://key:{SECRET}@bucket/path"
[archive.options]
key = "{SECRET}"
secret = "{SECRET}"
endpoint_url = "http://a:{SECRET}@s3.local/"
[archive.options.client_kwargs]
aws_session_token = "{SECRET}"
[verification]
engine = "llm"
[verification.llm]
base_url = "https://u:{SECRET}@llm.example/v1?api-key={SECRET}"
model = "m"
api_key_env = "sk-{SECRET}"
[captioning]
engine = "openai"
[captioning.models.x]
base_url = "https://u:{SECRET}@llm.example"
model = "m"
[images]
encoder_url = "http://u:{SECRET}@[::"
[judges.j.matching.llm]
base_url = "http://u:{SECRET}@localhost/v1"
model = "m"
"""


@pytest.mark.parametrize("arguments", [(), ("--json",)])
@pytest.mark.parametrize("wrong", ["", "[nats]", "= ", '[retry]\nattempts = "x"'])
def test_no_secret_is_shown(check, arguments, wrong):
    result = check(PLANTED + wrong, *arguments, GROUNDWATCH_TRITON__URL=f"u:{SECRET}@h:1")
    assert result.exit_code == 2
    assert result.output
    assert SECRET not in result.output


@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_settings_with_secrets_that_are_right_are_shown_without(check, arguments):
    text = PLANTED.partition("[verification]")[0].replace(f"p/{SECRET}?,@@", f"{SECRET}@")
    result = check(text, *arguments, command="show")
    assert result.exit_code == 0, result.output
    assert SECRET not in result.output
    assert "nats://…@127.0.0.1:1,nats://…@127.0.0.1:2" in result.output


@pytest.mark.parametrize("command", ["report", "watch", "serve matching", "audit", "admin provision"])
@pytest.mark.slow
def test_a_refused_connection_is_told_without_its_password(command, monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("GROUNDWATCH_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("GROUNDWATCH_NATS__URL", f"nats://user:{SECRET}@127.0.0.1:1")
    monkeypatch.setattr("sys.argv", ["groundwatch", *command.split()])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    told = capsys.readouterr()
    assert SECRET not in told.out + told.err
    assert "nats://…@127.0.0.1:1" in told.err.splitlines()[-1]


def test_prompts_of_ones_own_are_told(check, tmp_path):
    (tmp_path / "own" / "genception").mkdir(parents=True)
    (tmp_path / "own" / "genception" / "describe.md").write_text("Say what is there.")
    text = f"[prompts]\nfolder = '{tmp_path / 'own'}'\n"
    assert "\nprompts: own: genception/describe\n" in check(text).stdout
    assert json.loads(check(text, "--json").stdout)["own_prompts"] == ["genception/describe"]
    (tmp_path / "own" / "genception" / "describe.md").write_text("")
    (told,) = lines(check(text))
    assert told.endswith("describe.md is empty") and "setting 'prompts.folder'" in told


JUDGE = LLM + LLM.replace("verification", "extraction")


@pytest.mark.parametrize(
    ("server", "told"),
    [
        (EndpointServer("vllm"), "sees images; gives log-probabilities; does not think first"),
        (
            EndpointServer("sglang", thinks=True),
            "sees images; gives log-probabilities; thinks first: extra_body can turn that off",
        ),
        (
            EndpointServer("ollama", sees=False, logprobs=False),
            "does not see images (Error code: 400 - this model does not support image input); gives no "
            "log-probabilities: words alone; does not think first",
        ),
        (
            EndpointServer("openai", thinks=True),
            "sees images; gives no log-probabilities: words alone; thinks first: extra_body can turn that "
            "off; does not take max_tokens, temperature",
        ),
    ],
    ids=lambda one: one.kind if isinstance(one, EndpointServer) else None,
)
def test_an_endpoint_is_asked_once_what_its_model_can(check, server, told):
    with server:
        result = check(JUDGE.format(url=server.base_url), ask=True)
        asked = len([one for one in server.requests if "two colours" in str(one["messages"])])
    for key in ("verification.llm", "extraction.llm"):
        assert f"endpoint {key}: m {told}\n" in result.output, result.output
    # One request for both, but for those that were refused.
    assert asked == 1 or server.kind == "openai"


def test_an_endpoint_that_cannot_be_asked_is_no_wrong_setting(check):
    result = check(LLM.format(url="http://127.0.0.1:9/v1"), "--json", ask=True)
    assert result.exit_code == 0
    (found,) = json.loads(result.output)["endpoints"].values()
    assert "cannot be reached" in found["fault"] and not found["sees"]


@pytest.mark.parametrize("value", ["2026-01-01", "nan", "[1, -inf]"])
def test_what_json_cannot_hold_is_told_in_a_line(check, value):
    text = LLM.format(url="http://127.0.0.1:9/v1") + f"extra_body = {{ further = {value} }}\n"
    (told,) = lines(check(text))
    assert "verification.llm.extra_body" in told and "without dates, nan and inf" in told
