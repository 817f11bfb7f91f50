"""The reader's weights: differences to the encoder's package in few bits, and the heads.

`reader.safetensors` holds for each trained matrix of the encoder its difference to the package's, in 4 bits
with a scale for each 64 weights, and everything else in half precision. `reader.json` says which file belongs
to it, and what it reached.
"""

from __future__ import annotations

import hashlib
from importlib import resources
from pathlib import Path

import msgspec
import torch
from safetensors.torch import load, save
from torch import Tensor

from groundwatch.errors import UsageError
from groundwatch.reading.model import ReaderModel
from groundwatch.reading.reader import Reader

WEIGHTS, ABOUT = "reader.safetensors", "reader.json"
FOLDER = Path(str(resources.files("groundwatch.reading") / "weights"))

_GROUP = 64
_LIMIT = 7
"""The largest number of 4 bits, with a sign."""


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What a reader's weights are: their digest, the digest of the data, and the schedule."""

    sha256: str
    data: str
    answers: int
    facts: int
    epochs: int
    seed: int


def write(model: ReaderModel, encoder: Path, folder: Path, about: About) -> About:
    """Writes the trained weights, and what they are; returns it with their digest."""
    packed: dict[str, Tensor] = {}
    base = ReaderModel(encoder).state_dict()
    for name, parameter in model.named_parameters():
        if name.startswith("encoder.embeddings."):
            continue
        value = parameter.detach().float()
        if name.startswith("encoder.") and value.ndim == 2:
            packed[f"{name}:bits"], packed[f"{name}:scale"] = pack(value - base[name])
        else:
            packed[name] = value.half()
    data = save(packed)
    folder.mkdir(parents=True, exist_ok=True)
    about = msgspec.structs.replace(about, sha256=hashlib.sha256(data).hexdigest())
    (folder / WEIGHTS).write_bytes(data)
    (folder / ABOUT).write_bytes(msgspec.json.format(msgspec.json.encode(about), indent=2) + b"\n")
    return about


def load_reader(encoder: Path, folder: Path = FOLDER) -> Reader:
    """The reader on the encoder of that folder. Raises `UsageError` for weights that are not those named."""
    about = read_about(folder)
    try:
        data = (folder / WEIGHTS).read_bytes()
    except OSError as error:
        raise UsageError(
            f"{folder / WEIGHTS}: cannot read the reader's weights ({error.strerror})"
        ) from error
    digest = hashlib.sha256(data).hexdigest()
    if digest != about.sha256:
        raise UsageError(
            f"{folder / WEIGHTS}: not the weights that {ABOUT} names (SHA-256 {digest}); install it again"
        )
    model = ReaderModel(encoder)
    own = model.state_dict()
    with torch.no_grad():
        tensors = load(data)
        for name, value in tensors.items():
            weight, _, part = name.partition(":")
            if not part:
                own[name].copy_(value)
            elif part == "bits":
                own[weight].add_(unpack(value, tensors[f"{weight}:scale"], own[weight].shape))
    return Reader(model)


def read_about(folder: Path = FOLDER) -> About:
    try:
        return msgspec.json.decode((folder / ABOUT).read_bytes(), type=About)
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(f"{folder / ABOUT}: says of no reader ({error})") from error


def pack(difference: Tensor) -> tuple[Tensor, Tensor]:
    """Two weights a byte, and the scale of each group."""
    groups = difference.reshape(-1, _GROUP)
    scale = (groups.abs().amax(1, keepdim=True) / _LIMIT).clamp(min=1e-8)
    whole = (groups / scale).round().clamp(-_LIMIT, _LIMIT).to(torch.int8).reshape(-1) + 8
    low, high = whole[0::2].to(torch.uint8), whole[1::2].to(torch.uint8)
    return low | (high << 4), scale.half()


def unpack(packed: Tensor, scale: Tensor, shape: torch.Size) -> Tensor:
    whole = torch.stack([packed & 15, packed >> 4], -1).to(torch.int16) - 8
    return (whole.reshape(-1, _GROUP).float() * scale.float()).reshape(shape)
