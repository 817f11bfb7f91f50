"""Chains with stand-in engines: pictures to start from, and what must become of them."""

from __future__ import annotations

import io
import math
import random
from typing import Any

from PIL import Image
from tests.support.fakes import GRID, PALETTE, describe, embed, paint

from groundwatch.events import ResponseRecorded
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.settings.gateway import IntakeSettings
from groundwatch.runtime.stores.images import ImageStore, check_image

COLOURS = [name for name in PALETTE if name != "grey"]


def seed_picture(number: int) -> bytes:
    """A PNG of cells in colours that are near to, and not the same as, the painter's."""
    dice = random.Random(number)
    small = Image.new("RGB", (GRID, GRID))
    small.putdata(
        [
            tuple(
                min(255, max(0, channel + dice.randint(-12, 12))) for channel in PALETTE[dice.choice(COLOURS)]
            )
            for _ in range(GRID * GRID)
        ]
    )
    out = io.BytesIO()
    small.resize((48, 48), Image.Resampling.NEAREST).save(out, "PNG")
    return out.getvalue()


def similarities(seed: bytes, length: int) -> list[float]:
    """s(1) to s(T), with no service and no event in between."""
    found, image = [], seed
    for _ in range(length):
        image = paint(describe(image))
        one, other = embed(seed), embed(image)
        product = sum(a * b for a, b in zip(one, other, strict=True))
        found.append(product / math.sqrt(sum(a * a for a in one) * sum(b * b for b in other)))
    return found


def weighted(found: list[float]) -> float:
    """Equation 3, written out."""
    return sum(t * s for t, s in enumerate(found, start=1)) / (len(found) * (len(found) + 1) / 2)


async def store(bus: Bus, data: bytes) -> str:
    """Store a picture as the gateway does; its digest."""
    image = check_image(data, IntakeSettings())
    await ImageStore(bus.js).put(image)
    return image.sha256


def chain_response(name: str, image: str, **changes: Any) -> ResponseRecorded:
    """A response that asks for a chain."""
    return ResponseRecorded(
        **{
            "id": name,
            "model": "heron-7b",
            "answer": "",
            "images": (image,) if image else (),
            "protocols": ("genception",),
            "tags": {"t": "3", "category": "count"},
            "recorded_at": 1.0,
        }
        | changes
    )
