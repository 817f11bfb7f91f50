"""Checkpoints into memory, and images as they want them; and errors that say what is wrong."""

import contextlib
import io
from collections.abc import Iterator
from typing import Any

import torch
from PIL import Image, ImageOps

from groundwatch.errors import InputError
from groundwatch.image_files import READERS, inspect
from groundwatch.models.serving.failures import CheckpointError, Refused
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
            stated = f"the files have SHA-256 {found}, the repository says {parameters.weights_sha256}"
            raise CheckpointError(f"{folder}: {stated}: write the repository anew")
    try:
        yield
    except CheckpointError:
        raise
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise CheckpointError(f"cannot load {parameters.model_id}: {why}") from error


def source(parameters: Parameters) -> dict[str, Any]:
    """Arguments of `from_pretrained` that say which checkpoint is meant."""
    return {"revision": parameters.revision} if parameters.revision else {}


def in_place(model: Any, parameters: Parameters) -> Any:
    """The model on its device, ready to answer and never to learn; refuses weights that are no numbers."""
    return ready(model.to(device_of(parameters)), parameters)


def ready(model: Any, parameters: Parameters, part: str = "") -> Any:
    for name, weights in model.eval().requires_grad_(False).named_parameters():
        if not bool(torch.isfinite(weights).all()):
            broken = f"weights '{part}{name}' hold what is no number: the checkpoint is broken"
            raise CheckpointError(f"{parameters.model_id}: {broken}")
    return model


def check_first(found: object, parameters: Parameters, what: str) -> None:
    """Refuses a checkpoint whose first result is an error. `what` it cannot do."""
    if isinstance(found, Exception):
        raise CheckpointError(f"{parameters.model_id} cannot {what}: {found}")


def decode(data: bytes, limits: Parameters) -> Image.Image:
    """The image, checked by what its file says of itself before it is decoded. Raises `Refused`."""
    try:
        inspect(data, max_bytes=limits.max_image_bytes, max_pixels=limits.max_image_pixels)
        with Image.open(io.BytesIO(data), formats=READERS) as opened:
            return ImageOps.exif_transpose(opened).convert("RGB")
    except InputError as error:
        raise Refused("unreadable_image", str(error)) from error
    except Exception as error:
        # Pillow's decoders raise whatever their format's parser raised.
        raise Refused("unreadable_image", f"the image cannot be decoded: {error}") from error


def decode_all(images: tuple[bytes, ...], limits: Parameters) -> list[Image.Image]:
    """All images of one question. Raises `Refused`, also when there are too many."""
    if len(images) > limits.max_images:
        raise Refused("judge_rejected_request", f"{len(images)} images; this model takes {limits.max_images}")
    return [decode(data, limits) for data in images]


def png(image: Image.Image) -> bytes:
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()
