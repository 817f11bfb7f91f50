"""Dockerfiles and compose file: linted, checked by the compose specification, and against the code."""

from __future__ import annotations

import copy
import importlib.metadata
import json
import re
import resource
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.support.command_tree import leaves
from tests.support.documented import misuse

from groundwatch.runtime.settings.reading import load
from groundwatch.system.services import SERVED

ROOT = Path(__file__).parents[3]
DOCKER = ROOT / "docker"
DOCKERFILES = sorted(DOCKER.glob("*Dockerfile"))
yaml = pytest.importorskip("yaml")


def binary(name: str) -> str:
    """A tool beside this interpreter or on PATH; without it the test is skipped, and says so."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    """The compose file as it is read, anchors resolved."""
    found: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())
    return found


@pytest.mark.parametrize("file", DOCKERFILES, ids=lambda file: file.name)
def test_hadolint_finds_nothing(file: Path) -> None:
    done = subprocess.run([binary("hadolint"), str(file)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_hadolint_would_find_something(tmp_path: Path) -> None:
    file = tmp_path / "Dockerfile"
    file.write_text("FROM debian\nRUN cd /tmp\n")
    done = subprocess.run([binary("hadolint"), str(file)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "DL3006" in done.stdout


@pytest.mark.parametrize("file", DOCKERFILES, ids=lambda file: file.name)
def test_an_image_is_pinned_unprivileged_and_healthy(file: Path) -> None:
    text = file.read_text()
    bases = re.findall(r"^ARG (?:BASE|TRITON)=(.+)$", text, re.MULTILINE)
    assert bases
    for base in bases:
        assert re.search(r":\d+\.\d+", base), f"{base} names no version"
        assert "@sha256:" in base or base.startswith("nvcr.io/"), f"{base} names no digest"
    last = text.rpartition("\nFROM ")[2]
    user = re.findall(r"^USER (\d+):(\d+)$", last, re.MULTILINE)
    assert user and user[-1][0] != "0"
    assert "HEALTHCHECK" in last
    sent = file.with_name(f"{file.name}.dockerignore").read_text().splitlines()
    for copied in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE):
        for source in copied.split():
            assert (ROOT / source).exists(), source
            assert f"!{source.partition('/')[0]}" in sent, f"{source} is not sent to who builds"


@pytest.mark.parametrize(
    "name", ["requirements", "requirements-stages", "requirements-embedded", "requirements-triton"]
)
def test_what_an_image_installs_is_pinned_by_hash(name: str) -> None:
    pinned = (DOCKER / f"{name}.txt").read_text().replace("\\\n", " ").splitlines()
    for line in filter(lambda line: line and not line.lstrip().startswith("#"), pinned):
        assert re.match(r"[a-z0-9.-]+==\S+.*--hash=sha256:[0-9a-f]{64}", line), line
    files = [path for path in DOCKERFILES if f"docker/{name}.txt" in path.read_text()]
    assert files
    assert all("--require-hashes" in path.read_text() for path in files)
    # The package itself is built by what is locked, and brings nothing along.
    assert "setuptools" in requirement_names("\n".join(pinned))
    for path in files:
        installs = re.findall(r"pip.{1,4}install.*", path.read_text())
        assert len(installs) == 2
        assert all("require-hashes" in one or "no-build-isolation" in one for one in installs), path.name


def test_the_light_image_has_what_the_package_needs() -> None:
    names = requirement_names((DOCKER / "requirements.txt").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["triton"]]
    wanted += project["optional-dependencies"]["archive"]
    for one in wanted:
        assert re.match(r"[A-Za-z0-9-]+", one)[0].lower() in names, f"lock {one} (docker/README.md says how)"
    assert "torch" not in names
    assert "nvidia" not in " ".join(names)


STAGES_ALONE = """
import sys
from unittest.mock import Mock
absent = set(sys.argv[1].split())
for name in absent:
    sys.modules[name] = None
from groundwatch.runtime.settings.reading import load
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.system.services import make_service
for stage in ("extraction", "captioning", "generation", "matching", "verification", "scoring", "outflow"):
    settings = load(environment={
        "GROUNDWATCH_ARCHIVE__URL": "s3://bucket/archive",
        "GROUNDWATCH_EXTRACTION__ENGINE": "noop",
        "GROUNDWATCH_MATCHING__ENGINE": "lexical",
        "GROUNDWATCH_VERIFICATION__ENGINE": "reference",
    })
    make_service(stage, settings, Mock(partitions=1), Metrics())
"""


def test_stages_need_none_of_what_the_archive_is_read_with() -> None:
    """Their image has not half of what the light one has."""
    whole, stages = (versions((DOCKER / f"requirements{more}.txt").read_text()) for more in ("", "-stages"))
    assert stages.items() <= whole.items()
    left_out = {"deltalake", "duckdb", "obstore", "pyarrow"}
    assert left_out <= whole.keys() - stages.keys()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for one in (*project["dependencies"], *project["optional-dependencies"]["triton"]):
        assert re.match(r"[A-Za-z0-9-]+", one)[0].lower() in stages, one
    command = [sys.executable, "-c", STAGES_ALONE, " ".join(left_out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_stages_install_is_small() -> None:
    """As pip unpacks it: 450 MB with the package itself."""
    size = sum(path.stat().st_size for path in (ROOT / "services").rglob("*") if path.is_file())
    for name in versions((DOCKER / "requirements-stages.txt").read_text()):
        for file in importlib.metadata.files(name) or ():
            place = Path(str(file.locate()))
            size += place.stat().st_size if place.suffix != ".pyc" and place.is_file() else 0
    assert 100e6 < size < 450e6


def test_constraints_and_lock_agree() -> None:
    lock = versions((DOCKER / "requirements.txt").read_text())
    constraints = versions((DOCKER / "constraints.txt").read_text())
    assert {name: constraints.get(name) for name in lock} == lock
    for other in ("embedded", "triton"):
        # Beyond these they hold what torch brings for GPUs.
        more = versions((DOCKER / f"requirements-{other}.txt").read_text())
        assert {name: more[name] for name in constraints if name in more} == {
            name: version for name, version in constraints.items() if name in more
        }
        assert "torch" in more
    for name in requirement_names((DOCKER / "requirements-triton.in").read_text()):
        assert name in constraints, f"{name} has no version"
    assert constraints["numpy"].startswith("1."), "the Triton stub breaks with numpy 2"


def requirement_names(text: str) -> set[str]:
    """The packages that a requirements file names."""
    return {match[0] for match in re.finditer(r"^[a-z][a-z0-9.-]*", text, re.MULTILINE)}


def versions(text: str) -> dict[str, str]:
    """Versions by name."""
    return dict(re.findall(r"^([a-z0-9.-]+)==([^\s;\\]+)", text, re.MULTILINE))


def test_the_compose_file_keeps_to_the_specification(compose: dict[str, Any]) -> None:
    specification = pytest.importorskip("compose_spec")
    compose = copy.deepcopy(compose)
    for service in compose["services"].values():
        # Docker takes both a version and a digest; this reader of the specification does not.
        service["image"] = service["image"].partition("@")[0]
    specification.PyCompose.from_json(json.dumps(compose)).validate()
    compose["services"]["nats"]["restrat"] = "always"
    with pytest.raises(ValueError, match="restrat"):
        specification.PyCompose.from_json(json.dumps(compose))


def test_everything_that_the_compose_file_names_exists(compose: dict[str, Any]) -> None:
    services = compose["services"]
    for name, service in services.items():
        assert re.search(r":(v?\d|local)", service["image"]), f"{name}: {service['image']} is not pinned"
        assert name == "nats" or re.search(r":local$|@sha256:[0-9a-f]{64}$", service["image"]), name
        waits = service.get("depends_on", {})
        for other in waits:
            assert other in services, f"{name} waits for {other}"
            if isinstance(waits, dict) and waits[other]["condition"] == "service_healthy":
                assert services[other]["healthcheck"]["test"]
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (DOCKER / source).exists(), f"{name}: {source}"
                assert volume.endswith(":ro")
            else:
                assert source in compose["volumes"]
        if build := service.get("build"):
            assert (DOCKER / build["context"]).resolve() == ROOT
            assert (ROOT / build["dockerfile"]).is_file()
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), f"{name}: {port} is open to other machines"
        # Locked for x86-64: on Arm they are emulated, and not built for what nothing is locked for.
        emulated = re.match("groundwatch-(triton|embedded)", service["image"]) is not None
        assert (service.get("platform") == "linux/amd64") is emulated, name
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["mem_limit"]
    used = {volume.split(":")[0] for one in services.values() for volume in one.get("volumes", [])}
    assert set(compose["volumes"]) == {one for one in used if not one.startswith(".")}
    ports = [port for one in services.values() for port in one.get("ports", [])]
    assert len(set(ports)) == len(ports)


def test_every_service_runs_with_settings_that_are_right(compose: dict[str, Any]) -> None:
    serving = {}
    for name, service in compose["services"].items():
        if service.get("command", [""])[0] == "serve":
            serving[name] = service
            assert service["command"] == ["serve", name]
            settings = load(DOCKER / "groundwatch.toml", service["environment"])
            assert settings.nats.url == "nats://nats:4222"
            assert settings.telemetry.port == 9464
            assert settings.gateway.host == settings.telemetry.host == "0.0.0.0"
            assert name in settings.telemetry.hosts
            judges = ("extraction", "matching", "verification") if name == "replay" else (name,)
            engines = {getattr(getattr(settings, judge, None), "engine", "") for judge in judges}
            installs = service["build"].get("args", {}).get("REQUIREMENTS", "")
            inside = engines & {"reader", "embedded", "calibrated", "similarity", "semantic"}
            assert ("embedded" in installs) == bool(inside)
            assert settings.gateway.replays == 0 or settings.gateway.grpc_port < 0
    assert set(serving) == set(SERVED)
    assert compose["services"]["provision"]["command"] == ["admin", "provision"]
    known = dict(leaves())
    for name, service in compose["services"].items():
        if service["image"].startswith("groundwatch"):
            assert name == "triton" or not misuse(service["command"], known)


def test_who_reads_what_is_archived_has_its_volume(compose: dict[str, Any]) -> None:
    services = compose["services"]
    settings = load(DOCKER / "groundwatch.toml", services["archive"]["environment"])
    for name, one in services.items():
        if one["image"].startswith("groundwatch") and name != "triton":
            assert "archive:/var/lib/groundwatch" in one["volumes"], name
    assert settings.archive.url.startswith("/var/lib/groundwatch/")
    assert "10001 --group 10001 /var/lib/groundwatch" in (DOCKER / "Dockerfile").read_text()
    gateway = load(DOCKER / "groundwatch.toml", services["gateway"]["environment"])
    assert gateway.nats.monitor_url == "http://nats:8222"


def test_the_memory_that_the_server_may_use_is_there(compose: dict[str, Any]) -> None:
    text = (DOCKER / "nats.conf").read_text()
    assert int(re.search(r"max_payload: (\d+)", text)[1]) == load(None, {}).nats.max_payload
    assert compose["services"]["nats"]["mem_limit"] == "2g"
    done = subprocess.run(
        [binary("nats-server"), "-t", "-c", str(DOCKER / "nats.conf")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


def test_prometheus_takes_its_file_and_scrapes_every_service(compose: dict[str, Any], tmp_path: Path) -> None:
    text = (DOCKER / "prometheus.yml").read_text()
    targets = re.findall(r"([a-z]+):(\d+)", "\n".join(re.findall(r"^ *- ([a-z]+:\d+)$", text, re.MULTILINE)))
    serving = {name for name, one in compose["services"].items() if one.get("command", [""])[0] == "serve"}
    assert {name for name, port in targets if port == "9464"} == serving | {"auditor"}
    (tmp_path / "rules").mkdir()
    for mounted in compose["services"]["prometheus"]["volumes"]:
        source, _, inside = mounted.removesuffix(":ro").partition(":")
        if inside.startswith("/etc/prometheus/rules/"):
            shutil.copy(DOCKER / source, tmp_path / "rules")
    assert list((tmp_path / "rules").iterdir())
    file = tmp_path / "prometheus.yml"
    file.write_text(text.replace("/etc/prometheus/rules", str(tmp_path / "rules")))
    done = subprocess.run(
        [binary("promtool"), "check", "config", str(file)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_grafana_finds_its_dashboards(compose: dict[str, Any]) -> None:
    grafana = compose["services"]["grafana"]
    mounted = dict(volume.removesuffix(":ro").split(":") for volume in grafana["volumes"])
    provider = yaml.safe_load((DOCKER / "grafana/dashboards.yaml").read_text())["providers"][0]
    assert provider["options"]["path"] == mounted["../deploy/grafana/dashboards"]
    home = grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (ROOT / "deploy/grafana/dashboards" / Path(home).name).is_file()
    source = yaml.safe_load((DOCKER / "grafana/datasources.yaml").read_text())["datasources"][0]
    host, port = source["url"].removeprefix("http://").split(":")
    assert host in compose["services"]
    assert port == "9090"


def test_the_health_check_asks_the_service(tmp_path: Path) -> None:
    from http.server import BaseHTTPRequestHandler, HTTPServer
    from threading import Thread

    class Healthy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/healthz" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    def check(port: int, **told: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-S", "-E", str(DOCKER / "healthcheck.py")],
            capture_output=True,
            text=True,
            timeout=60,
            env={"PATH": "", **(told or {"GROUNDWATCH_TELEMETRY__PORT": str(port)})},
        )

    server = HTTPServer(("127.0.0.1", 0), Healthy)
    Thread(target=server.serve_forever, daemon=True).start()
    assert check(server.server_port).returncode == 0
    config = tmp_path / "groundwatch.toml"
    config.write_text(f"[telemetry]\nport = {server.server_port}\n")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert check(0, GROUNDWATCH_CONFIG=str(config)).returncode == 0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Ten containers ask four times a minute each.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.2
    config.write_text(f"telemetry.port = {server.server_port}\ntelemetry.host = '0.0.0.0'\n")
    assert check(0, GROUNDWATCH_CONFIG=str(config)).returncode == 0
    server.shutdown()
    server.server_close()
    gone = check(server.server_port)
    assert gone.returncode == 1
    assert gone.stderr.count("\n") == 1
    assert "telemetry.port is 0" in check(0).stderr


def test_the_repository_of_the_triton_image_can_be_written(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "groundwatch",
            "admin",
            "models",
            str(tmp_path / "models"),
            "--models",
            "miniature",
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "models").glob("*/config.pbtxt"))) >= 2
