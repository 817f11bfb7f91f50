"""Boxes are the image's own, phrases keep their places, and what cannot be searched is refused alone."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from tests.support import checkpoints
from tests.support.checkpoints import picture

from groundwatch.models.serving.detector import DetectionRequest, Detector, corners, distinct, overlaps
from groundwatch.models.serving.failures import CheckpointError, Refused
from groundwatch.models.serving.parameters import Parameters

FAMILIES = ("owlv2", "owlvit", "grounding_dino")
PHRASES = ("red circle", "a small square", "two", "image")


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("detectors")
    return {
        "owlv2": checkpoints.owl(folder / "owlv2"),
        "owlvit": checkpoints.owl(folder / "owlvit", version="owlvit"),
        "grounding_dino": checkpoints.grounding_dino(folder / "grounding_dino"),
    }


@pytest.fixture(scope="session")
def everything(folders: dict[str, Path]) -> dict[str, Detector]:
    """Detectors that tell every box."""
    return {name: detector(folder) for name, folder in folders.items()}


def detector(folder: Path, **changes: Any) -> Detector:
    parameters = {"threshold": 0.0, "max_overlap": 1.0, "max_boxes": 1000, **changes}
    return Detector(Parameters(model_id=str(folder), **parameters))


def detected(which: Detector, image: bytes, *texts: str) -> list[Any]:
    [found] = which.detect([DetectionRequest(image=image, texts=texts)])
    assert isinstance(found, tuple), found
    return list(found)


def same(found: list[Any], wanted: list[Any]) -> bool:
    """Up to rounding: a batch adds up in another order than one alone."""
    assert [one.text for one in found] == [one.text for one in wanted]
    return all(
        one.score == pytest.approx(other.score, abs=1e-5) and one.box == pytest.approx(other.box, abs=1e-5)
        for one, other in zip(found, wanted, strict=True)
    )


def saved(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


@pytest.mark.parametrize("family", FAMILIES)
def test_it_says_what_transformers_says(folders, everything, family):
    from transformers import AutoModelForZeroShotObjectDetection, AutoProcessor

    processor = AutoProcessor.from_pretrained(folders[family])
    model = AutoModelForZeroShotObjectDetection.from_pretrained(folders[family]).eval()
    data = picture(1, size=(60, 40))
    image = Image.open(io.BytesIO(data))
    given = processor(images=image, text=[["small"]], return_tensors="pt")
    with torch.inference_mode():
        outputs = model(**given)
    [wanted] = processor.post_process_grounded_object_detection(outputs, threshold=0.0, target_sizes=[(1, 1)])
    scores, boxes = wanted["scores"], wanted["boxes"]
    if family == "grounding_dino":
        # Its score is that of whatever word the box fits best, end marks included; ours is the phrase's.
        assert given["input_ids"].shape == (1, 4)
        scores = outputs.logits[0, :, 1].sigmoid()
    if family == "owlv2":
        boxes = boxes * torch.tensor([1.0, 1.5, 1.0, 1.5])
    boxes = boxes.clamp(0, 1)
    seen = (boxes[:, 2:] > boxes[:, :2]).all(-1)
    pairs = zip(boxes[seen].tolist(), scores[seen].tolist(), strict=True)
    found = detected(everything[family], data, "Small.")
    assert len(found) == int(seen.sum()) > 5
    for one, (box, score) in zip(found, sorted(pairs, key=lambda pair: -pair[1]), strict=True):
        assert one.box == pytest.approx(box, abs=1e-5)
        assert one.score == pytest.approx(score, abs=1e-5)


@pytest.mark.parametrize("family", ["owlv2", "owlvit"])
@pytest.mark.parametrize(("size", "seen"), [((64, 32), 32), ((16, 48), 24), ((64, 64), 64)])
def test_boxes_are_of_the_image_and_not_of_the_square_around_it(folders, family, size, seen):
    grid = detector(folders[family])
    with torch.no_grad():
        # Without its last layer every place of the grid says where it stands itself.
        grid._model.box_head.dense2.weight.zero_()
        grid._model.box_head.dense2.bias.zero_()
    found = detected(grid, picture(1, size=size), "two")
    frame = [max(size) / side if family == "owlv2" else 1.0 for side in size]
    wanted = []
    for place in range(64):
        ends = [(place % 8 + 1) / 8, (place // 8 + 1) / 8]
        box = [
            min(1.0, (end + half) * scale)
            for half in (-1 / 16, 1 / 16)
            for end, scale in zip(ends, frame, strict=True)
        ]
        if box[0] < box[2] and box[1] < box[3]:
            wanted.append(box)
    assert len(found) == len(wanted) == (seen if family == "owlv2" else 64)
    for box, other in zip(sorted(one.box for one in found), sorted(map(tuple, wanted)), strict=True):
        assert box == pytest.approx(other, abs=2e-3)


@pytest.mark.parametrize("family", ["owlv2", "owlvit"])
def test_a_phrase_gets_what_it_gets_alone(everything, family):
    found = detected(everything[family], picture(1), *PHRASES)
    for at, phrase in enumerate(PHRASES):
        alone = detected(everything[family], picture(1), phrase)
        mine = [msgspec.structs.replace(one, text=0) for one in found if one.text == at]
        assert same(mine, alone) and len(mine) > 5
    assert len({one.score for one in found}) > 20, (
        "a checkpoint that says the same of all would prove nothing"
    )


def test_grounding_dinos_phrases_are_told_by_their_places(folders, everything):
    """Of phrases that share words, more than one text holds: what each text's own tokens get."""
    which = everything["grounding_dino"]
    phrases = [*PHRASES, "small red circle", "small square", "a", "circle left of the red square"]
    told = detected(which, picture(2), *phrases)
    model, tokenizer = which._model, which._tokenizer
    pixels = which._images(images=Image.open(io.BytesIO(picture(2))), return_tensors="pt")
    seen = 0
    for part in (phrases[:7], phrases[7:]):
        asked = tokenizer(". ".join(part) + ".", return_tensors="pt", return_offsets_mapping=True)
        offsets = asked.pop("offset_mapping")[0].tolist()
        with torch.inference_mode():
            logits = model(**pixels, **asked).logits[0].sigmoid()
        begin = 0
        for phrase in part:
            places = [at for at, (a, b) in enumerate(offsets) if begin <= a < b <= begin + len(phrase)]
            assert len(places) == len(phrase.split())
            scores = sorted(logits[:, places].mean(-1).tolist(), reverse=True)
            assert [one.score for one in told if one.text == seen] == pytest.approx(scores, abs=1e-5)
            begin += len(phrase) + 2
            seen += 1
    assert seen == len(phrases)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_batch_finds_as_each_alone(everything, family):
    which = everything[family]
    requests = [
        DetectionRequest(image=picture(1), texts=PHRASES),
        DetectionRequest(image=picture(2, size=(30, 60)), texts=("two", "a")),
        DetectionRequest(image=b"<html>", texts=PHRASES),
        DetectionRequest(image=picture(3), texts=("circle", "a small red square and above", "a", "left")),
    ]
    for found, request in zip(which.detect(requests), requests, strict=True):
        [alone] = which.detect([request])
        if isinstance(alone, Refused):
            assert isinstance(found, Refused) and found.reason == alone.reason == "unreadable_image"
        else:
            assert same(list(found), list(alone))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_images_with_different_numbers_of_phrases_share_a_pass(folders, everything, monkeypatch, dtype):
    which = detector(folders["owlv2"], dtype=dtype)
    passes, forward = [], which._model.forward
    monkeypatch.setattr(
        which._model, "forward", lambda **named: passes.append(len(named["input_ids"])) or forward(**named)
    )
    texts = (PHRASES, ("two",), ("a", "left"))
    requests = [DetectionRequest(image=picture(at), texts=one) for at, one in enumerate(texts)]
    for found, request in zip(which.detect(requests), requests, strict=True):
        wanted = detected(everything["owlv2"], request.image, *request.texts)
        if dtype == "float32":
            assert same(list(found), wanted)
            continue
        assert len(found) == len(wanted)
        for at in range(len(request.texts)):
            best, other = (next(one for one in rows if one.text == at) for rows in (found, wanted))
            assert best.score == pytest.approx(other.score, abs=0.05)
    assert passes == [3 * len(PHRASES)]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        ((), "judge_rejected_request"),
        (("two", " "), "judge_rejected_request"),
        (("...",), "judge_rejected_request"),
        (("</s> <s>", "[SEP] . [CLS]"), "judge_rejected_request"),
        (("two",) * 65, "judge_rejected_request"),
        (("two " * 30,), "prompt_too_long"),
        (("a" * 100_000,), "prompt_too_long"),
    ],
)
def test_what_cannot_be_asked_is_refused(everything, family, texts, reason):
    [found] = everything[family].detect([DetectionRequest(image=picture(), texts=texts)])
    assert isinstance(found, Refused) and found.reason == reason


@pytest.mark.parametrize("family", FAMILIES)
def test_a_word_outside_the_vocabulary_is_refused_and_not_unseen(everything, family):
    """ "Not seen: book", of a model that never heard of books, would be a verdict of nobody."""
    [found] = everything[family].detect([DetectionRequest(image=picture(), texts=("two", "book"))])
    assert isinstance(found, Refused) and "phrase 1" in str(found) and "does not know" in str(found)


@pytest.mark.parametrize("family", FAMILIES)
def test_images_of_every_kind_are_read_upright(everything, family):
    drawn = Image.open(io.BytesIO(picture(4, size=(40, 24))))
    kinds = {
        "grey": drawn.convert("L"),
        "grey with alpha": drawn.convert("LA"),
        "alpha": drawn.convert("RGBA"),
        "palette": drawn.convert("P", palette=Image.Palette.ADAPTIVE),
        "black and white": drawn.convert("1"),
    }
    data = {name: saved(image) for name, image in kinds.items()}
    data["CMYK"] = saved(drawn.convert("CMYK"), "JPEG", quality=95)
    for name, one in data.items():
        plain = Image.open(io.BytesIO(one)).convert("RGB")
        assert same(
            detected(everything[family], one, "two"), detected(everything[family], saved(plain), "two")
        ), name
    exif = drawn.getexif()
    exif[0x0112] = 6
    turned = saved(drawn.transpose(Image.Transpose.ROTATE_90), exif=exif)
    assert same(
        detected(everything[family], turned, "two"), detected(everything[family], saved(drawn), "two")
    )


@pytest.mark.slow
def test_a_photograph_of_forty_megapixels_is_searched_and_a_larger_one_refused(everything):
    which = everything["owlv2"]
    drawn = Image.open(io.BytesIO(picture(5))).resize((8000, 5000), Image.Resampling.NEAREST)
    photograph = saved(drawn, "JPEG")
    small = Image.open(io.BytesIO(photograph)).convert("RGB")
    small.thumbnail((128, 128), Image.Resampling.BOX)
    assert same(detected(which, photograph, "two"), detected(which, saved(small), "two"))
    larger = saved(Image.new("L", (8001, 5000)), "JPEG")
    [refused] = which.detect([DetectionRequest(image=larger, texts=("two",))])
    assert isinstance(refused, Refused) and refused.reason == "unreadable_image"


def test_a_strip_is_refused_by_what_cannot_search_it(everything):
    strip = DetectionRequest(image=picture(size=(2000, 2)), texts=("two",))
    found = {family: everything[family].detect([strip])[0] for family in FAMILIES}
    assert isinstance(found["grounding_dino"], Refused)
    assert all(isinstance(found[family], tuple) for family in ("owlv2", "owlvit"))


@pytest.mark.parametrize("family", FAMILIES)
def test_only_what_is_sure_enough_is_told_and_each_thing_once(folders, everything, family):
    least = sorted(one.score for one in detected(everything[family], picture(1), "two"))[4]
    chosen = detector(folders[family], threshold=least, max_boxes=5, max_overlap=0.3)
    found = detected(chosen, picture(1), "two", "circle")
    assert found and all(one.score >= least for one in found)
    for at in (0, 1):
        boxes = torch.tensor([one.box for one in found if one.text == at]).reshape(-1, 4)
        assert len(boxes) <= 5
        assert distinct(boxes, 0.3) == list(range(len(boxes)))
    assert detected(detector(folders[family], threshold=1.1), picture(1), *PHRASES) == []


@pytest.mark.parametrize("part", ["box", "class"])
def test_numbers_that_are_none_are_no_detection(folders, part):
    broken = detector(folders["owlv2"])
    with torch.no_grad():
        {"box": broken._model.box_head, "class": broken._model.class_head}[part].dense0.weight[0] = float(
            "nan"
        )
    [found] = broken.detect([DetectionRequest(image=picture(), texts=("two",))])
    assert isinstance(found, Refused) and found.reason == "not_finite"
    with pytest.raises(CheckpointError, match="cannot detect"):
        broken.warm_up(picture())


def test_grounding_dinos_numbers_that_are_none_are_no_detection(folders):
    broken = detector(folders["grounding_dino"])
    with torch.no_grad():
        broken._model.model.text_projection.weight[0] = float("nan")
    [found] = broken.detect([DetectionRequest(image=picture(), texts=("two",))])
    assert isinstance(found, Refused) and found.reason == "not_finite"


def test_what_is_no_detector_is_not_loaded(folder):
    with pytest.raises(CheckpointError, match="cannot load"):
        detector(folder)


EDGES = st.tuples(*[st.floats(-0.5, 1.5)] * 2, *[st.floats(0, 1)] * 2)


@given(st.lists(EDGES, min_size=1, max_size=8), st.floats(1, 4), st.floats(1, 4))
def test_boxes_lie_in_the_image(boxes, wide, high):
    found = corners(torch.tensor(boxes, dtype=torch.float64), (wide, high))
    for (x, y, width, height), box in zip(boxes, found.tolist(), strict=True):
        wanted = [
            (x - width / 2) * wide,
            (y - height / 2) * high,
            (x + width / 2) * wide,
            (y + height / 2) * high,
        ]
        assert box == pytest.approx([min(1.0, max(0.0, edge)) for edge in wanted], abs=1e-9)


@given(st.lists(EDGES, min_size=1, max_size=8), st.floats(0, 1))
def test_of_two_boxes_that_overlap_too_much_the_better_stays(boxes, most):
    placed = corners(torch.tensor(boxes, dtype=torch.float64))
    both = overlaps(placed, placed)
    kept = distinct(placed, most)
    assert kept == sorted(kept) and kept[0] == 0
    for at in range(len(boxes)):
        crowded = any(float(both[at, better]) > most for better in kept if better < at)
        assert (at in kept) != crowded


def test_overlap_is_intersection_over_union():
    boxes = torch.tensor([[0.0, 0.0, 0.5, 0.5], [0.25, 0.0, 0.75, 0.5], [0.6, 0.6, 0.6, 0.9]])
    found = overlaps(boxes, boxes)
    assert found[0].tolist() == pytest.approx([1.0, 1 / 3, 0.0])
    assert found[2, 2] == 0.0
