"""What the detector is taught is what the scene holds, and it is asked in training as it is when served."""

from __future__ import annotations

from itertools import islice
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="needs the extra models")
pytest.importorskip("transformers", reason="needs the extra models")

from tests.support.checkpoints import picture  # noqa: E402
from tools.miniature.loop import save  # noqa: E402

from groundwatch.miniature.world import SIDE, Scene, boxes, draw, scenes  # noqa: E402
from groundwatch.models.serving.detector import DetectionRequest, Detector, overlaps  # noqa: E402
from groundwatch.models.serving.failures import Refused  # noqa: E402
from groundwatch.models.serving.parameters import Parameters  # noqa: E402
from tools.miniature import detector  # noqa: E402

SEEDS = st.integers(0, 2**40)


@pytest.fixture(scope="module")
def fresh() -> tuple[Any, Any]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    processor = detector.processor()
    return detector.model(processor.tokenizer, width=32, layers=1).eval(), processor


def test_a_phrase_names_the_things_that_it_fits() -> None:
    [shown] = islice(scenes(5), 1)
    thing = shown.things[0]
    named = {
        phrase
        for phrase, fits in zip(detector.PHRASES, detector.fitting(thing).tolist(), strict=True)
        if fits
    }
    assert named == {
        (size, color, kind)
        for size in ("", thing.size)
        for color in ("", thing.color)
        for kind in (thing.kind, "object")
    }


@given(SEEDS)
def test_every_thing_has_a_place_that_is_it_and_its_box(seed: int) -> None:
    shown = next(scenes(seed))
    wanted = detector.target(shown.things, boxes(shown), whole=True)
    for thing, (x0, y0, x1, y1) in zip(shown.things, boxes(shown), strict=True):
        middle = ((x0 + x1) / 2, (y0 + y1) / 2)
        place = int(middle[1] * detector.GRID) * detector.GRID + int(middle[0] * detector.GRID)
        assert bool((wanted.named[place].bool() == detector.fitting(thing)).all())
        assert bool(wanted.counts[place].all()) and bool(wanted.about[place])
        assert wanted.boxes[place].tolist() == pytest.approx([*middle, x1 - x0, y1 - y0])
    assert len(shown.things) <= int(wanted.named.any(-1).sum()) <= 4 * len(shown.things)


@given(SEEDS)
def test_a_cut_out_shows_one_thing_whole_and_boxes_stay_with_their_pixels(seed: int) -> None:
    shown = next(scenes(seed))
    empty = draw(Scene(things=(), seed=shown.seed))
    part, places = detector.cut_out(shown, draw(shown), Random(seed))
    ground, _ = detector.cut_out(shown, empty, Random(seed))
    whole = [box for box in places if min(box) >= 0 and max(box) <= 1]
    assert whole and part.size == (SIDE, SIDE)
    pixels, plain = (torch.from_numpy(np.asarray(one, np.int32)) for one in (part, ground))
    changed = (pixels - plain).abs().sum(-1) > 60
    for x0, y0, x1, y1 in places:
        # Stretching smears an edge by a pixel of the scene.
        changed[
            max(0, int(y0 * SIDE) - 5) : int(y1 * SIDE) + 6, max(0, int(x0 * SIDE) - 5) : int(x1 * SIDE) + 6
        ] = False
    assert not bool(changed.any())
    wanted = detector.target(shown.things, places, whole=False)
    assert not bool(wanted.counts[:, detector.SIZED].any())


def test_it_is_asked_in_training_as_it_is_when_served(fresh: tuple[Any, Any]) -> None:
    made, processor = fresh
    texts = detector.asked(processor.tokenizer, Random(1))
    pixels, _ = next(detector.batches(3, 2))
    with torch.inference_mode():
        logits, found = detector.forward(made, pixels, texts)
        whole = made(
            input_ids=texts["input_ids"].repeat(2, 1),
            attention_mask=texts["attention_mask"].repeat(2, 1),
            pixel_values=pixels,
        )
    assert float((logits - whole.logits).abs().max()) < 1e-4
    assert float((found - whole.pred_boxes).abs().max()) < 1e-5


def test_a_temperature_divides_logits_and_nothing_else(fresh: tuple[Any, Any]) -> None:
    made, processor = fresh
    texts = detector.asked(processor.tokenizer, Random(1))
    pixels, _ = next(detector.batches(4, 2))
    with torch.inference_mode():
        before, places = detector.forward(made, pixels, texts)
        temperature = detector.cool(made, processor.tokenizer, detector.HELD_OUT, 50)
        after, same = detector.forward(made, pixels, texts)
    assert temperature != 1.0
    assert float((after * temperature - before).abs().max()) < 1e-3
    assert bool((places == same).all())


def test_a_saved_one_is_served_and_knows_no_strange_word(fresh: tuple[Any, Any], tmp_path: Any) -> None:
    made, processor = fresh
    save(made, processor, tmp_path)
    served = Detector(Parameters(model_id=str(tmp_path), threshold=0.0, max_overlap=1.0))
    known, strange = (
        DetectionRequest(image=picture(), texts=texts)
        for texts in (("a red ball", "a red box"), ("a red ball", "a red unicorn"))
    )
    [found], [refused] = served.detect([known]), served.detect([strange])
    assert isinstance(found, tuple) and {one.text for one in found} == {0, 1}
    assert isinstance(refused, Refused) and "phrase 1 has a word" in str(refused)


BOX = st.tuples(*[st.floats(0, 0.9)] * 2, *[st.floats(0.05, 1)] * 2)


@given(st.lists(st.tuples(BOX, BOX), min_size=1, max_size=5))
def test_generalised_iou_is_iou_less_what_the_hull_holds_of_neither(pairs: Any) -> None:
    one, other = (
        torch.tensor(
            [(x, y, x + w, y + h) for x, y, w, h in (pair[at] for pair in pairs)], dtype=torch.float64
        )
        for at in (0, 1)
    )
    found, plain = detector.generalised_iou(one, other), overlaps(one, other).diagonal()
    assert bool((found <= plain + 1e-9).all()) and bool((found >= -1 - 1e-9).all())
    assert detector.generalised_iou(one, one).tolist() == pytest.approx([1.0] * len(pairs))
    apart = detector.generalised_iou(torch.tensor([[0.0, 0, 1, 1]]), torch.tensor([[3.0, 0, 4, 1]]))
    assert apart.tolist() == pytest.approx([-0.5])
