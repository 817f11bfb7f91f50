"""Builds the wheel `groundwatch-client` (PEP 517), from the modules of `groundwatch` that it needs.

Its files lie in a folder of its own, `groundwatch_client/groundwatch`, which a `.pth` file puts at the end of
the path. So where `groundwatch` itself is installed too, that one is found first; neither overwrites a file
of the other, and removing one leaves the other whole.
"""

from __future__ import annotations

import base64
import hashlib
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

NAME = "groundwatch_client"
HERE = Path(__file__).resolve().parent
SOURCE = HERE.parents[1] / "services"

MODULES = (
    "groundwatch/__init__.py",
    "groundwatch/py.typed",
    "groundwatch/counting.py",
    "groundwatch/errors.py",
    "groundwatch/client/*.py",
    "groundwatch/conversations/*.py",
    "groundwatch/conversations/*.toml",
)
SHIM = '''"""groundwatch-client: `from groundwatch.client import Recorder, wrap_openai`.

Importing this package makes that work also where `.pth` files are not read (`pip install --target`).
"""

import importlib.util
import pathlib
import sys

if importlib.util.find_spec("groundwatch") is None:
    sys.path.append(str(pathlib.Path(__file__).parent))
'''


def build_wheel(
    wheel_directory: str,
    config_settings: Mapping[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """The name of the wheel."""
    info = f"{NAME}-{version()}.dist-info"
    name = f"{NAME}-{version()}-py3-none-any.whl"
    wheel = "Wheel-Version: 1.0\nGenerator: groundwatch\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files = {f"{NAME}/{path}": (SOURCE / path).read_bytes() for path in sources()}
    files |= {
        f"{NAME}/__init__.py": SHIM.encode(),
        f"{NAME}.pth": f"{NAME}\n".encode(),
        f"{info}/METADATA": metadata().encode(),
        f"{info}/WHEEL": wheel.encode(),
        f"{info}/licenses/LICENSE": (HERE.parents[1] / "LICENSE").read_bytes(),
    }
    record = "".join(f"{path},sha256={_digest(data)},{len(data)}\n" for path, data in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    with zipfile.ZipFile(Path(wheel_directory) / name, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in files.items():
            # The same files make the same wheel.
            archive.writestr(zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)
    return name


def build_sdist(sdist_directory: str, config_settings: Mapping[str, Any] | None = None) -> str:
    """There is none: the sources are the repository's."""
    raise NotImplementedError("groundwatch-client is built as a wheel, from a checkout of groundwatch")


def sources() -> list[str]:
    """What is taken of the package, by its path."""
    return sorted(path.relative_to(SOURCE).as_posix() for pattern in MODULES for path in SOURCE.glob(pattern))


def version() -> str:
    """The package's own."""
    text = (SOURCE / "groundwatch" / "__init__.py").read_text("utf-8")
    return re.findall(r'^__version__ = "(.+)"', text, re.MULTILINE)[0]


def metadata() -> str:
    fields = {
        "Metadata-Version": "2.4",
        "Name": "groundwatch-client",
        "Version": version(),
        "Summary": "Records what vision-language models answer, without disturbing the application.",
        "License-Expression": "Apache-2.0",
        "License-File": "LICENSE",
        "Requires-Python": ">=3.11",
        "Description-Content-Type": "text/markdown",
    }
    needed = "".join(f"Requires-Dist: {one}\n" for one in ("httpx>=0.28", "msgspec>=0.22"))
    page = (HERE / "README.md").read_text("utf-8")
    return "".join(f"{name}: {value}\n" for name, value in fields.items()) + f"{needed}\n{page}"


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
