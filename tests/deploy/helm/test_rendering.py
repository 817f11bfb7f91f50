"""What is rendered is what Kubernetes takes, in three versions, and what the services and NATS take."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from tests.deploy.helm.charts import (
    CASES,
    CHART,
    LLM,
    NAMESPACE,
    STORED,
    Object,
    helm,
    named,
    of_kind,
    pods,
    rendered,
    template,
)

from groundwatch.protocols import registry
from groundwatch.runtime.local.servers import find_binary
from groundwatch.runtime.security.same_origin import Hosts
from groundwatch.runtime.security.users import VALUES_FILE, write_auth
from groundwatch.runtime.settings.reading import load

pytestmark = pytest.mark.slow

VERSIONS = ("1.31", "1.34", "1.37")
CUSTOM = ("Certificate", "ScaledObject", "PodMonitor", "PrometheusRule", "HTTPRoute", "GRPCRoute")

every_case = pytest.mark.parametrize("case", CASES)


@pytest.mark.parametrize("profiles", [(), ("small",), ("production",), ("gpu",), ("production", "gpu")])
def test_lint(profiles: tuple[str, ...]) -> None:
    files = [part for name in profiles for part in ("--values", str(CHART / f"values-{name}.yaml"))]
    done = helm("lint", "--strict", str(CHART), *files, values=STORED if "production" in profiles else LLM)
    assert done.returncode == 0, done.stdout
    assert "0 chart(s) failed" in done.stdout


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_takes_every_object(version: str) -> None:
    """Of all cases together: most objects are the same in several."""
    different = {
        json.dumps(one, sort_keys=True)
        for case in CASES
        for one in rendered(case)
        if one["kind"] not in CUSTOM
    }
    assert len(different) > 100
    for one in different:
        kubernetes_validate.validate(json.loads(one), version, strict=True)


def test_the_check_is_strict() -> None:
    one = named(rendered("default"), "Deployment", "gateway")
    one["spec"]["template"]["spec"]["terminationGracePeriodSecond"] = 3
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(one, VERSIONS[0], strict=True)


@every_case
def test_names_are_unique_and_short(case: str) -> None:
    names = [(one["apiVersion"], one["kind"], one["metadata"]["name"]) for one in rendered(case)]
    assert len(names) == len(set(names))
    assert all(len(name) <= 63 for *_, name in names)


def settings_of(objects: list[Object], folder: Path) -> Path:
    """The services' settings file as it is mounted."""
    path = folder / "groundwatch.toml"
    path.write_text(named(objects, "ConfigMap", "settings")["data"]["groundwatch.toml"])
    return path


@every_case
def test_the_services_take_the_settings(case: str, tmp_path: Path) -> None:
    objects = rendered(case)
    settings = load(settings_of(objects, tmp_path), {})
    registry.configure(settings.protocols, settings.prompts.folder)
    assert settings.nats.url
    (port,) = {
        port["containerPort"]
        for _, pod in pods(objects)
        for container in pod["spec"]["containers"]
        for port in container.get("ports", ())
        if port["name"] == "telemetry"
    }
    assert (settings.telemetry.host, settings.telemetry.port) == ("0.0.0.0", port)
    assert (settings.gateway.host, settings.gateway.port) == ("0.0.0.0", 8787)


@every_case
def test_the_gateway_answers_under_every_name_that_the_chart_gives_it(case: str, tmp_path: Path) -> None:
    objects = rendered(case)
    hosts = Hosts(load(settings_of(objects, tmp_path), {}).gateway.hosts)
    service = named(objects, "Service", "gateway")["metadata"]["name"]
    within = f"{service}.{NAMESPACE}"
    names = [service, within, f"{within}.svc", f"{within}.svc.cluster.local"]
    for one in objects:
        if one["kind"] == "Ingress" and one["metadata"]["name"] == service:
            names += [rule["host"] for rule in one["spec"]["rules"]]
    assert all(map(hosts.named, names))
    assert not hosts.served("elsewhere.example")


def test_names_of_the_operator_are_kept(tmp_path: Path) -> None:
    values = {**LLM, "settings": {"gateway": {"hosts": ["*.balancer.example"]}}}
    objects = [one for one in yaml.safe_load_all(template((), values).stdout) if one]
    settings = load(settings_of(objects, tmp_path), {})
    assert Hosts(settings.gateway.hosts).served("a.balancer.example")
    assert len(settings.gateway.hosts) == 5


def test_settings_arrive_as_they_are_written(tmp_path: Path) -> None:
    settings = load(settings_of(rendered("models-apart"), tmp_path), {})
    assert [(rule.rate, rule.tenant) for rule in settings.gateway.sampling] == [
        (0.1, 'a "quoted" one'),
        (1, ""),
    ]
    assert settings.captioning.models["osprey 13b"].base_url == "https://osprey.example:8443/v1"
    assert settings.protocols.faithscore.weights == {"count": 2, "color": 0.5}


@pytest.mark.parametrize("case", [name for name in CASES if name != "external-nats"])
def test_nats_takes_its_configuration(case: str, tmp_path: Path) -> None:
    config = named(rendered(case), "ConfigMap", "nats-config")["data"]["nats.conf"]
    write_auth(
        tmp_path / "auth", hosts=["gw-groundwatch-nats.watch.svc", "*.gw-groundwatch-nats-headless.watch.svc"]
    )
    for ours, theirs in (("server.crt", "tls.crt"), ("server.key", "tls.key"), ("ca.crt", "ca.crt")):
        (tmp_path / theirs).write_bytes((tmp_path / "auth" / ours).read_bytes())
    path = tmp_path / "nats.conf"
    path.write_text(config.replace("/etc/nats-tls", str(tmp_path)))
    done = subprocess.run(
        [find_binary(), "-t", "-c", str(path)],
        env={"POD_NAME": "gw-groundwatch-nats-0", "JETSTREAM_KEY": "k" * 32},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "configuration file" in done.stderr + done.stdout


def test_production_is_written_to_disk_in_three_zones() -> None:
    objects = rendered("production")
    assert "sync_interval: always" in named(objects, "ConfigMap", "nats-config")["data"]["nats.conf"]
    nats = named(objects, "StatefulSet", "nats")["spec"]
    assert nats["replicas"] == 3
    zone, _ = nats["template"]["spec"]["topologySpreadConstraints"]
    assert (zone["topologyKey"], zone["whenUnsatisfiable"]) == (
        "topology.kubernetes.io/zone",
        "DoNotSchedule",
    )
    assert "nats.replicas = 3" in named(objects, "ConfigMap", "settings")["data"]["groundwatch.toml"]


def test_provisioning_follows_what_it_does() -> None:
    """A Job cannot be changed, so another content must be another Job."""

    def job(case: str) -> str:
        (found,) = of_kind(rendered(case), "Job")
        assert "helm.sh/hook" not in found["metadata"].get("annotations", {})
        name: str = found["metadata"]["name"]
        return name

    assert job("default") != job("production")
    assert job("default") == job("small")


def test_what_provision_auth_writes_are_values_of_the_chart(tmp_path: Path) -> None:
    write_auth(tmp_path, hosts=["gw-groundwatch-nats.watch.svc"])
    done = helm("template", "gw", str(CHART), "--values", str(tmp_path / VALUES_FILE), values=LLM)
    assert done.returncode == 0, done.stderr
    assert "groundwatch-nats-extraction" in done.stdout
