"""Checkpoints into memory: device, type of number, digest; and errors that say what is wrong."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from groundwatch.models.serving.failures import CheckpointError
from groundwatch.models.serving.parameters import Parameters, checkpoint_digest


def device_of(parameters: Parameters) -> str:
    """The device that parameters name; `auto` is a GPU when there is one."""
    if parameters.device != "auto":
        return parameters.device
    return "cuda" if torch.cuda.is_available() else "cpu"


def dtype_of(parameters: Parameters) -> torch.dtype | str:
    """The type of number: `auto` is the checkpoint's own, but float32 on a CPU, where halves are slower."""
    if parameters.dtype != "auto":
        found: torch.dtype = getattr(torch, parameters.dtype)
        return found
    return torch.float32 if device_of(parameters) == "cpu" else "auto"


@contextlib.contextmanager
def loading(parameters: Parameters) -> Iterator[None]:
    """Checks the digest first; turns whatever a broken checkpoint raises into a `CheckpointError`."""
    if parameters.threads > 0:
        torch.set_num_threads(parameters.threads)
    folder = parameters.folder
    if parameters.weights_sha256:
        if folder is None:
            raise CheckpointError(f"WEIGHTS_SHA256 is for a folder, and {parameters.model_id} is none")
        if (found := checkpoint_digest(folder)) != parameters.weights_sha256:
            raise CheckpointError(
                f"{folder}: the files have SHA-256 {found}, the repository says {parameters.weights_sha256}: "
                "write the repository anew"
            )
    try:
        yield
    except CheckpointError:
        raise
    except Exception as error:
        raise CheckpointError(
            f"cannot load {parameters.model_id}: {type(error).__name__}: {error}"
        ) from error


def source(parameters: Parameters) -> dict[str, Any]:
    """Arguments of `from_pretrained` that say which checkpoint is meant."""
    return {"revision": parameters.revision} if parameters.revision else {}


def in_place(model: Any, parameters: Parameters) -> Any:
    """The model on its device, ready to answer and never to learn; refuses weights that are no numbers."""
    model = model.to(device_of(parameters)).eval().requires_grad_(False)
    for name, weights in model.named_parameters():
        if not bool(torch.isfinite(weights).all()):
            raise CheckpointError(
                f"{parameters.model_id}: weights '{name}' hold what is no number: the checkpoint is broken"
            )
    return model
