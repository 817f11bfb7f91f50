"""Autoscaling: the very streams and consumers that the code provisions, and KEDA's own schema."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import jsonschema
import pytest
import yaml
from bench.autoscaling.rules import Policy, lag_threshold
from bench.autoscaling.rules import ScaledObject as Simulated
from tests.deploy.helm.charts import (
    CASES,
    CHART,
    LLM,
    ROOT,
    Object,
    closed,
    named,
    of_kind,
    pods,
    rendered,
    template,
)

from groundwatch.models.settings import ChatSettings, TritonSettings
from groundwatch.replay.service import STATES
from groundwatch.topology import ANNOTATION, CONSUMERS, GATEWAY, OUTFLOW
from groundwatch.topology.partitions import consumers

pytestmark = pytest.mark.slow

NOT_BY_BACKLOG = (GATEWAY, OUTFLOW, ANNOTATION)
"""The gateway is scaled by its callers, the outflow waits for its receivers, and the second judge in the
annotation service may be asked so much an hour, however many replicas there are."""

CRDS = ROOT.parent / "shared" / "data" / "k8s"
SCALED = [
    name
    for name in CASES
    if name in ("production", "production-gpu", "partitions", "everything", "external-nats", "gpu")
]


def triggers(objects: list[Object], kind: str) -> list[tuple[str, dict[str, str]]]:
    """(target, metadata) of every trigger of this kind."""
    return [
        (one["spec"]["scaleTargetRef"]["name"], trigger["metadata"])
        for one in of_kind(objects, "ScaledObject")
        for trigger in one["spec"]["triggers"]
        if trigger["type"] == kind
    ]


@pytest.mark.parametrize("case", ["production", "everything", "external-nats"])
def test_streams_and_consumers_are_those_that_are_provisioned(case: str) -> None:
    found = {
        (target.removeprefix("gw-groundwatch-"), metadata["stream"], metadata["consumer"])
        for target, metadata in triggers(rendered(case), "nats-jetstream")
        if "-triton" not in target
    }
    scaled = [spec for spec in CONSUMERS if spec.service not in NOT_BY_BACKLOG]
    assert found == {(spec.service, spec.stream, spec.name) for spec in scaled}


def test_a_stage_is_scaled_by_what_waits_in_all_partitions_together() -> None:
    wanted = {
        (spec.service, spec.stream, spec.name) for spec in consumers(3) if spec.service not in NOT_BY_BACKLOG
    }
    found = set()
    for one in of_kind(rendered("partitions"), "ScaledObject"):
        stage = one["metadata"]["name"].removeprefix("gw-groundwatch-")
        asked = [one for one in one["spec"]["triggers"] if one["type"] == "nats-jetstream"]
        if not asked or "triton" in stage:
            continue
        found |= {(stage, one["metadata"]["stream"], one["metadata"]["consumer"]) for one in asked}
        rule = one["spec"]["advanced"]["scalingModifiers"]
        assert sorted(rule["formula"].split(" + ")) == sorted(trigger["name"] for trigger in asked)
        # Names in a formula are variables.
        assert all(trigger["name"].isidentifier() for trigger in asked)
        assert {trigger["metadata"]["lagThreshold"] for trigger in asked} == {rule["target"]}
    assert found == wanted


def test_keda_asks_each_server_by_its_name() -> None:
    """It takes the server's name before the endpoint, so the endpoint must be the headless Service's."""
    objects = rendered("production")
    service = named(objects, "Service", "nats-headless")
    assert service["spec"]["clusterIP"] == "None"
    endpoints = {
        metadata["natsServerMonitoringEndpoint"] for _, metadata in triggers(objects, "nats-jetstream")
    }
    assert endpoints == {"gw-groundwatch-nats-headless.watch.svc:8222"}
    config = named(objects, "ConfigMap", "nats-config")["data"]["nats.conf"]
    assert "server_name: $POD_NAME" in config
    assert "no_advertise: true" in config


def test_an_existing_nats_is_asked_where_the_values_say() -> None:
    for _, metadata in triggers(rendered("external-nats"), "nats-jetstream"):
        assert metadata["natsServerMonitoringEndpoint"] == "nats.example:8222"
        assert (metadata["account"], metadata["useHttps"]) == ("watch", "true")


@pytest.mark.parametrize(("delay", "rate"), [(30, 8), (30, 0.5), (10, 0.05), (45.5, 7.3), (1, 200)])
@pytest.mark.parametrize("headroom", [None, 1, 0.35])
def test_the_threshold_is_that_of_the_simulator(delay: float, rate: float, headroom: float | None) -> None:
    scaling = {"enabled": True, "targetDelaySeconds": delay}
    done = template(
        (),
        {
            **LLM,
            "autoscaling": scaling if headroom is None else scaling | {"headroom": headroom},
            "stages": {"extraction": {"eventsPerSecond": rate}},
        },
    )
    assert done.returncode == 0, done.stderr
    objects = [one for one in yaml.load_all(done.stdout, yaml.CSafeLoader) if one]
    thresholds = {
        metadata["lagThreshold"]
        for target, metadata in triggers(objects, "nats-jetstream")
        if target == "gw-groundwatch-extraction"
    }
    wanted = lag_threshold(target=delay, per_replica=rate, headroom=0.7 if headroom is None else headroom)
    assert thresholds == {str(wanted)}


def test_replicas_go_up_and_down_as_the_simulator_plays_it() -> None:
    rules = Simulated(lag_threshold=1)
    for one in of_kind(rendered("production"), "ScaledObject"):
        spec = one["spec"]
        if any(trigger["type"] != "nats-jetstream" for trigger in spec["triggers"]):
            continue
        behavior = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
        down, up = behavior["scaleDown"], behavior["scaleUp"]
        assert down["stabilizationWindowSeconds"] == rules.stabilization_down
        assert up["stabilizationWindowSeconds"] == 0
        assert spec["cooldownPeriod"] == rules.cooldown_period
        assert spec["pollingInterval"] <= rules.polling_interval
        for rendered_policies, played in ((up["policies"], rules.up), (down["policies"], rules.down)):
            assert [
                Policy(
                    period=one["periodSeconds"],
                    **{"Percent": {"percent": one["value"]}, "Pods": {"pods": one["value"]}}[one["type"]],
                )
                for one in rendered_policies
            ] == list(played)


def test_stages_scale_to_zero_unless_they_are_told_to_stay() -> None:
    fewest = {
        one["metadata"]["name"].removeprefix("gw-groundwatch-"): one["spec"]["minReplicaCount"]
        for one in of_kind(rendered("production"), "ScaledObject")
    }
    assert fewest == {
        "replay": 0,
        "extraction": 2,
        "verification": 2,
        "scoring": 2,
        "captioning": 0,
        "generation": 0,
        "matching": 0,
    }


@pytest.mark.parametrize("case", CASES)
def test_who_is_scaled_has_no_number_of_its_own(case: str) -> None:
    """An upgrade would otherwise set it back."""
    objects = rendered(case)
    scalers = of_kind(objects, "ScaledObject", "HorizontalPodAutoscaler")
    scaled = {one["spec"]["scaleTargetRef"]["name"] for one in scalers}
    for one in of_kind(objects, "Deployment"):
        assert ("replicas" in one["spec"]) == (one["metadata"]["name"] not in scaled)


@pytest.fixture(scope="module")
def keda() -> jsonschema.Draft7Validator:
    """KEDA's ScaledObject as its own definition says."""
    if not CRDS.is_dir():
        why = f"KEDA's definitions are not at {CRDS}"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(why)
    definition = yaml.safe_load((CRDS / "keda.sh_scaledobjects.yaml").read_text())
    (version,) = (one for one in definition["spec"]["versions"] if one["name"] == "v1alpha1")
    schema = closed(version["schema"]["openAPIV3Schema"])
    schema["properties"]["metadata"] = {"type": "object"}
    return jsonschema.Draft7Validator(schema)


@pytest.mark.parametrize("case", SCALED)
def test_keda_takes_its_objects(case: str, keda: jsonschema.Draft7Validator) -> None:
    found = of_kind(rendered(case), "ScaledObject")
    assert found
    for one in found:
        keda.validate(one)
        spec = one["spec"]
        assert spec["minReplicaCount"] <= spec["maxReplicaCount"]
        names = [trigger["name"] for trigger in spec["triggers"] if "name" in trigger]
        assert len(names) == len(set(names))


def test_that_check_finds_a_misspelled_field(keda: jsonschema.Draft7Validator) -> None:
    one = json.loads(json.dumps(of_kind(rendered("production"), "ScaledObject")[0]))
    one["spec"]["maxReplicaCuont"] = 3
    assert not keda.is_valid(one)


@pytest.mark.parametrize("case", SCALED)
def test_scalers_know_every_parameter(case: str, keda: jsonschema.Draft7Validator) -> None:
    scalers = json.loads(Path(CRDS / "keda-scalers-schema.json").read_text())["scalers"]
    for kind in ("nats-jetstream", "prometheus"):
        (parameters,) = (one["parameters"] for one in scalers if one["type"] == kind)
        known = {one["name"] for one in parameters}
        needed = {one["name"] for one in parameters if not one.get("optional") and "default" not in one}
        for _, metadata in triggers(rendered(case), kind):
            assert needed <= set(metadata) <= known
            assert all(isinstance(value, str) for value in metadata.values())


def test_replays_scale_on_those_that_run_or_wait() -> None:
    ((target, metadata),) = triggers(rendered("production"), "prometheus")
    assert target == "gw-groundwatch-replay"
    assert 'groundwatch_replay_runs{namespace="watch",pod=~"gw-groundwatch-gateway-.*"' in metadata["query"]
    assert set(re.findall(r'state=~"([^"]*)"', metadata["query"])[0].split("|")) <= set(STATES)
    assert (metadata["threshold"], metadata["activationThreshold"]) == ("1", "0")


def test_triton_scales_on_its_queue_and_its_gpus() -> None:
    found = triggers(rendered("gpu"), "prometheus")
    assert [target.removeprefix("gw-groundwatch-triton-") for target, _ in found] == [
        "describe",
        "describe",
        "verify",
        "verify",
    ]
    queue, gpu = (metadata for target, metadata in found if target.endswith("-verify"))
    assert "nv_inference_queue_duration_us" in queue["query"]
    assert 'namespace="watch",pod=~"gw-groundwatch-triton-verify-[^-]+-[^-]+"' in queue["query"]
    assert "nv_gpu_utilization" in gpu["query"]
    assert (queue["threshold"], gpu["threshold"]) == ("100", "0.8")


def test_each_server_of_models_is_woken_by_the_stages_that_ask_it() -> None:
    objects = rendered("tritons")
    # The other one has a fixed number of replicas.
    ((target, backlog),) = triggers(objects, "nats-jetstream")
    assert (target, backlog["consumer"]) == ("gw-groundwatch-triton-verify", "verification")
    # 64 requests at once are those of two replicas of the stage, whose own threshold is 84.
    assert (backlog["lagThreshold"], backlog["activationLagThreshold"]) == (str(2 * 84), "0")
    ((_, times),) = triggers(objects, "cron")
    assert times == {
        "timezone": "Europe/Berlin",
        "start": "0 7 * * 1-5",
        "end": "0 20 * * 1-5",
        "desiredReplicas": "2",
    }
    (one,) = of_kind(objects, "ScaledObject")
    assert (one["spec"]["minReplicaCount"], one["spec"]["maxReplicaCount"]) == (0, 4)


def test_each_stage_asks_its_own_server() -> None:
    objects = rendered("tritons")
    asked = {
        name.removeprefix("Deployment gw-groundwatch-"): variable["value"]
        for name, pod in pods(objects)
        for container in pod["spec"]["containers"]
        for variable in container.get("env", ())
        if variable["name"] == "GROUNDWATCH_TRITON__URL"
    }
    verify, describe = (f"gw-groundwatch-triton-{one}.watch.svc:8001" for one in ("verify", "describe"))
    assert asked == {
        "verification": verify,
        "replay": verify,
        "captioning": describe,
        "generation": describe,
    }
    for address in asked.values():
        named(objects, "Service", address.partition(".")[0].removeprefix("gw-groundwatch-"))
    server = named(objects, "Deployment", "triton-verify")["spec"]["template"]["spec"]
    assert server["runtimeClassName"] == "nvidia"
    assert server["containers"][0]["resources"]["limits"]["nvidia.com/mig-3g.40gb"] == "1"
    assert {"name": "GROUNDWATCH_TRITON_MODELS", "value": "verifier"} in server["containers"][0]["env"]


def test_requests_at_once_are_those_that_the_services_have() -> None:
    """What the chart reckons with where settings say nothing."""
    texts = {path.name: path.read_text() for path in (CHART / "templates").glob("*.tpl")}
    assert f".concurrency | default {TritonSettings().concurrency} |" in texts["_triton.tpl"]
    chat = ChatSettings(base_url="http://a", model="m").concurrency
    assert set(re.findall(r"\.concurrency \| default (\d+)\)", texts["_settings.tpl"])) == {str(chat)}
