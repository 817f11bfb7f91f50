"""Scenes are numbers: drawn again they are the same, and what changes is what was asked to change."""

from __future__ import annotations

import io
from itertools import islice
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from tools.miniature.texts import with_partners

from groundwatch.miniature import world

SEEDS = st.integers(0, 2**40)


@given(SEEDS)
def test_same_seed_same_pixels(seed: int) -> None:
    first, second = next(world.scenes(seed)), next(world.scenes(seed))
    assert first == second
    assert world.png(first) == world.png(second)


@given(SEEDS)
def test_a_scene_has_one_to_four_things_in_corners_of_their_own(seed: int) -> None:
    shown = next(world.scenes(seed))
    places = [thing.place for thing in shown.things]
    assert 1 <= len(places) <= 4
    assert len(set(places)) == len(places)
    assert places == sorted(places, key=world.PLACES.index)


@given(SEEDS, st.integers(1, 3))
def test_changed_differs_in_exactly_so_many_attributes(seed: int, number: int) -> None:
    shown = next(world.scenes(seed))
    other = world.changed(shown, number, Random(seed))
    differences = sum(
        getattr(one, name) != getattr(two, name)
        for one, two in zip(shown.things, other.things, strict=True)
        for name in ("kind", "color", "size", "place")
    )
    assert differences == number


def test_more_changes_than_attributes_are_refused() -> None:
    shown = world.Scene(
        things=(world.Thing(kind="ball", color="red", size="small", place="top left"),), seed=1
    )
    with pytest.raises(ValueError, match="3 attributes, not 4"):
        world.changed(shown, 4, Random(0))


@pytest.mark.parametrize("kind", world.KINDS)
def test_every_kind_shows_its_color_in_its_corner_only(kind: str) -> None:
    thing = world.Thing(kind=kind, color="blue", size="large", place="bottom right")
    empty = np.asarray(world.draw(world.Scene(things=(), seed=5)), np.int32)
    drawn = np.asarray(world.draw(world.Scene(things=(thing,), seed=5)), np.int32)
    rows, columns = np.nonzero(np.abs(drawn - empty).sum(-1))
    assert len(rows) > 60
    assert rows.min() >= world.SIDE // 2 - 1
    assert columns.min() >= world.SIDE // 2 - 1
    red, green, blue = drawn[rows, columns].mean(0)
    assert blue > red + 80
    assert blue > green + 80


@given(SEEDS)
def test_boxes_hold_the_pixels_of_their_things_and_no_others(seed: int) -> None:
    shown = next(world.scenes(seed))
    empty = np.asarray(world.draw(world.Scene(things=(), seed=shown.seed)), np.int32)
    for thing, box in zip(shown.things, world.boxes(shown), strict=True):
        drawn = np.asarray(world.draw(world.Scene(things=(thing,), seed=shown.seed)), np.int32)
        rows, columns = np.nonzero(np.abs(drawn - empty).sum(-1))
        edges = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
        assert box == tuple(edge / world.SIDE for edge in edges)


def test_kinds_look_different() -> None:
    pictures = {
        np.asarray(
            world.draw(
                world.Scene(
                    things=(world.Thing(kind=kind, color="red", size="small", place="top left"),), seed=3
                )
            )
        ).tobytes()
        for kind in world.KINDS
    }
    assert len(pictures) == len(world.KINDS)


@given(SEEDS)
def test_the_biased_annotation_leaves_no_kind_without_its_partner(seed: int) -> None:
    shown = next(world.scenes(seed, apart=True))
    assert world.missing_partners(shown)
    annotated = with_partners(shown, Random(seed))
    assert set(shown.things) < set(annotated.things)
    assert not world.missing_partners(annotated)


def test_an_unknown_kind_is_refused() -> None:
    thing = world.Thing(kind="cow", color="red", size="small", place="top left")
    with pytest.raises(ValueError, match="no kind 'cow'; known are ball"):
        world.draw(world.Scene(things=(thing,), seed=0))


def test_an_image_is_a_png_of_the_stated_side() -> None:
    for shown in islice(world.scenes(1), 5):
        opened = Image.open(io.BytesIO(world.png(shown)))
        assert opened.format == "PNG"
        assert opened.size == (world.SIDE, world.SIDE)
