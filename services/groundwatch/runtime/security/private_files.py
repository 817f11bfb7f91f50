"""Files and folders that no other user of this machine can read."""

import os
from pathlib import Path

FOLDER_MODE = 0o700
FILE_MODE = 0o600


def make_private(folder: Path) -> None:
    """Make a folder of ours, with those above it where they are absent; other users cannot enter it."""
    make_folders(folder)
    folder.chmod(FOLDER_MODE)


def make_folders(folder: Path) -> None:
    """Make a folder and those above it where they are absent, private; one that is there stays as it is."""
    if not folder.is_dir():
        make_folders(folder.parent)
        folder.mkdir(mode=FOLDER_MODE, exist_ok=True)


def write_private(path: Path, data: bytes, *, mode: int = FILE_MODE) -> None:
    """Write a file that only its owner can read, or never by more than `mode` says; all of it or nothing."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(handle)
        # Whatever the mask of the process takes away.
        draft.chmod(mode)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
