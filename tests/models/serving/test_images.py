"""Checkpoints that cannot be served are not loaded, and the reason is one clear line."""

from __future__ import annotations

import io
import threading

import numpy as np
import pytest
import torch
from PIL import Image
from tests.support import checkpoints
from tests.support.checkpoints import picture

from groundwatch.models.serving.failures import CheckpointError, Refused, in_batches, in_groups
from groundwatch.models.serving.images import (
    GenerationRequest,
    Generator,
    ImageEncoder,
    TextEncoder,
    decode,
    dtype_of,
)
from groundwatch.models.serving.lvlm import VisionLanguage
from groundwatch.models.serving.parameters import Parameters, checkpoint_digest, read


def pixels(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)), dtype=int)


def test_a_cut_off_checkpoint_is_refused(copy):
    folder = copy()
    checkpoints.spoil(folder)
    with pytest.raises(CheckpointError, match="cannot load"):
        VisionLanguage(Parameters(model_id=str(folder)))


def test_weights_that_are_no_numbers_are_refused(copy):
    folder = copy()
    checkpoints.spoil(folder, nan=True)
    with pytest.raises(CheckpointError, match="no number"):
        VisionLanguage(Parameters(model_id=str(folder)))


def test_a_checkpoint_is_held_to_its_digest(copy):
    folder = copy()
    digest = checkpoint_digest(folder)
    VisionLanguage(Parameters(model_id=str(folder), weights_sha256=digest))
    (folder / "generation_config.json").write_text("{}")
    with pytest.raises(CheckpointError, match="write the repository anew"):
        VisionLanguage(Parameters(model_id=str(folder), weights_sha256=digest))


def test_a_folder_that_is_none(tmp_path):
    with pytest.raises(CheckpointError, match="cannot load"):
        VisionLanguage(Parameters(model_id=str(tmp_path / "absent")))


def test_a_torchvision_of_another_torch_is_told_in_one_line(folder, tmp_path, monkeypatch):
    (tmp_path / "torchvision.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(CheckpointError, match=r"^torchvision.*nms does not exist\): install both") as raised:
        VisionLanguage(Parameters(model_id=str(folder)))
    assert "\n" not in str(raised.value)


def test_types_of_number(folder):
    half = VisionLanguage(Parameters(model_id=str(folder), dtype="bfloat16"))
    assert half.model.dtype is torch.bfloat16
    for dtype in ("auto", "half"):
        assert VisionLanguage(Parameters(model_id=str(folder), dtype=dtype)).model.dtype is torch.float32
    assert dtype_of(Parameters(model_id="x", dtype="half", device="cuda")) is torch.bfloat16
    # It would build a plan for each length of a growing answer.
    assert not torch.backends.cuda.cudnn_sdp_enabled()


def test_parameters_come_as_strings():
    found = read({"MODEL_ID": "a/b", "MAX_ROWS": "7", "DTYPE": "", "GUIDANCE": "7.5", "OTHER": "x"})
    assert (found.model_id, found.max_rows, found.dtype, found.guidance) == ("a/b", 7, "auto", 7.5)
    for wrong in (
        {"MODEL_ID": ""},
        {"MODEL_ID": "a", "MAX_ROWS": "many"},
        {"MODEL_ID": "a", "DTYPE": "int8"},
    ):
        with pytest.raises(CheckpointError):
            read(wrong)


def test_images_are_read_upright_and_within_limits():
    sideways = Image.new("RGB", (8, 4), (255, 0, 0))
    exif = sideways.getexif()
    exif[0x0112] = 6
    out = io.BytesIO()
    sideways.save(out, "JPEG", exif=exif)
    assert decode(out.getvalue(), Parameters(model_id="a")).size == (4, 8)
    for kind in ("PNG", "JPEG", "WEBP", "GIF"):
        assert decode(picture(kind=kind), Parameters(model_id="a")).mode == "RGB"
    for data, limits in (
        (picture(), {"max_image_bytes": 10}),
        (picture(), {"max_image_pixels": 100}),
        (picture(kind="BMP"), {}),
        (picture()[:-30], {}),
    ):
        with pytest.raises(Refused, match="unreadable_image"):
            decode(data, Parameters(model_id="a", **limits))


def test_a_batch_survives_its_members():
    def run(items):
        if 3 in items:
            raise Refused("not_finite", "3")
        if len(items) > 2:
            raise MemoryError
        return [item * 10 for item in items]

    found = in_batches([1, 2, 3, 4, 5], run, size=4)
    assert [one if isinstance(one, int) else str(one) for one in found] == [10, 20, "[not_finite] 3", 40, 50]


def test_what_fills_a_batch_runs_while_the_rest_is_prepared():
    """Two threads: the third item is held back until the first batch has run."""
    ran = threading.Event()

    def prepare(item: int) -> tuple[str, int]:
        if item == 3:
            assert ran.wait(20)
        if item == 4:
            raise Refused("not_finite", "4")
        return "odd" if item % 2 else "even", item

    def run(items):
        ran.set()
        return [10 * item for item in items]

    found = in_groups([2, 6, 3, 4, 5, 8], prepare, run, size=2, threads=2)
    assert [one if isinstance(one, int) else str(one) for one in found] == [
        *(20, 60, 30, "[not_finite] 4", 50, 80)
    ]


@pytest.mark.parametrize("pooling", ["auto", "cls", "mean", "pooler"])
def test_image_encoder(tmp_path, pooling):
    encoder = ImageEncoder(
        Parameters(model_id=str(checkpoints.image_encoder(tmp_path / "vit")), pooling=pooling)
    )
    encoder.warm_up(picture())
    one, broken, same, other = encoder.encode([picture(1), b"x", picture(1), picture(2)])
    assert one == pytest.approx(same, abs=1e-5) and one != other and len(one) == 32
    assert isinstance(broken, Refused)


def test_text_encoder():
    encoder = TextEncoder(Parameters(model_id=str(checkpoints.text_encoder())))
    vectors = encoder.encode(["a red circle", "a circle that is red", "stock prices fell"])
    one, near, far = (torch.tensor(vector) for vector in vectors)
    assert torch.cosine_similarity(one, near, 0) > torch.cosine_similarity(one, far, 0) + 0.3


def test_generator(tmp_path):
    folder = checkpoints.generator(tmp_path / "generator")
    generator = Generator(Parameters(model_id=str(folder), steps=3))
    generator.warm_up(b"")
    order = GenerationRequest(prompt="a red circle", seed=5)
    one, same, other, empty = generator.draw(
        [order, order, GenerationRequest(prompt="a red circle", seed=6), GenerationRequest(prompt=" ")]
    )
    # Up to rounding: a batch adds up in another order than one alone.
    assert np.abs(pixels(one) - pixels(generator.draw([order])[0])).max() <= 2
    assert one == same and np.abs(pixels(one) - pixels(other)).max() > 20
    assert Image.open(io.BytesIO(one)).format == "PNG"
    assert isinstance(empty, Refused)
    with torch.no_grad():
        next(generator._pipeline.unet.parameters()).mul_(float("nan"))
    [broken] = generator.draw([order])
    assert isinstance(broken, Refused) and broken.reason == "not_finite"


def test_a_broken_generator_is_refused(tmp_path):
    folder = checkpoints.generator(tmp_path / "generator")
    checkpoints.spoil(folder / "unet", file="diffusion_pytorch_model.safetensors", nan=True)
    with pytest.raises(CheckpointError, match="no number"):
        Generator(Parameters(model_id=str(folder)))
