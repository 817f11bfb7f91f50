"""One version for everything that is published, by a workflow that its own schema takes."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import groundwatch
from groundwatch.archive.place import STORES

ROOT = Path(__file__).parents[3]
WORKFLOW = ROOT / ".github" / "workflows" / "release.yaml"
CHART = ROOT / "deploy" / "helm" / "groundwatch"


def lint(file: Path, schema: str = "vendor.github-workflows") -> subprocess.CompletedProcess[str]:
    """Check a file against a schema of GitHub's."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema]
    return subprocess.run([*command, str(file)], capture_output=True, text=True, timeout=120)


def jobs() -> dict[str, Any]:
    """The workflow's jobs."""
    found: dict[str, Any] = yaml.safe_load(WORKFLOW.read_text())["jobs"]
    return found


def test_one_version_for_all() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    benchmarks = tomllib.loads((ROOT / "benchmarks" / "pyproject.toml").read_text())["project"]
    assert benchmarks["version"] == version and benchmarks["dependencies"] == [f"groundwatch=={version}"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert groundwatch.__version__ == chart["version"] == chart["appVersion"] == version
    assert f"\n## {version}\n" in (ROOT / "CHANGELOG.md").read_text()
    for file in (ROOT / "docker").glob("*Dockerfile"):
        assert f"ARG VERSION={version}\n" in file.read_text()


@pytest.mark.parametrize("file", WORKFLOW.parent.glob("*.yaml"), ids=lambda file: file.name)
def test_a_workflow_is_one_and_takes_nothing_that_may_change(file: Path) -> None:
    done = lint(file)
    assert done.returncode == 0, done.stdout + done.stderr
    text = file.read_text()
    actions = re.findall(r"uses: (\S+)(.*)$", text, re.MULTILINE)
    assert actions
    for action, behind in actions:
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action), action
        assert re.fullmatch(r" # v\d+\.\d+\.\d+", behind), action
    assert text.count("actions/checkout@") == text.count("persist-credentials: false")


def test_pins_are_proposed_anew() -> None:
    file = ROOT / ".github" / "dependabot.yml"
    done = lint(file, "vendor.dependabot")
    assert done.returncode == 0, done.stdout + done.stderr
    told = {one["package-ecosystem"] for one in yaml.safe_load(file.read_text())["updates"]}
    assert told == {"github-actions", "docker", "docker-compose"}


def test_that_check_finds_a_misspelled_key(tmp_path: Path) -> None:
    file = tmp_path / "release.yaml"
    file.write_text(WORKFLOW.read_text().replace("runs-on:", "runs-onn:"))
    assert lint(file).returncode != 0


def test_the_workflow_publishes_every_image_and_may_no_more_than_it_needs() -> None:
    workflow = yaml.safe_load(WORKFLOW.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    images = jobs()["images"]
    for image in images["strategy"]["matrix"]["include"]:
        text = (ROOT / image["file"]).read_text()
        for argument in ("VERSION", "REVISION", "SOURCE", *re.findall(r"^([A-Z]+)=", image["arguments"])):
            assert f"ARG {argument}=" in text
        for file in re.findall(r"=(docker/\S+)", image["arguments"]):
            assert (ROOT / file).is_file()
        assert "org.opencontainers.image.version" in text
    names = [step.get("uses", step.get("run", "")).partition("@")[0] for step in images["steps"]]
    build = images["steps"][names.index("docker/build-push-action")]["with"]
    assert build["sbom"] is True and build["provenance"] == "mode=max"
    # Looked through before it is signed.
    assert names.index("aquasecurity/trivy-action") < names.index('cosign sign --yes "$IMAGE"')
    for job in ("images", "chart"):
        assert jobs()[job]["permissions"] == {
            "contents": "read",
            "packages": "write",
            "id-token": "write",
        }


def test_scripts_of_the_workflow_are_shell() -> None:
    scripts = [step["run"] for job in jobs().values() for step in job["steps"] if "run" in step]
    assert len(scripts) == 4
    for script in scripts:
        done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr


def test_the_chart_is_published_with_the_registry_of_its_images(tmp_path: Path) -> None:
    (script,) = (step["run"] for step in jobs()["chart"]["steps"] if "sed" in step.get("run", ""))
    folder = tmp_path / "deploy" / "helm" / "groundwatch"
    folder.mkdir(parents=True)
    (folder / "values.yaml").write_text((CHART / "values.yaml").read_text())
    edits = "".join(f"{line}\n" for line in script.splitlines() if line.startswith("sed "))
    digests = {
        name: f"sha256:{number * 64}" for name, number in (("DIGEST", "1"), ("TRITON", "2"), ("NATS", "3"))
    }
    pages = "https://github.com/us/groundwatch/blob/v0.1.0/docs/runbooks"
    told = {"PLACE": "ghcr.io/us", "PAGES": pages, **digests, "PATH": "/usr/bin:/bin"}
    subprocess.run(["sh", "-ec", edits], cwd=tmp_path, env=told, check=True)
    values = yaml.safe_load((folder / "values.yaml").read_text())
    assert (values["image"]["registry"], values["image"]["digest"]) == ("ghcr.io/us", digests["DIGEST"])
    assert values["triton"]["image"]["digest"] == digests["TRITON"]
    assert values["nats"]["image"]["registry"] == "docker.io"
    assert values["nats"]["image"]["digest"] == digests["NATS"]
    assert values["monitoring"]["prometheusRule"]["runbookUrl"] == pages


@pytest.mark.parametrize("scheme", STORES)
def test_the_wheels_have_the_stores_of_the_clouds(scheme: str) -> None:
    """An address that nothing answers: a wheel without the store would not know the scheme."""
    deltalake = pytest.importorskip("deltalake")
    closed = "http://127.0.0.1:9"
    options = {
        "s3": {
            "aws_endpoint": closed,
            "aws_access_key_id": "a",
            "aws_secret_access_key": "b",
            "aws_region": "c",
        },
        "gs": {"google_base_url": closed, "google_skip_signature": "true"},
        "ab": {"azure_endpoint": closed, "azure_storage_account_name": "a", "azure_skip_signature": "true"},
    }[scheme[:2]]
    patience = {"allow_http": "true", "max_retries": "0", "retry_timeout": "1s"}
    with pytest.raises(Exception, match=r"(?i)error sending request|connect") as failed:
        deltalake.DeltaTable(f"{scheme}://bucket/path", storage_options={**options, **patience})
    assert "scheme" not in str(failed.value).lower()


def test_the_gateway_has_stores_of_its_own() -> None:
    store = pytest.importorskip("obstore.store")
    assert all(hasattr(store, name) for name in ("S3Store", "GCSStore", "AzureStore"))
