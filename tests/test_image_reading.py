"""A name in a file leads to a regular file in a folder that the user named, and nowhere else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from groundwatch.errors import InputError
from groundwatch.image_files import ImageFolders, read_image_file


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with files of every kind, beside one that is not to be read."""
    inside, other = tmp_path / "inside", tmp_path / "inside-too"
    (inside / "below").mkdir(parents=True)
    other.mkdir()
    (inside / "a.png").write_bytes(b"a")
    (inside / "below" / "b.png").write_bytes(b"b")
    (other / "secret").write_bytes(b"secret")
    (inside / "here").symlink_to(inside / "below" / "b.png")
    (inside / "out").symlink_to(other / "secret")
    (inside / "folder-out").symlink_to(other)
    (inside / "large").write_bytes(bytes(101))
    (inside / "sparse").touch()
    os.truncate(inside / "sparse", 1 << 40)
    os.mkfifo(inside / "pipe")
    return inside


@pytest.mark.parametrize(
    ("name", "data"), [("a.png", b"a"), ("below/b.png", b"b"), ("below/../a.png", b"a"), ("here", b"b")]
)
def test_files_of_the_folder_are_read(place: Path, name: str, data: bytes) -> None:
    assert ImageFolders([place], max_bytes=100).read(name) == data
    assert ImageFolders([place], max_bytes=100).read(str(place / name)) == data


@pytest.mark.parametrize(
    "name",
    [
        "/etc/passwd",
        "/dev/zero",
        "../inside-too/secret",
        "out",
        "folder-out/secret",
        "~/.ssh/id_rsa/../../../../../../etc/passwd",
        "a\0.png",
        "x" * 5_000 + "/../../../etc/passwd",
    ],
)
def test_nothing_else_is(place: Path, name: str) -> None:
    with pytest.raises((InputError, FileNotFoundError)) as caught:
        ImageFolders([place], max_bytes=100).read(name)
    assert len(str(caught.value)) < 6_000


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("pipe", "no regular file"),
        ("below", "no regular file"),
        ("large", "larger than 100"),
        ("sparse", "larger than 100"),
    ],
)
def test_only_regular_files_of_a_bounded_size(place: Path, name: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        ImageFolders([place], max_bytes=100).read(name)


def test_a_device_is_no_file() -> None:
    with pytest.raises(InputError, match="no regular file"):
        read_image_file(Path("/dev/zero"), max_bytes=100)


def test_further_folders_are_named_by_the_user(place: Path) -> None:
    folders = ImageFolders([place, place.parent / "inside-too"], max_bytes=100)
    assert folders.read("out") == b"secret"
    assert folders.read(str(place.parent / "inside-too" / "secret")) == b"secret"
