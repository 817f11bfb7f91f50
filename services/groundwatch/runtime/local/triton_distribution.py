"""Where the tritonserver that nvidia-pytriton carries lies, and what it needs to run in this environment."""

import importlib.metadata
import importlib.util
import os
import shutil
import sys
import sysconfig
from pathlib import Path

from groundwatch.errors import MissingExtraError, UsageError


def find_distribution() -> Path:
    """The folder of the tritonserver that nvidia-pytriton brought, with a stub for this Python.

    Raises `MissingExtraError`, or `UsageError` where it cannot work.
    """
    package = importlib.util.find_spec("pytriton")
    if package is None or not package.submodule_search_locations:
        if sys.version_info >= (3, 13):
            raise UsageError(
                "the embedded Triton needs Python 3.11 or 3.12: use one, or set triton.url to another Triton"
            )
        raise MissingExtraError("nvidia-pytriton, the embedded Triton,", "models")
    root = Path(package.submodule_search_locations[0]) / "tritonserver"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    if not (root / "python_backend_stubs" / version).is_dir():
        raise UsageError(f"the embedded Triton has no backend for Python {version}: use 3.11 or 3.12")
    for needed in ("torch", "transformers", "diffusers", "sentence_transformers"):
        if importlib.util.find_spec(needed) is None:
            raise MissingExtraError(f"{needed}, which the embedded Triton's models need,", "models")
    if int((numpy := importlib.metadata.version("numpy")).partition(".")[0]) >= 2:
        raise UsageError(
            f"the embedded Triton's backend needs numpy below 2, and {numpy} is installed: "
            "run pip install 'groundwatch[models]'"
        )
    return root


def write_backend(root: Path, folder: Path) -> None:
    """The Python backend as Triton looks for it, with the process for models of this Python's version."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    for source in (
        *(root / "backends" / "python").glob("*.*"),
        root / "python_backend_stubs" / version / "triton_python_backend_stub",
    ):
        (folder / source.name).symlink_to(source)


def package_paths() -> list[str]:
    """Where this Python finds packages: the models' process looks at no environment variable."""
    return [str(Path(path).absolute()) for path in sys.path if path]


def environment(root: Path) -> dict[str, str]:
    """Where the server finds its own libraries and this Python's."""
    own = os.environ.copy()
    libraries = (
        str(root.parents[1] / "nvidia_pytriton.libs"),
        sysconfig.get_config_var("LIBDIR"),
        own.get("LD_LIBRARY_PATH"),
    )
    own["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, libraries))
    return own | {"TOKENIZERS_PARALLELISM": "false"}
