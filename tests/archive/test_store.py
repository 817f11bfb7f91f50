"""Who may read a local archive."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from groundwatch.archive.store import Store


def rights(root: Path) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {"folders": set(), "files": set()}
    for path in (root, *root.rglob("*")):
        found["folders" if path.is_dir() else "files"].add(stat.S_IMODE(path.stat().st_mode))
    return found


def fill(store: Store) -> None:
    store.prepare()
    store.create("manifest/0001.json", b"{}")
    with store.writing("data/day=1/rows.parquet") as file:
        file.write(b"x")


def test_an_archive_made_here_is_its_owners_alone(tmp_path: Path) -> None:
    root = tmp_path / "above" / "archive"
    fill(Store(str(root)))
    assert rights(root) == {"folders": {0o700}, "files": {0o600}}
    assert stat.S_IMODE(root.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", (0o750, 0o755))
def test_who_lets_others_into_its_folder_lets_them_read(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    fill(Store(str(tmp_path)))
    assert rights(tmp_path) == {"folders": {mode}, "files": {mode & 0o666}}
