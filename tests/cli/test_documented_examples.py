"""Every example of docs/ingestion.md, run as it stands there, in order; README's and the page's sample."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import time
from pathlib import Path

import httpx
import pytest
from PIL import Image
from tests.support.samples import SAMPLES

PAGE = Path(__file__).parents[2] / "docs" / "ingestion.md"
DOCUMENTED = "http://127.0.0.1:8787"
EXAMPLES = re.findall(r"```sh\n(curl .*?)\n# (\d+) ?(.*?)\n```", PAGE.read_text(), re.DOTALL)

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The files that the examples name."""
    folder = tmp_path_factory.mktemp("examples")
    good = {"model": "my-lvlm-7b", "answer": "A dog sits on a mat.", "reference": {"objects": ["dog", "mat"]}}
    lines = [
        json.dumps(good | {"id": "doc-1"}),
        json.dumps({"id": "doc-2"}),
        json.dumps(good | {"id": "doc-3"}),
    ]
    (folder / "answers.jsonl").write_text("\n".join(lines) + "\n")
    picture = io.BytesIO()
    Image.linear_gradient("L").resize((64, 48)).convert("RGB").save(picture, "PNG")
    (folder / "scene.png").write_bytes(picture.getvalue())
    return folder


def test_there_are_examples():
    assert len(EXAMPLES) == PAGE.read_text().count("\ncurl ")
    assert len(EXAMPLES) >= 10


def test_the_examples_in_order(up, folder):
    for command, status, reply in EXAMPLES:
        up.settled(0)
        check(up, folder, command, status, reply)


def check(up, folder, command, status, reply):
    assert DOCUMENTED in command
    typed = command.replace(DOCUMENTED, up.gateway).replace("curl ", r"curl -w '\n%{http_code}' ", 1)
    deadline = time.monotonic() + 60
    while True:
        done = subprocess.run(["bash", "-c", typed], capture_output=True, text=True, cwd=folder, timeout=60)
        body, _, code = done.stdout.rpartition("\n")
        # Of a stream curl reads for so many seconds, in which a busy machine may say nothing yet.
        if code != "000" or "--max-time" not in command or time.monotonic() > deadline:
            break
    assert code == status, (command, done)
    if reply.startswith("{"):
        told, expected = json.loads(body), json.loads(reply)
        assert told.keys() == expected.keys(), command
        for key, value in expected.items():
            if value not in ("", [], {}) and key != "sequence":
                assert told[key] == value, (command, key)
    else:
        assert reply.rstrip("0123456789") in body, command


@pytest.mark.parametrize("name", SAMPLES)
def test_the_samples_are_scored_by_their_reference(up, written, name):
    sample = SAMPLES[name] | {"id": f"sample-{name}"}
    before = up.settled(0)["recorded"]
    assert up.json("submit", written(sample), "--to", up.gateway)["accepted"] == 1
    up.settled(before + 1)
    told = httpx.get(f"{up.gateway}/v1/responses/sample-{name}").json()["outcomes"]["faithscore"]
    assert (told["outcome"], told["decided"], told["score"]) == ("scored", 4, 0.75)
    assert told["judges"]["verification"]["engine"] == "reference"
    assert [one["text"] for one in told["claims"] if one["decision"] == "refuted"] == ["The box is green."]
