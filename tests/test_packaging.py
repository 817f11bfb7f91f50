"""What a wheel holds: the product with its data, and no tool that trains or builds what is shipped."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

STARTED = {"groundwatch/__main__.py", "groundwatch/runtime/stores/image_worker.py"}
"""The only modules that are run as programs: the command line, and a child process of a service."""

TRAINING = {"sklearn", "tools", "tokenizers", "setuptools", "grpc_tools"}
"""What only training and building import."""

DATA = (
    "groundwatch/py.typed",
    "groundwatch/reading/weights/reader.json",
    "groundwatch/reading/weights/reader.safetensors",
    "groundwatch/demo/answers.jsonl",
    "groundwatch/language/nouns/wordnet.json",
    "groundwatch/miniature/checkpoints/generator/pipeline.py",
    "groundwatch/miniature/checkpoints/lvlm_good/model.safetensors",
    "groundwatch/models/serving/statement.md",
    "groundwatch/models/triton_models/verifier/1/model.py",
    "groundwatch/models/triton_models/verifier/config.pbtxt",
)


def built(root: Path, folder: Path, *names: str) -> zipfile.ZipFile:
    """The wheel of these files and folders of `root`."""
    source = folder / "source"
    source.mkdir()
    for name in names:
        if (root / name).is_file():
            shutil.copy(root / name, source)
        else:
            skipped = shutil.ignore_patterns("__pycache__", "*.egg-info")
            shutil.copytree(root / name, source / name, ignore=skipped)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    done = subprocess.run([*command, "-w", folder, source], capture_output=True, text=True, check=False)
    if "No module named" in done.stderr or "BackendUnavailable" in done.stderr:
        pytest.skip("setuptools is not installed here, and nothing may be fetched")
    assert done.returncode == 0, done.stderr
    [path] = folder.glob("*.whl")
    return zipfile.ZipFile(path)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    return built(ROOT, folder, "services", "tools", "pyproject.toml", "README.md", "LICENSE")


@pytest.mark.slow
def test_the_benchmarks_are_a_wheel_of_their_own_with_their_data(tmp_path: Path) -> None:
    sources = ("groundwatch_benchmarks", "pyproject.toml", "README.md")
    names = built(ROOT / "benchmarks", tmp_path, *sources).namelist()
    top = {name.partition("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == {"groundwatch_benchmarks"}
    package = ROOT / "benchmarks" / "groundwatch_benchmarks"
    files = {path.relative_to(package.parent).as_posix() for path in package.rglob("*") if path.is_file()}
    assert {name for name in files if "__pycache__" not in name} <= set(names)


@pytest.mark.slow
def test_what_the_product_reads_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    assert [name for name in DATA if name not in wheel.namelist()] == []


@pytest.mark.slow
def test_no_tool_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    names = wheel.namelist()
    info = {name.partition("/")[0] for name in names} - {"groundwatch"}
    assert [name for name in info if not name.endswith(".dist-info")] == []
    started, training = set(), []
    for name in names:
        if not name.endswith(".py"):
            continue
        text = wheel.read(name).decode()
        if '__name__ == "__main__"' in text:
            started.add(name)
        for node in ast.walk(ast.parse(text)):
            imported = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                imported = [node.module]
            training += [(name, one) for one in imported if one.partition(".")[0] in TRAINING]
            if isinstance(node, ast.Attribute) and node.attr in ("backward", "optim"):
                training.append((name, node.attr))
    assert started == STARTED
    assert training == []
