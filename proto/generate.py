"""Writes the Python code of the gRPC contract: python proto/generate.py.

The file keeps its own name in the descriptors, `groundwatch/v1/monitor.proto`, so that reflection tells it
and a client's own generated code describes the same; only the Python import is put where the code lies.
"""

from __future__ import annotations

import argparse
import tempfile
from importlib.resources import files
from pathlib import Path

HERE = Path(__file__).parent
SOURCE = "groundwatch/v1/monitor.proto"
TARGET = HERE.parent / "services" / "groundwatch" / "gateway" / "grpc" / "generated"
PACKAGE = "groundwatch.gateway.grpc.generated"


def generated() -> dict[str, str]:
    """Text of each file by its name. Raises `RuntimeError` when the contract does not compile."""
    from grpc_tools import protoc

    with tempfile.TemporaryDirectory() as folder:
        common = files("grpc_tools") / "_proto"
        options = [f"-I{HERE}", f"-I{common}", *(f"--{kind}_out={folder}" for kind in KINDS)]
        if protoc.main(["protoc", *options, SOURCE]) != 0:
            raise RuntimeError(f"{SOURCE} does not compile")
        found = {path.name: path.read_text("utf-8") for path in Path(folder).rglob("*.py*")}
    return {
        name: text.replace("from groundwatch.v1 import", f"from {PACKAGE} import")
        for name, text in sorted(found.items())
    }


KINDS = ("python", "pyi", "grpc_python")


def main() -> None:
    """Write them where they belong, or to a folder of choice."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=TARGET)
    folder: Path = parser.parse_args().folder
    for name, text in generated().items():
        (folder / name).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
