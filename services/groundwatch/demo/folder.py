"""Where a demo keeps its streams, so that they can be replayed when it is over."""

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from groundwatch import __version__
from groundwatch.errors import UsageError
from groundwatch.runtime.local.nats_server import NatsServer
from groundwatch.runtime.security.private_files import make_private
from groundwatch.system.folders import MODELS, STREAMS

HERE = Path(".groundwatch") / "demo"
MARK = "demo.json"
"""A folder with this file is a demo's, and the next demo may empty it."""

JUDGE = "judge.toml"
"""The other judge, as the replay that the demo proposes takes it."""


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """The folder that the demo works in; `stays` when it is there afterwards."""

    path: Path
    stays: bool = True

    @property
    def judge(self) -> Path:
        """The file that describes the other judge."""
        return self.path / JUDGE

    @property
    def size(self) -> int:
        """Bytes in it."""
        return sum(one.stat().st_size for one in self.path.rglob("*") if one.is_file())

    def tidy(self) -> None:
        """Remove what only the running models needed."""
        shutil.rmtree(self.path / MODELS, ignore_errors=True)


@contextlib.contextmanager
def kept(named: Path | None, warn: Callable[[str], None]) -> Iterator[Kept]:
    """An empty folder for a demo, which stays. What an earlier demo kept there is removed.

    Where the user named none and nothing can be written here, it is one that goes away: `warn` is told.
    Raises `UsageError` when the folder is somebody else's or in use.
    """
    folder = named or HERE
    try:
        _empty(folder)
    except OSError as error:
        why = f"{folder} cannot be written ({error.strerror or error})"
        if named is not None:
            raise UsageError(f"{why}: name another folder") from error
        warn(f"{why}, so nothing of this demo stays")
        with tempfile.TemporaryDirectory(prefix="groundwatch-demo-") as made:
            yield Kept(path=Path(made), stays=False)
        return
    try:
        yield Kept(path=folder)
    except KeyboardInterrupt:
        # Half a demo is of no use; one that failed stays, with its logs.
        if named is None:
            shutil.rmtree(folder, ignore_errors=True)
            with contextlib.suppress(OSError):
                folder.parent.rmdir()
        raise


def _empty(folder: Path) -> None:
    if folder.is_dir() and any(folder.iterdir()) and not (folder / MARK).is_file():
        raise UsageError(f"{folder} holds something else than a demo: name another folder")
    make_private(folder)
    # First of all: whoever is killed here must not leave a folder that the next demo takes for another's.
    (folder / MARK).write_bytes(msgspec.json.encode({"groundwatch": __version__}))
    (folder / ".gitignore").write_text("*\n")
    NatsServer(folder / STREAMS).clear()
    (folder / JUDGE).unlink(missing_ok=True)
