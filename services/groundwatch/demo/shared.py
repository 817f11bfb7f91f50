"""What the live and the recorded demo share: who shows them, the books at the end, and the folder that keeps
the streams, so that they can be replayed when it is over."""

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import httpx
import msgspec

from groundwatch import __version__
from groundwatch.errors import UsageError
from groundwatch.ledger.ledger import Ledger, audit
from groundwatch.reporting.live import LiveView
from groundwatch.runtime.local.servers import NatsServer
from groundwatch.runtime.local.triton_server import OnProgress
from groundwatch.runtime.security.private_files import make_private
from groundwatch.runtime.settings import AlarmSettings
from groundwatch.system.connecting import MODELS, STREAMS
from groundwatch.system.up import System

SHOWN_METRICS = ("groundwatch_responses_total", "groundwatch_score_count", "groundwatch_alarm_raised")
"""Each fits a line of a terminal; of the alarms those that are raised."""

HERE = Path(".groundwatch") / "demo"
MARK = "demo.json"
"""A folder with this file is a demo's, and the next demo may empty it."""

JUDGE = "judge.toml"
"""The other judge, as the replay that the demo proposes takes it."""

ALARM = AlarmSettings(objective=0.06)
"""What still counts as good is said, not learnt: a demo has no day to spare for learning."""


class Screen:
    """Who watches a demo; this one is nobody."""

    def say(self, line: str) -> None:
        """What is done now."""

    @contextlib.contextmanager
    def loading(self, words: str) -> Iterator[OnProgress | None]:
        """Which models load while the block runs."""
        yield None

    @contextlib.asynccontextmanager
    async def live(self, view: LiveView) -> AsyncIterator[None]:
        """The live table while the block runs."""
        yield


@contextlib.asynccontextmanager
async def tasks() -> AsyncIterator[asyncio.TaskGroup]:
    """A group of tasks, of which the first error ends all and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except* Exception as several:
        errors = several
    else:
        return
    raise errors.exceptions[0]


async def settled(system: System) -> Ledger:
    """The ledger, once nothing is in flight any more."""
    ledger = await audit(system.bus.js, partitions=system.bus.partitions)
    for _ in range(50):
        if not ledger.in_flight:
            break
        await asyncio.sleep(0.1)
        ledger = await audit(system.bus.js, partitions=system.bus.partitions)
    return ledger


async def metrics_of(gateway: str) -> list[str]:
    """The lines of the gateway's /metrics that are shown."""
    async with httpx.AsyncClient(base_url=gateway, timeout=30) as http:
        text = (await http.get("/metrics")).text
    return [
        line
        for line in text.splitlines()
        if line.startswith(SHOWN_METRICS)
        and not (line.startswith("groundwatch_alarm_raised") and line.endswith(" 0.0"))
    ]


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """The folder that the demo works in; `stays` when it is there afterwards."""

    path: Path
    stays: bool = True

    @property
    def judge(self) -> Path:
        return self.path / JUDGE

    @property
    def size(self) -> int:
        """Bytes of the streams."""
        return sum(one.stat().st_size for one in (self.path / STREAMS).rglob("*") if one.is_file())

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
