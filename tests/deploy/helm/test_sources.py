"""What the chart carries of other rooms is what stands there: settings, engines, rules and dashboards."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
import tarfile
from pathlib import Path
from types import ModuleType

import jsonschema
import pytest
import yaml
from tests.deploy.helm.charts import CHART, LLM, ROOT, closed, helm, named, of_kind, rendered, template

from groundwatch.captioning.engines import build as captioning
from groundwatch.errors import SettingsError
from groundwatch.extraction.engines import build as extraction
from groundwatch.generation.engines import build as generation
from groundwatch.matching.engines import build as matching
from groundwatch.runtime.settings import CaptioningSettings, StageSettings
from groundwatch.verification.engines import build as verification

pytestmark = pytest.mark.slow

RULES = CHART / "files" / "groundwatch.rules.yaml"
DASHBOARDS = CHART / "files" / "dashboards"


@pytest.fixture(scope="module")
def update() -> ModuleType:
    """deploy/helm/update.py, which is no package."""
    folder = str(CHART.parent)
    sys.path.insert(0, folder)
    try:
        spec = importlib.util.spec_from_file_location("chart_update", CHART.parent / "update.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.remove(folder)


def test_the_schema_is_up_to_date(update: ModuleType) -> None:
    assert update.SCHEMA.read_text() == update.values_schema.rendered(), "run `python deploy/helm/update.py`"


def test_a_packaged_chart_carries_rules_and_dashboards(tmp_path: Path) -> None:
    """In the repository they are links."""
    done = helm("package", str(CHART), "--destination", str(tmp_path))
    assert done.returncode == 0, done.stderr
    [path] = tmp_path.glob("*.tgz")
    carried = {}
    with tarfile.open(path) as chart:
        for member in chart:
            if member.name.startswith("groundwatch/files/") and (file := chart.extractfile(member)):
                carried[member.name.removeprefix("groundwatch/files/")] = file.read()
    sources = {"groundwatch.rules.yaml": ROOT / "deploy/prometheus/groundwatch.rules.yaml"}
    boards = (ROOT / "deploy/grafana/dashboards").glob("*.json")
    sources |= {f"dashboards/{board.name}": board for board in boards}
    assert carried == {name: file.read_bytes() for name, file in sources.items()}


async def no_image(digest: str) -> bytes:
    raise AssertionError(digest)


def known_engines(stage: str) -> set[str]:
    """The engines that the code names when it is asked for one that there is not."""
    bogus = StageSettings(engine="bogus")
    with pytest.raises(SettingsError) as refused:
        match stage:
            case "extraction":
                extraction(bogus)
            case "matching":
                matching(bogus)
            case "verification":
                verification(bogus, load_image=no_image)
            case "captioning":
                captioning(CaptioningSettings(engine="bogus"))
            case "generation":
                generation(bogus)
    found = re.search(r"known are (.*)$", str(refused.value))
    assert found is not None
    return set(found[1].split(", "))


@pytest.mark.parametrize("stage", ["extraction", "captioning", "generation", "matching", "verification"])
def test_the_schema_knows_every_engine(stage: str, update: ModuleType) -> None:
    assert set(sys.modules["settings_schema"].ENGINES[stage]) == known_engines(stage)


def test_the_schema_is_closed_everywhere(update: ModuleType) -> None:
    free = {"global", "valueFrom", "nodeAffinity", "podAffinity", "podAntiAffinity", "items", "options"}
    free |= {"configMapRef", "secretRef", "behavior"}

    def check(schema: object, key: str) -> None:
        if isinstance(schema, dict):
            if schema.get("type") == "object" and key not in free:
                assert "additionalProperties" in schema, key
            for name, value in schema.items():
                check(value, name)
        elif isinstance(schema, list):
            for value in schema:
                check(value, key)

    check(sys.modules["values_schema"].values_schema(), "")


def test_dashboards_are_rendered_as_they_are() -> None:
    values = {**LLM, "monitoring": {"dashboards": {"enabled": True}}}
    done = template((), values)
    assert done.returncode == 0, done.stderr
    objects = [one for one in yaml.load_all(done.stdout, yaml.CSafeLoader) if one]
    boards = {
        path: text
        for one in of_kind(objects, "ConfigMap")
        if "dashboard" in one["metadata"]["name"]
        for path, text in one["data"].items()
    }
    assert boards == {path.name: path.read_text() for path in DASHBOARDS.glob("*.json")}


def test_the_prometheus_operator_takes_its_objects() -> None:
    v1 = importlib.import_module("cloudcoil.models.prometheus_operator.v1")
    objects = [one for case in ("everything", "production") for one in rendered(case)]
    for kind in ("PodMonitor", "PrometheusRule"):
        schema = closed(getattr(v1, kind).model_json_schema(by_alias=True))
        check = jsonschema.Draft202012Validator(schema)
        found = of_kind(objects, kind)
        assert found
        for one in found:
            check.validate(one)
            one["spec"]["selectr"] = {}
            assert not check.is_valid(one)


def test_the_pod_monitor_finds_every_service() -> None:
    objects = rendered("everything")
    (monitor,) = of_kind(objects, "PodMonitor")
    labels = named(objects, "Deployment", "scoring")["spec"]["template"]["metadata"]["labels"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert [one["port"] for one in monitor["spec"]["podMetricsEndpoints"]] == ["telemetry", "metrics"]


def test_the_five_lines_are_the_same_wherever_they_stand() -> None:
    page = (ROOT / "docs" / "kubernetes.md").read_text()
    found = re.search(r"```sh\n(.*?)```", page, re.DOTALL)
    assert found is not None
    lines = found[1].rstrip("\n").split("\n")
    assert len(lines) == 5
    chart = Path("deploy/helm/groundwatch")
    assert f"helm install groundwatch {chart}" in found[1]
    for profile in re.findall(rf"-f {chart}/(values-\w+\.yaml)", found[1]):
        assert (CHART / profile).is_file()
