"""Checkpoints into memory, and images as they want them; vectors of images and texts, images from
texts."""

import contextlib
import importlib
import importlib.util
import io
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import torch
from PIL import Image

from groundwatch.errors import InputError
from groundwatch.image_files import READERS, inspect
from groundwatch.models.serving.failures import CheckpointError, Refused, in_batches, in_groups
from groundwatch.models.serving.parameters import Parameters, checkpoint_digest
from groundwatch.orientation import upright

Vector = tuple[float, ...]


class ImageEncoder:
    """A checkpoint that AutoImageProcessor and AutoModel load: ViT, DINOv2, CLIP and their like.

    Its vector is, by `pooling`: the class token after the last layer (`cls`, as GenCeption does with
    ViT), the `mean` over places, or what the model's own `pooler` gives; `auto` is a projection into the
    space shared with texts where the model has one, else cls.
    """

    def __init__(self, parameters: Parameters) -> None:
        transformers: Any = importlib.import_module("transformers")
        self._parameters = parameters
        with loading(parameters):
            self._processor = transformers.AutoImageProcessor.from_pretrained(
                parameters.model_id, **source(parameters)
            )
            model = transformers.AutoModel.from_pretrained(
                parameters.model_id, dtype=dtype_of(parameters), **source(parameters)
            )
            self._model = in_place(model, parameters)

    def warm_up(self, image: bytes) -> None:
        """One vector, so that the first user does not wait; refuses a checkpoint that gives none."""
        check_first(self.encode([image])[0], self._parameters, "encode")

    def encode(self, images: Sequence[bytes]) -> list[Vector | Exception]:
        """One vector for each image, in order; an error in the place of one."""
        limits = self._parameters
        return in_groups(images, self._prepare, self._encode, size=limits.max_rows, threads=limits.threads)

    def _prepare(self, data: bytes) -> tuple[Any, dict[str, Any]]:
        given = self._processor(images=decode(data, self._parameters), return_tensors="pt")
        return tuple((name, tuple(value.shape)) for name, value in given.items()), dict(given)

    @torch.inference_mode()
    def _encode(self, group: Sequence[dict[str, Any]]) -> list[Vector]:
        model = self._model
        return _finite(self._pooled({name: onto(model, [one[name] for one in group]) for name in group[0]}))

    def _pooled(self, pixels: dict[str, Any]) -> Any:
        pooling = self._parameters.pooling
        if pooling == "auto" and hasattr(self._model, "get_image_features"):
            found = self._model.get_image_features(**pixels)
            return found if isinstance(found, torch.Tensor) else found.pooler_output
        found = self._model(**pixels)
        if pooling == "pooler":
            return found.pooler_output
        return found.last_hidden_state.mean(1) if pooling == "mean" else found.last_hidden_state[:, 0]


class TextEncoder:
    """A checkpoint that sentence-transformers loads: one with its own pooling, or any encoder, by mean."""

    def __init__(self, parameters: Parameters) -> None:
        from sentence_transformers import SentenceTransformer

        self._parameters = parameters
        with loading(parameters):
            dtype = dtype_of(parameters)
            model: Any = SentenceTransformer(
                parameters.model_id,
                device=device_of(parameters),
                model_kwargs={"dtype": dtype},
                **source(parameters),
            )
            self._model = in_place(model, parameters)

    def warm_up(self, image: bytes) -> None:
        check_first(self.encode(["a"])[0], self._parameters, "encode")

    def encode(self, texts: Sequence[str]) -> list[Vector | Exception]:
        """One vector for each text, in order; what a model cannot read of a long text is not in it."""
        return in_batches(texts, self._encode, size=self._parameters.max_rows)

    @torch.inference_mode()
    def _encode(self, texts: Sequence[str]) -> list[Vector]:
        found = self._model.encode(
            list(texts), batch_size=len(texts), convert_to_tensor=True, show_progress_bar=False
        )
        return _finite(found)


def onto(model: Any, parts: Sequence[Any]) -> Any:
    """Tensors as one, on the model's device, pixels in the model's type of number."""
    whole = torch.cat(list(parts))
    return whole.to(model.device, model.dtype if whole.is_floating_point() else None)


def _finite(rows: Any) -> list[Vector]:
    rows = rows.float()
    if not bool(torch.isfinite(rows).all()):
        raise Refused("not_finite", "the vector holds what is no number")
    return [tuple(row) for row in rows.tolist()]


MAX_STEPS = 1000
_CHARACTERS = 20_000


class GenerationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be drawn. `steps` 0: as many as the served model is set to."""

    prompt: str
    seed: int = 0
    steps: int = 0


class Generator:
    """A pipeline; a file `pipeline.py` in the checkpoint's folder is its code.

    The code of a folder that the operator named runs as theirs; code from the hub never does.
    """

    def __init__(self, parameters: Parameters) -> None:
        diffusers: Any = importlib.import_module("diffusers")
        self._parameters = parameters
        folder = parameters.folder
        own = folder is not None and (folder / "pipeline.py").is_file()
        with loading(parameters):
            dtype = dtype_of(parameters)
            pipeline = diffusers.DiffusionPipeline.from_pretrained(
                parameters.model_id,
                **({"custom_pipeline": str(folder), "trust_remote_code": True} if own else {}),
                **({"dtype": dtype} if isinstance(dtype, torch.dtype) else {}),
                low_cpu_mem_usage=importlib.util.find_spec("accelerate") is not None,
                **source(parameters),
            )
            self._pipeline = pipeline.to(device_of(parameters))
            self._pipeline.set_progress_bar_config(disable=True)
            for part, module in self._pipeline.components.items():
                if isinstance(module, torch.nn.Module):
                    ready(module, parameters, f"{part}.")

    def warm_up(self, image: bytes) -> None:
        check_first(self.draw([GenerationRequest(prompt="a", steps=2)])[0], self._parameters, "draw")

    def draw(self, requests: Sequence[GenerationRequest]) -> list[bytes | Exception]:
        """One PNG for each request, in order; an error in the place of one."""
        return in_groups(requests, self._group, self._draw, size=self._parameters.max_rows)

    def _group(self, request: GenerationRequest) -> tuple[int, GenerationRequest]:
        if not request.prompt.strip() or not 0 <= request.steps <= MAX_STEPS:
            raise Refused("judge_rejected_request", f"a prompt and 0 to {MAX_STEPS} steps are needed")
        if len(request.prompt) > _CHARACTERS:
            raise Refused("prompt_too_long", f"{len(request.prompt)} characters")
        return request.steps, request

    @torch.inference_mode()
    def _draw(self, requests: Sequence[GenerationRequest]) -> list[bytes]:
        parameters = self._parameters
        options: dict[str, Any] = {}
        if steps := requests[0].steps or parameters.steps:
            options["num_inference_steps"] = steps
        if parameters.image_size:
            options |= {"height": parameters.image_size, "width": parameters.image_size}
        if parameters.guidance >= 0:
            options["guidance_scale"] = parameters.guidance
        made = self._pipeline(
            prompt=[request.prompt for request in requests],
            # Each has its own dice, on the CPU: up to rounding the same image in any batch, on any device.
            generator=[torch.Generator("cpu").manual_seed(request.seed) for request in requests],
            output_type="np",
            **options,
        )
        if any(getattr(made, "nsfw_content_detected", None) or ()):
            raise Refused("refused", "the generator's safety checker withheld the image")
        return [png(_picture(image)) for image in made.images]


def _picture(image: Any) -> Image.Image:
    """Pipelines give numbers from 0 to 1, but a folder's own may know only pictures."""
    if isinstance(image, Image.Image):
        return image
    values = np.asarray(image, dtype=np.float32)
    if not np.isfinite(values).all():
        raise Refused("not_finite", "the image holds what is no number")
    return Image.fromarray((values.clip(0, 1) * 255).round().astype(np.uint8))


def device_of(parameters: Parameters) -> str:
    """The device that parameters name; `auto` is a GPU when there is one."""
    if parameters.device != "auto":
        return parameters.device
    return "cuda" if torch.cuda.is_available() else "cpu"


def dtype_of(parameters: Parameters) -> torch.dtype | str:
    """The type of number: `auto` is the checkpoint's own and `half` bfloat16, but float32 on a CPU, where
    halves are slower."""
    if parameters.dtype not in ("auto", "half"):
        found: torch.dtype = getattr(torch, parameters.dtype)
        return found
    if device_of(parameters) == "cpu":
        return torch.float32
    return torch.bfloat16 if parameters.dtype == "half" else "auto"


@contextlib.contextmanager
def loading(parameters: Parameters) -> Iterator[None]:
    """Checks the digest first; turns whatever a broken checkpoint raises into a `CheckpointError`."""
    if parameters.threads > 0:
        torch.set_num_threads(parameters.threads)
    # It builds a plan for every length that it has not met, and each token of an answer makes a new one.
    torch.backends.cuda.enable_cudnn_sdp(False)
    folder = parameters.folder
    if parameters.weights_sha256:
        if folder is None:
            raise CheckpointError(f"WEIGHTS_SHA256 is for a folder, and {parameters.model_id} is none")
        if (found := checkpoint_digest(folder)) != parameters.weights_sha256:
            stated = f"the files have SHA-256 {found}, the repository says {parameters.weights_sha256}"
            raise CheckpointError(f"{folder}: {stated}: write the repository anew")
    if importlib.util.find_spec("torchvision"):
        try:
            importlib.import_module("torchvision")
        except Exception as error:
            why = f"torchvision, which prepares images, cannot be used with torch {torch.__version__}"
            mend = "install both from one index, or leave torchvision out"
            raise CheckpointError(f"{why} ({str(error).partition(chr(10))[0]}): {mend}") from error
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
            return upright(opened).convert("RGB")
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
