"""Reading images that files name: what is judged does not choose what a command reads.

One way for all commands: a name leads into a folder that the user named and nowhere else, to a regular file,
and no more of it is read than an image may have.
"""

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from groundwatch.errors import InputError

_CAREFULLY = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY


class ImageFolders:
    """The folders that images are read from; a name is relative to the first.

    Symbolic links are followed as far as they stay in one of the folders.
    """

    def __init__(self, folders: Sequence[Path], *, max_bytes: int) -> None:
        self._base = folders[0]
        self._real = [os.path.realpath(folder) for folder in folders]
        self._max_bytes = max_bytes

    def find(self, name: str) -> Path:
        """Where the name leads. Raises `InputError` where that is outside of the folders."""
        try:
            real = os.path.realpath(self._base / name)
        except (OSError, ValueError) as error:
            raise InputError(f"{name[:300]} is no name of a file ({error})") from error
        for folder in self._real:
            if os.path.commonpath([folder, real]) == folder:
                return Path(real)
        raise InputError(
            f"{name[:300]} leads out of {self._base}: only images there are read, and in folders that "
            "are named for images"
        )

    def read(self, name: str) -> bytes:
        """The bytes of the image. Raises `InputError`; `FileNotFoundError` where there is no such file."""
        return read_image_file(self.find(name), max_bytes=self._max_bytes)


def read_image_file(path: Path, *, max_bytes: int) -> bytes:
    """The bytes of a regular file of at most so many; its path is followed by nobody but the caller.

    Raises `InputError`; `FileNotFoundError` where there is none.
    """
    try:
        # Whatever is at this path by now, opening it waits for nobody, and what was opened is looked at.
        opened = os.open(path, _CAREFULLY)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read ({getattr(error, 'strerror', error)})") from error
    found = os.fstat(opened)
    if not stat.S_ISREG(found.st_mode):
        os.close(opened)
        raise InputError(f"{path} is no regular file")
    with os.fdopen(opened, "rb") as file:
        if found.st_size > max_bytes:
            raise InputError(f"{path} of {found.st_size} bytes is larger than {max_bytes}")
        try:
            data = file.read(max_bytes + 1)
        except OSError as error:
            raise InputError(f"{path} cannot be read ({error.strerror})") from error
    if len(data) > max_bytes:
        raise InputError(f"{path} is larger than {max_bytes} bytes")
    return data
