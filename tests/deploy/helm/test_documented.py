"""What pages tell to type to kubectl and helm names objects, labels, ports and values that there are."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import yaml
from tests.deploy.helm.charts import CASES, CHART, ROOT, Object, containers, helm, pods
from tests.support.documented import Command, commands
from tools.settings import settings_of

from groundwatch.runtime.settings import Settings
from groundwatch.topology import STAGES

RELEASE = "groundwatch"
"""Its objects are named like the release, since its name has the chart's in it."""

PLACES = {"RELEASE": RELEASE, "NAMESPACE": "groundwatch"}
NAMED = {
    "STAGE": STAGES,
    "SERVICE": ("gateway", *STAGES, "outflow", "annotation", "replay"),
    "TRITON": ("triton-verify", "triton-describe"),
}
"""What a runbook leaves to its reader to name."""
KINDS = {
    "deploy": "Deployment",
    "deployment": "Deployment",
    "statefulset": "StatefulSet",
    "sts": "StatefulSet",
    "service": "Service",
    "svc": "Service",
    "pod": "Pod",
    "pods": "Pod",
    "pvc": "PersistentVolumeClaim",
    "cronjob": "CronJob",
    "job": "Job",
    "configmap": "ConfigMap",
    "scaledobject": "ScaledObject",
    "secret": "Secret",
    "secrets": "Secret",
    "certificates": "Certificate",
    "events": "Event",
}
WITH_VALUE = {
    *("-n", "--namespace", "-l", "--selector", "-o", "--output", "--tail", "--since", "-c", "--container"),
    *(
        "--field-selector",
        "--replicas",
        "--from",
        "--patch",
        "--filename",
        "--from-literal",
        "--from-file",
        "--image",
        "--restart",
        "--overrides",
        "--timeout",
        "-p",
    ),
}
FLAGS = {"--previous", "--cascade", "--dry-run", "--current", "-it", "-i", "--wait", "-w", "--sort-by", "-A"}


class Typed(NamedTuple):
    """A kubectl command: its verb, what stands behind it, its options."""

    verb: str
    operands: list[str]
    options: dict[str, str]
    unknown: list[str]


def typed(words: list[str]) -> Typed:
    operands: list[str] = []
    options: dict[str, str] = {}
    unknown: list[str] = []
    rest = iter(words[1:])
    for word in rest:
        if word == "--":
            break
        name, equals, value = word.partition("=")
        if not word.startswith("-"):
            operands.append(word)
        elif name in WITH_VALUE or (name == "-f" and operands[:1] != ["logs"]):
            options[name] = value if equals else next(rest)
        elif name in FLAGS:
            options[name] = value
        else:
            unknown.append(name)
    return Typed(operands[0] if operands else "", operands[1:], options, unknown)


@functools.cache
def _installed() -> str:
    profiles, values = CASES["everything"]
    files = [part for name in profiles for part in ("--values", str(CHART / f"values-{name}.yaml"))]
    done = helm("template", RELEASE, str(CHART), "--namespace", "groundwatch", *files, values=values)
    assert done.returncode == 0, done.stderr
    return json.dumps([one for one in yaml.load_all(done.stdout, yaml.CSafeLoader) if one])


def installed() -> list[Object]:
    found: list[Object] = json.loads(_installed())
    return found


def names(objects: list[Object]) -> set[tuple[str, str]]:
    """Kind and name of every object, the pods and claims of StatefulSets among them."""
    found = {(one["kind"], one["metadata"]["name"]) for one in objects}
    for one in objects:
        if one["kind"] == "StatefulSet":
            for number in range(one["spec"].get("replicas", 1)):
                pod = f"{one['metadata']['name']}-{number}"
                found.add(("Pod", pod))
                for claim in one["spec"].get("volumeClaimTemplates", []):
                    found.add(("PersistentVolumeClaim", f"{claim['metadata']['name']}-{pod}"))
    return found


def placed(text: str) -> list[str]:
    """The text with the chart's own names in it: each stage's for STAGE, each service's for SERVICE."""
    for place, name in PLACES.items():
        text = text.replace(place, name)
    for place, several in NAMED.items():
        if place in text:
            return [text.replace(place, name) for name in several]
    return [text]


def references(command: Typed) -> Iterator[tuple[str, str]]:
    """Kind and name of what a command is about."""
    several = [one for one in command.operands if not re.search(r"[$…]|^[A-Z]+$", one)]
    match command.verb:
        case "logs" | "exec" | "port-forward" | "cp":
            if command.verb == "cp":
                several = [one for one in several if ":" in one]
            target = several[0].partition(":")[0] if several else ""
            kind, slash, name = target.partition("/")
            yield (KINDS[kind], name) if slash else ("Pod", target)
        case "get" | "delete" | "scale" | "patch" | "describe" | "rollout":
            if command.verb == "rollout":
                several = several[1:]
            for one in several:
                kind, slash, name = one.partition("/")
                if slash:
                    yield KINDS[kind], name
            if several and "/" not in several[0]:
                for kind in several[0].split(","):
                    assert kind in KINDS, kind
                for name in several[1:]:
                    yield KINDS[several[0]], name
    if source := command.options.get("--from"):
        kind, _, name = source.partition("/")
        yield KINDS[kind], name


def kubectl() -> list[Command]:
    return [command for command in commands() if command.words[:1] == ["kubectl"]]


def test_kubectl_is_typed_about_what_there_is() -> None:
    objects = installed()
    known = names(objects)
    known |= {("Pod", said.operands[0]) for one in kubectl() if (said := typed(one.words)).verb == "run"}
    wrong = []
    for command in kubectl():
        said = typed(command.words)
        wrong += [(command.page, flag) for flag in said.unknown]
        for kind, name in references(said):
            wrong += [(command.page, kind, one) for one in placed(name) if (kind, one) not in known]
    assert len(kubectl()) > 80
    assert wrong == []


def test_labels_that_are_typed_are_those_of_pods() -> None:
    objects = installed()
    labels = [pod["metadata"].get("labels", {}) for _, pod in pods(objects)]
    absent = []
    for command in kubectl():
        said = typed(command.words).options
        selector = said.get("-l") or said.get("--selector")
        for one in placed(selector) if selector else []:
            wanted = dict(part.split("=") for part in one.split(","))
            if not any(wanted.items() <= having.items() for having in labels):
                absent.append((command.page, one))
    assert absent == []


def test_ports_that_are_forwarded_are_open() -> None:
    objects = installed()
    open_at: dict[tuple[str, str], set[int]] = {}
    for one in objects:
        kind, name = one["kind"], one["metadata"]["name"]
        if kind == "Service":
            open_at[kind, name] = {port["port"] for port in one["spec"]["ports"]}
        elif kind in ("Deployment", "StatefulSet"):
            ports = {
                port["containerPort"]
                for container in containers(one["spec"]["template"])
                for port in container.get("ports", [])
            }
            open_at[kind, name] = ports
            for number in range(one["spec"].get("replicas", 1) if kind == "StatefulSet" else 0):
                open_at["Pod", f"{name}-{number}"] = ports
    closed = []
    for command in kubectl():
        said = typed(command.words)
        if said.verb != "port-forward":
            continue
        ((kind, name),) = references(said)
        port = int(said.operands[-1].rpartition(":")[2])
        closed += [(command.page, one, port) for one in placed(name) if port not in open_at[kind, one]]
    assert closed == []


def test_containers_that_are_named_are_in_their_pods() -> None:
    having = {place: {one["name"] for one in containers(pod)} for place, pod in pods(installed())}
    absent = []
    for command in kubectl():
        said = typed(command.words)
        container = said.options.get("-c") or said.options.get("--container")
        for kind, name in references(said) if container else ():
            owner = re.sub(r"-\d+$", "", name) if kind == "Pod" else name
            for one in placed(owner):
                held = next(held for place, held in having.items() if place.endswith(f" {one}"))
                if container not in held:
                    absent.append((command.page, name, container))
    assert absent == []


def test_helm_is_typed_with_files_and_values_that_there_are() -> None:
    values = yaml.load((CHART / "values.yaml").read_text(), yaml.CSafeLoader)
    settings = {name for name, _ in settings_of(Settings)}
    several = [command for command in commands() if command.words[:1] == ["helm"]]
    assert len(several) > 4
    wrong = []
    for command in several:
        words = iter(command.words[1:])
        for word in words:
            if word in ("-f", "--values"):
                file = next(words)
                if file.startswith("deploy/") and not (ROOT / file).is_file():
                    wrong.append((command.page, file))
            elif word == "--set":
                key = next(words).partition("=")[0]
                if "…" not in key and not _is_value(key, values, settings):
                    wrong.append((command.page, key))
            elif word.startswith("deploy/") and not (ROOT / word).is_dir():
                wrong.append((command.page, word))
    assert wrong == []


def _is_value(key: str, values: Object, settings: set[str]) -> bool:
    if key.startswith("settings."):
        return key.removeprefix("settings.") in settings
    at: object = values
    for part in key.split("."):
        if not isinstance(at, dict) or part not in at:
            return False
        at = at[part]
    return True


def test_what_is_installed_as_the_pages_say_renders() -> None:
    whole = [
        command
        for command in commands()
        if command.words[:2] == ["helm", "install"] and not any("…" in word for word in command.words)
    ]
    assert whole
    for command in whole:
        arguments = [word for word in command.words[2:] if word != "--wait"]
        placed_at = [
            str(ROOT / one) if (ROOT / one).exists() and Path(one).parts[0] == "deploy" else one
            for one in arguments
        ]
        done = helm("template", *placed_at)
        assert done.returncode == 0, (command.page, done.stderr)
