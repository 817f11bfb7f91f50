"""Cases that were made after public reports: what the readers make of each, by the expression of the case.

They lie beside the project, under `shared/data/cases`; where they do not, there is nothing to test. Of an
outcome this knows what the doors decide: that a call is taken, with which images, or declined and why.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.conversations.test_recorded import from_litellm, from_otlp

from groundwatch.conversations.conversation import Conversation, ImageText, ImageUrl
from groundwatch.errors import ImageError
from groundwatch.gateway.intake.submissions import Encoded, read_attachment
from groundwatch.gateway.refusals import Refused
from groundwatch.image_files import from_base64
from groundwatch.runtime.stores.image_worker import decode

CASES = next(
    (path for one in Path(__file__).parents if (path := one / "shared" / "data" / "cases").is_dir()), None
)
BOUNDS = {"max_bytes": 20_000_000, "max_pixels": 40_000_000}
JUDGED = {"01-think-tags", "34-languages", "35-shapes-of-answers", "63-short-vqa", "52-image-key-ignored"}
"""What they ask is not the doors' to decide."""

CHANGED = {"14-two-turns-two-images": "all(r['judge_saw'] == 1 for r in R)"}
"""The case wants all images shown, or the one that the answer is about; its expression has the former."""


def posted(path: str) -> list[Path]:
    found = []
    for folder in sorted(CASES.iterdir()) if CASES else ():
        if folder.is_dir() and folder.name not in JUDGED:
            steps = json.loads((folder / "case.json").read_text())["steps"]
            if steps[0]["do"] == "post" and steps[0]["path"] == path and "headers" not in steps[0]:
                found.append(folder)
    return found


def evaluated(folder: Path, **known: Any) -> bool:
    wanted = CHANGED.get(folder.name) or json.loads((folder / "case.json").read_text())["ok"]
    return bool(eval(wanted, {"re": re, **known}))


def given(folder: Path) -> str:
    return (folder / json.loads((folder / "case.json").read_text())["steps"][0]["file"]).read_text()


def outcome(call: Any) -> dict[str, Any]:
    assert isinstance(call, Conversation), call
    images, left_out = 0, list(call.left_out)
    for image in call.images[call.earlier_images :]:
        try:
            assert isinstance(image, ImageText | ImageUrl | bytes)
            if isinstance(image, ImageUrl):
                raise ImageError(image.url, "image_format")
            decode(from_base64(image.base64) if isinstance(image, ImageText) else image, **BOUNDS)
            images += 1
        except ImageError as error:
            left_out.append(error.reason)
    state = "declined" if left_out else "scored"
    return {"outcome": state, "reason": next(iter(left_out), ""), "judge_saw": images, "answer": call.answer}


@pytest.mark.skipif(CASES is None, reason="shared/data/cases is not beside this checkout")
@pytest.mark.parametrize("folder", posted("/v1/traces") + posted("/v1/litellm"), ids=lambda one: one.name)
def test_a_logged_case_is_read(folder: Path) -> None:
    text = given(folder)
    calls = from_otlp([json.loads(text)]) if "resourceSpans" in text else from_litellm([text])
    told = [outcome(call) for call in calls]
    images = sum(one["judge_saw"] for one in told)
    assert evaluated(folder, R=told, I=images, C=" ".join(one["answer"] for one in told)), told


@pytest.mark.skipif(CASES is None, reason="shared/data/cases is not beside this checkout")
@pytest.mark.parametrize("folder", posted("/v1/responses"), ids=lambda one: one.name)
def test_an_image_of_a_case_is_taken_or_named(folder: Path) -> None:
    errors, images = [], 0
    for line in given(folder).splitlines():
        for image in json.loads(line)["images"]:
            try:
                image = read_attachment(image if isinstance(image, str) else Encoded(**image), 0)  # type: ignore[arg-type]
                assert isinstance(image, Encoded)
                decode(from_base64(image.base64), **BOUNDS)
                images += 1
            except (Refused, ImageError) as error:
                errors.append(str(error))
    body = json.dumps({"error": "; ".join(errors), "refused": len(errors)}, separators=(",", ":"))
    reply = {"status": 422 if errors else 202, "body": body}
    assert evaluated(folder, S=[reply], R=[{"judge_saw": images}], I=images), errors
