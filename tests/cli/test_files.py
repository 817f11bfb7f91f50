"""submit and score with tables, folders of images and exports; the gateway is a real one."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import shutil
from pathlib import Path

import httpx
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from typer.testing import CliRunner

from groundwatch.cli import app


def png(color: str) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (32, 24), color).save(out, "PNG")
    return out.getvalue()


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def recorded(up, name: str) -> dict:
    return httpx.get(f"{up.gateway}/v1/responses/{name}").json()["response"]


@pytest.fixture
def folder(tmp_path):
    """A folder of images, and beside it a table and Parquet about them."""
    (tmp_path / "pics").mkdir()
    for color in ("red", "blue"):
        (tmp_path / "pics" / f"{color}.png").write_bytes(png(color))
    return tmp_path


def test_parquet_with_its_images_inside(up, folder, answer):
    rows = [answer(f"p-{color}", image={"bytes": png(color), "path": None}) for color in ("red", "blue")]
    rows.append(answer("p-3", image=None) | {"answer": None})
    rows.append(answer("p-4", image={"bytes": b"no image", "path": None}))
    path = folder / "answers.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path)
    told = up.json("submit", path, status=1)
    assert (told["accepted"], told["refused"]) == (2, 2)
    wrong = {one["line"]: (one["id"], one["field"]) for one in told["errors"]}
    assert wrong == {3: ("p-3", "answer"), 4: ("p-4", "images[0]")}
    assert recorded(up, "p-red")["images"] == [digest(png("red"))]
    assert recorded(up, "p-blue")["reference"]["objects"] == ["dog", "ball"]
    assert httpx.get(f"{up.gateway}/v1/images/{digest(png('blue'))}").content == png("blue")
    assert up.json("submit", path, status=1)["duplicates"] == 2


def test_a_table_beside_a_folder_of_images(up, folder, answer):
    with (folder / "answers.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["id", "answer", "image_file"])
        writer.writerows(
            [["c-1", "A dog.", "red.png"], ["c-2", "A dog.", "gone.png"], ["c-3", "A dog.", "../../x"]]
        )
    path = folder / "answers.csv"
    told = up.json("submit", path, "--model", "m", "--images", folder / "pics", status=1)
    assert (told["accepted"], told["refused"]) == (1, 2)
    errors = {one["line"]: one["error"] for one in told["errors"]}
    assert "gone.png cannot be read" in errors[3] and "leads out of" in errors[4]
    assert recorded(up, "c-1")["images"] == [digest(png("red"))]


def test_a_folder_as_hugging_face_has_it(up, folder, answer):
    lines = [answer(f"h-{color}", file_name=f"{color}.png") for color in ("red", "blue")]
    (folder / "pics" / "metadata.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert up.json("submit", folder / "pics")["accepted"] == 2
    assert recorded(up, "h-blue")["images"] == [digest(png("blue"))]
    assert "is a folder without" in up.complaint("submit", folder)


def observation(name: str, url: str) -> dict:
    content = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": url}}]
    return {
        "id": name,
        "traceId": "0af7651916cd43dd8448eb211c80319c",
        "type": "GENERATION",
        "startTime": "2026-03-01T14:00:00.000Z",
        "endTime": "2026-03-01T14:00:02.500Z",
        "model": "heron-7b",
        "input": [{"role": "user", "content": content}],
        "output": {"role": "assistant", "content": "A dog."},
    }


def test_an_export_tells_what_it_does_not_have(up, tmp_path):
    inline = "data:image/png;base64," + base64.b64encode(png("green")).decode()
    media = "@@@langfuseMedia:type=image/png|id=abc|source=base64_data_uri@@@"
    found = [observation("00000000000000a1", inline), observation("00000000000000a2", media)]
    path = tmp_path / "observations.json"
    path.write_text(
        json.dumps({"data": [*found, observation("s", "") | {"type": "SPAN"}], "meta": {}}, indent=1)
    )
    done = up("submit", path)
    assert done.returncode == 1
    assert done.stdout == "accepted 1, already there 0, refused 1\n"
    images, others, refused, last = done.stderr.splitlines()
    assert f"{path}: 1 images are missing: " in images and "LANGFUSE_MEDIA_UPLOAD_ENABLED=false" in images
    assert others == f"{path}: 1 records are left out: no calls of a model"
    assert f"{path}:2 (id " in refused and "images: is missing" in refused
    assert last == "groundwatch: 1 responses were refused"
    name = "0af7651916cd43dd8448eb211c80319c:00000000000000a1"
    assert recorded(up, name)["images"] == [digest(png("green"))]
    taken = up("submit", path, GROUNDWATCH_GATEWAY__LOGGED_CALLS__WITHOUT_IMAGE="record")
    assert taken.returncode == 0
    assert taken.stdout == "accepted 1, already there 1, refused 0\n"


CASES = next(
    (path for one in Path(__file__).parents if (path := one / "shared" / "data" / "cases").is_dir()), None
)


def with_a_command() -> list[Path]:
    if CASES is None:
        return []
    found = {folder: json.loads((folder / "case.json").read_text()) for folder in sorted(CASES.glob("*-*"))}
    return [folder for folder, case in found.items() if case["steps"][0].get("args", [""])[0] == "submit"]


@pytest.mark.skipif(CASES is None, reason="shared/data/cases is not beside this checkout")
@pytest.mark.parametrize("folder", with_a_command(), ids=lambda one: one.name)
def test_a_public_file_is_read_or_told(up, folder, tmp_path):
    """Files that were made after public reports, with the expression of each case."""
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    case, said, read = json.loads((folder / "case.json").read_text()), [], []
    for step in case["steps"]:
        if step["do"] == "cli":
            command, file, *rest = step["args"]
            options = rest[2:] if rest[:1] == ["--to"] else rest
            done = up(command, tmp_path / file, *options, "--tenant", folder.name)
            said.append({"rc": done.returncode, "out": done.stdout + done.stderr})
        elif step["do"] == "ids":
            for name in step["ids"]:
                query = {"tenant": folder.name}
                response = httpx.get(f"{up.gateway}/v1/responses/{name}", params=query).json().get("response")
                if response:
                    images, prompt = response.get("images", ()), response.get("prompt", "")
                    read.append({"images": len(images), "prompt": prompt})
    assert eval(case["ok"], {"S": said, "R": read}), (said, read)
    assert {path: path.read_bytes() for path in before} == before


def score(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["score", *map(str, arguments), "--json"])
    return done.exit_code, done.stdout if done.exit_code == 0 else str(done.exception)


def test_score_reads_the_same_files(folder, answer, tmp_path):
    rows = [answer("1", image=png("red")), answer("2", answer="A dog sits beside a red ball.", image=None)]
    for row in rows:
        del row["model"]
    path = folder / "answers.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path)
    status, told = score("faithscore", path, "--model", "owl-3b")
    assert status == 0
    (model,) = msgspec.json.decode(told)["models"]
    assert (model["model"], model["responses"]) == ("owl-3b", 2)
    named = folder / "named.csv"
    named.write_text("uid,said\n1,A dog sits.\n")
    options = ("--column", "uid=id", "--column", "said=answer", "--model", "wren")
    status, told = score("faithscore", named, *options)
    assert status == 0 and msgspec.json.decode(told)["models"][0]["model"] == "wren"
    status, told = score("faithscore", path)
    assert status != 0 and f"{path}:1: key 'model': is missing" in told
    (folder / "pics" / "metadata.csv").write_text("id,model,answer,file_name\n1,m,A dog.,red.png\n")
    assert score("faithscore", folder / "pics")[0] == 0
