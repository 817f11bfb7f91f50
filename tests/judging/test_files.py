from __future__ import annotations

import hashlib
import io
from pathlib import Path

import pytest
from PIL import Image

from groundwatch.errors import FileFormatError, InputError, UsageError
from groundwatch.events import Label
from groundwatch.judging.files import ImageFolder, Responses, no_images
from groundwatch.runtime.settings.gateway import IntakeSettings
from groundwatch_benchmarks.methods.faithscore.suite import AnnotatedAnswer, annotated_response, is_annotation

RECORD = b'{"id": "1", "model": "m", "answer": "a"}\n'


def picture() -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (3, 2)).save(stream, "PNG")
    return stream.getvalue()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b'{"id": "1", "answer": "a", "stage 1": {}, "stage 2": {}}\n', True),
        (b'\n\n{"stage 2": {}}\n', True),
        (RECORD, False),
        (b"", False),
        (b"[1]\n", False),
        (b"not json\n", False),
        (b"\xff\xfe\n", False),
    ],
)
def test_annotations_are_known_by_their_first_line(tmp_path: Path, content: bytes, expected: bool):
    path = tmp_path / "file.jsonl"
    path.write_bytes(content)
    assert is_annotation(path) is expected


def test_a_file_is_checked_whole_before_anything_is_judged(tmp_path: Path):
    path = tmp_path / "file.jsonl"
    path.write_bytes(RECORD * 3)
    responses = Responses(path)
    assert len(responses) == 3
    assert [response.id for response in responses] == ["1"] * 3
    assert len(list(responses)) == 3
    path.write_bytes(RECORD * 3 + b'{"model": "m", "answer": "a"}\n')
    with pytest.raises(FileFormatError, match=r"file\.jsonl:4: key 'id'"):
        Responses(path)


def test_an_empty_file_has_no_responses(tmp_path: Path):
    path = tmp_path / "file.jsonl"
    path.touch()
    assert list(Responses(path)) == []


def test_peoples_facts_become_the_reference():
    annotated = AnnotatedAnswer(
        image="7",
        answer="A cat.",
        labels={"A cat": Label.DESCRIPTIVE},
        facts={"There is a cat.": True, "There is a dog.": False},
    )
    response = annotated_response(3, annotated)
    assert response.id == "7-3"
    assert response.reference is not None
    assert [fact.holds for fact in response.reference.facts] == [True, False]
    assert not response.reference.complete


async def test_images_are_found_by_digest_and_by_name(tmp_path: Path):
    data = picture()
    (tmp_path / "a.png").write_bytes(data)
    folder = ImageFolder(tmp_path, IntakeSettings())
    assert await folder.load("a.png") == (data, "image/png")
    assert await folder.load(hashlib.sha256(data).hexdigest()) == (data, "image/png")


@pytest.mark.parametrize("name", ["b.png", "../secret.png", "/etc/passwd", "link.png", "", ".", ".."])
async def test_what_is_judged_does_not_choose_files(tmp_path: Path, name: str):
    (tmp_path / "secret.png").write_bytes(picture())
    inside = tmp_path / "images"
    inside.mkdir()
    (inside / "link.png").symlink_to(tmp_path / "secret.png")
    with pytest.raises(FileNotFoundError):
        await ImageFolder(inside, IntakeSettings()).load(name)


async def test_what_is_no_image_is_refused(tmp_path: Path):
    (tmp_path / "a.png").write_bytes(b"GIF89a")
    with pytest.raises(InputError):
        await ImageFolder(tmp_path, IntakeSettings()).load("a.png")


async def test_without_a_folder_there_is_no_image(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="no folder of images"):
        await no_images("a.png")
    with pytest.raises(UsageError, match="is not a folder"):
        ImageFolder(tmp_path / "nowhere", IntakeSettings())
