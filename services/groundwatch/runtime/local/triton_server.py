"""A Triton Inference Server of our own, as a child process, for `groundwatch up --models` and the tests.

The server is the one that nvidia-pytriton carries, with the Python backend; its models run in this Python
environment. In production any other Triton does the same work at `triton.url`.

Whoever may load a model runs code of their own in it. So there is no HTTP port, which any web page could
reach, and no gRPC port: gRPC is at a socket in a folder that only this user can enter. What controls the
server also needs a key, made anew for each server.
"""

import asyncio
import contextlib
import importlib
import importlib.metadata
import importlib.util
import os
import secrets
import shutil
import signal
import sys
import sysconfig
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import psutil  # type: ignore[import-untyped]

from groundwatch.errors import MissingExtraError, UsageError
from groundwatch.models.repository import ServedModel, missing_checkpoints, write_model, write_repository
from groundwatch.runtime.local.servers import ChildServer, free_port, is_taken
from groundwatch.runtime.telemetry.logs import logger

READY_SECONDS = 60.0
LOAD_SECONDS = 600.0
STOP_SECONDS = 15.0
LOOK_SECONDS = 2.0
LOADS_AT_ONCE = 2
RESTART_PAUSE = 2.0

CALL_SECONDS = 5.0

LONGEST_FOLDER = 64
"""Bytes of the path of the folder for sockets: with our own part it stays below the 107 that Linux takes."""

RESTRICTED = ("shared-memory", "model-repository", "statistics", "trace", "logging")
"""Parts of Triton's gRPC that only this process may use. The others ask about models, and ask models."""

_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
_KEY = "groundwatch-key"
_HEADER = f"triton-grpc-protocol-{_KEY}"
_NO_ANSWER = ("StatusCode.UNAVAILABLE", "StatusCode.DEADLINE_EXCEEDED", "StatusCode.CANCELLED")
_SHARED_MEMORY = Path("/dev/shm")


class LoadProgress(msgspec.Struct, frozen=True, kw_only=True):
    """A model that is `loaded`, or begins to load: so many are `done` of `total`, after `seconds`."""

    model: str
    loaded: bool
    done: int
    total: int
    seconds: float


OnProgress = Callable[[LoadProgress], None]


class TritonServer(ChildServer):
    """One tritonserver that serves `models` to processes of this user; its files are under `data_dir`.

    `metrics_port` is its only port, on loopback, and only shows metrics.
    """

    program = "tritonserver"
    refusal = "another groundwatch already serves models from"
    stop_seconds = STOP_SECONDS

    def __init__(
        self,
        data_dir: Path,
        models: Mapping[str, ServedModel],
        *,
        metrics_port: int = 0,
    ) -> None:
        super().__init__(data_dir)
        self.models = dict(models)
        self.metrics_port = metrics_port or free_port()
        folder = Path(tempfile.gettempdir())
        if len(os.fsencode(folder)) > LONGEST_FOLDER:
            folder = Path("/tmp")
        self._socket_folder = folder / f"groundwatch-{secrets.token_hex(8)}"
        self._key = secrets.token_urlsafe(32)
        self._connected: Any = None
        self._started = False
        self.problem = ""
        """Why models are not served, while they are not and it is being mended."""

    @property
    def url(self) -> str:
        """Where gRPC clients of this user connect; the same for as long as this object lives."""
        return f"unix:{self._socket_folder}/grpc:1"

    @property
    def metrics_url(self) -> str:
        return f"http://127.0.0.1:{self.metrics_port}/metrics"

    @property
    def repository(self) -> Path:
        return self.data_dir / "repository"

    async def start(self, *, on_progress: OnProgress | None = None) -> None:
        """Start the child, and load every model, telling `on_progress` of each.

        Raises `UsageError` with what the server said about a model that does not load.
        """
        root = find_distribution()
        if importlib.util.find_spec("tritonclient") is None:
            raise MissingExtraError("tritonclient", "models")
        if absent := missing_checkpoints(self.models):
            raise UsageError(f"there is no checkpoint {absent[0]}")
        if self._lock is None:
            self._lock_folder()
        try:
            write_repository(self.repository, self.models, paths=package_paths())
            self._clear_shared_memory()
            await self._wait_for_port()
            await self._launch(root)
            await self._until_ready(self._answers, READY_SECONDS)
            self._conceal_key()
            await self._load_all(on_progress)
        except BaseException:
            await self.stop()
            raise
        logger.info("triton.started", url=self.url, metrics=self.metrics_url, pid=self.pid)

    async def load(self, name: str) -> None:
        """Load the repository's model of this name, or load it anew. Raises `UsageError` with the reason."""
        await self._manage(name, "load")
        self._keep_shared_memory_private()

    async def _load_all(self, on_progress: OnProgress | None) -> None:
        began, done = time.monotonic(), 0
        turns = asyncio.Semaphore(LOADS_AT_ONCE)

        def tell(name: str, *, loaded: bool) -> None:
            if on_progress is not None:
                total, seconds = len(self.models), time.monotonic() - began
                on_progress(LoadProgress(model=name, loaded=loaded, done=done, total=total, seconds=seconds))

        async def load_in_turn(name: str) -> None:
            nonlocal done
            async with turns:
                tell(name, loaded=False)
                await self.load(name)
                done += 1
                tell(name, loaded=True)

        await asyncio.gather(*map(load_in_turn, self.models))

    async def unload(self, name: str) -> None:
        await self._manage(name, "unload")

    async def replace(self, name: str, model: ServedModel) -> None:
        """Serve another checkpoint under a name, new or not; one before answers until it is loaded."""
        await asyncio.to_thread(write_model, self.repository, name, model, paths=package_paths())
        await self.load(name)
        # Only now: what is not loaded yet is not looked after either.
        self.models[name] = model

    async def retire(self, name: str) -> None:
        self.models.pop(name, None)
        await self.unload(name)

    async def loaded(self, name: str) -> bool:
        """Whether the model can answer: Triton calls it ready even when its process has died."""
        return await self._is_ready(name) is True and bool(self.processes(name))

    async def _died(self, name: str) -> bool:
        """Whether a model must be loaded again. A server too busy to tell is no reason to take it away."""
        ready = await self._is_ready(name)
        return ready is not None and not (ready and self.processes(name))

    async def _is_ready(self, name: str) -> bool | None:
        """What Triton says of a model; None when it does not answer."""
        from tritonclient.utils import InferenceServerException

        try:
            return bool(await self._client().is_model_ready(name, client_timeout=CALL_SECONDS))
        except InferenceServerException as error:
            return None if error.status() in _NO_ANSWER else False

    def processes(self, name: str = "") -> list[int]:
        """Ids of the living processes of a model, or of all models."""
        place = f"/{self.repository.name}/{name}/" if name else f"/{self.repository.name}/"
        found = []
        with contextlib.suppress(psutil.Error):
            for child in psutil.Process(self.pid).children(recursive=True) if self.pid else ():
                with contextlib.suppress(psutil.Error):
                    if child.status() != psutil.STATUS_ZOMBIE and place in " ".join(child.cmdline()):
                        found.append(child.pid)
        return found

    def _stop_process(self, pid: int) -> None:
        _kill_group(pid)

    async def stop(self) -> None:
        """Stop the child and the models' processes by their ids, and wait for them."""
        await self._clear_away()
        self._release_folder()

    async def _clear_away(self) -> None:
        if (leader := await self._end()) is not None:
            # The models' processes outlive a server that died, and hold the folder's lock as it did.
            of_models = _group_of(leader)
            _kill_group(leader)
            await _gone(of_models)
            self._clear_shared_memory()
        if self._connected is not None:
            await self._connected.close()
            self._connected = None
        shutil.rmtree(self._socket_folder, ignore_errors=True)

    async def restart(self) -> None:
        """Start again on the same ports, after the child has died. The folder stays ours meanwhile."""
        await self._clear_away()
        await self.start()

    async def look_after(self) -> None:
        """Start the server again when it dies, and load a model again whose process died. Never ends."""
        while True:
            try:
                status = await asyncio.wait_for(self.wait(), LOOK_SECONDS)
            except TimeoutError:
                self._keep_shared_memory_private()
                for name in tuple(self.models):
                    await self._look_at(name)
            else:
                await self._start_again(_ended(status))

    async def _start_again(self, why: str) -> None:
        """Try until it is back; what ended it stays the first reason that is told."""
        logger.error("triton.died", why=why, log=str(self.log))
        self.problem = f"triton: {why}, and is started again; see {self.log}"
        while self.problem:
            try:
                await self.restart()
                self.problem = ""
            except UsageError as error:
                logger.error("triton.not_restarted", why=why, error=str(error))
                self.problem = f"triton: {why}, and does not start again: {error}"
                await asyncio.sleep(RESTART_PAUSE)

    async def _look_at(self, name: str) -> None:
        # It may be retired while Triton is asked.
        if self.pid is None or not await self._died(name) or name not in self.models:
            return
        logger.error("triton.model_died", model=name, log=str(self.log))
        self.problem = f"triton: the process of model '{name}' ended, and is started again; see {self.log}"
        with contextlib.suppress(UsageError):
            # Triton would not load anew what it takes for loaded.
            await self.unload(name)
            await self.load(name)
            self.problem = ""

    async def _manage(self, name: str, action: str) -> None:
        from tritonclient.utils import InferenceServerException

        client = self._client()
        call: Callable[..., Awaitable[None]] = client.load_model if action == "load" else client.unload_model
        try:
            await call(name, headers={_HEADER: self._key}, client_timeout=LOAD_SECONDS)
        except InferenceServerException as error:
            if error.status() in _NO_ANSWER:
                raise UsageError(
                    f"Triton did not answer while it was to {action} '{name}' ({error}); see {self.log}"
                ) from error
            raise UsageError(f"Triton cannot {action} '{name}': {_reason(error.message())}") from error

    def _client(self) -> Any:
        if self._connected is None:
            grpc = importlib.import_module("tritonclient.grpc.aio")
            # Why a model does not load comes as metadata: a whole traceback.
            room = [("grpc.max_metadata_size", 1 << 20), ("grpc.absolute_max_metadata_size", 1 << 20)]
            self._connected = grpc.InferenceServerClient(self.url, channel_args=room)
        return self._connected

    async def _wait_for_port(self) -> None:
        """Two servers can listen on one port and share its callers: the one before must be gone."""
        deadline = time.monotonic() + STOP_SECONDS if self._started else 0.0
        while is_taken(self.metrics_port):
            if time.monotonic() > deadline:
                raise UsageError(f"port {self.metrics_port} belongs to another server; name a free one")
            await asyncio.sleep(0.05)
        self._started = True

    async def _launch(self, root: Path) -> None:
        backends = self.data_dir / "backends"
        write_backend(root, backends / "python")
        self._socket_folder.mkdir(mode=0o700, exist_ok=True)
        address, port = self.url.rsplit(":", 1)
        options = {
            "model-repository": self.repository,
            "backend-directory": backends,
            "model-control-mode": "explicit",
            "exit-timeout-secs": 3,
            "allow-http": "false",
            "grpc-address": address,
            "grpc-port": port,
            "grpc-restricted-protocol": f"{','.join(RESTRICTED)}:{_KEY}={self._key}",
            "metrics-address": "127.0.0.1",
            "metrics-port": self.metrics_port,
            "log-info": "false",
        }
        settings = (
            f"shm-region-prefix-name={self._prefix}",
            # A large checkpoint on a busy machine takes its time.
            f"stub-timeout-seconds={LOAD_SECONDS:.0f}",
        )
        with self.log.open("ab") as log:
            await self._start_subprocess(
                str(root / "bin" / self.program),
                *(f"--{key}={value}" for key, value in options.items()),
                *(f"--backend-config=python,{setting}" for setting in settings),
                "--disable-auto-complete-config",
                stdout=log,
                stderr=log,
                env=environment(root),
            )

    def _conceal_key(self) -> None:
        """Write over the key in the child's command line, which every user of this machine can read."""
        secret = self._key.encode()
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
            start, end = map(int, fields[45:47])
            with Path(f"/proc/{self.pid}/mem").open("r+b", buffering=0) as memory:
                memory.seek(start)
                if (at := memory.read(end - start).find(secret)) >= 0:
                    memory.seek(start + at)
                    memory.write(b"*" * len(secret))
        except (OSError, ValueError) as error:
            logger.warning("triton.key_in_command_line", error=repr(error))

    async def _answers(self) -> bool:
        from tritonclient.utils import InferenceServerException

        with contextlib.suppress(InferenceServerException):
            return bool(await self._client().is_server_live(client_timeout=CALL_SECONDS))
        return False

    @property
    def _prefix(self) -> str:
        """Of the shared memory of this folder's server; that of one that was killed has the same name."""
        return f"groundwatch_{sha256(os.fsencode(self.data_dir.absolute())).hexdigest()[:16]}_"

    def _clear_shared_memory(self) -> None:
        """What a killed server could not take away itself."""
        for path in self._shared_memory():
            path.unlink(missing_ok=True)

    def _keep_shared_memory_private(self) -> None:
        """Images and answers pass through it; Triton lets every user read it, whatever the umask."""
        for path in self._shared_memory():
            with contextlib.suppress(FileNotFoundError):
                path.chmod(0o600)

    def _shared_memory(self) -> list[Path]:
        return list(_SHARED_MEMORY.glob(f"{self._prefix}*")) if _SHARED_MEMORY.is_dir() else []


def _reason(body: str) -> str:
    """The last line of what the server says of a model that does not load: before it is a traceback."""
    for line in body.splitlines():
        name, found, rest = line.partition("CheckpointError: ")
        if found and not name.startswith(" "):
            return rest
    return body.strip()[:500]


def _ended(status: int) -> str:
    """In words, how a process that should not have ended did."""
    if status >= 0:
        return f"tritonserver ended with status {status}"
    name = {one.value: one.name for one in signal.Signals}.get(-status, f"signal {-status}")
    return f"tritonserver was ended by {name}{' (out of memory?)' if name == 'SIGKILL' else ''}"


def _group_of(leader: int) -> list[int]:
    """Ids of the processes of a group, its leader's own left out."""
    found = []
    for pid in psutil.pids():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if pid != leader and os.getpgid(pid) == leader:
                found.append(pid)
    return found


def _kill_group(leader: int) -> None:
    """The models' processes outlive a server that was killed; they are of its process group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


async def _gone(processes: list[int]) -> None:
    """Wait until processes that were killed are gone, or wait as zombies for whoever adopted them."""
    for pid in processes:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            for _ in range(round(STOP_SECONDS / 0.02)):
                if process.status() == psutil.STATUS_ZOMBIE:
                    break
                await asyncio.sleep(0.02)


def find_distribution() -> Path:
    """Where nvidia-pytriton's tritonserver lies. Raises `UsageError` where it cannot work here."""
    package = importlib.util.find_spec("pytriton")
    if package is None or not package.submodule_search_locations:
        if sys.version_info >= (3, 13):
            raise UsageError(
                "the embedded Triton needs Python 3.11 or 3.12: use one, or set triton.url to another Triton"
            )
        raise MissingExtraError("nvidia-pytriton, the embedded Triton,", "models")
    root = Path(package.submodule_search_locations[0]) / "tritonserver"
    if not (root / "python_backend_stubs" / _VERSION).is_dir():
        raise UsageError(f"the embedded Triton has no backend for Python {_VERSION}: use 3.11 or 3.12")
    for needed in ("torch", "transformers", "diffusers", "sentence_transformers"):
        if importlib.util.find_spec(needed) is None:
            raise MissingExtraError(f"{needed}, which the embedded Triton's models need,", "models")
    if int((numpy := importlib.metadata.version("numpy")).partition(".")[0]) >= 2:
        raise UsageError(
            f"the embedded Triton's backend needs numpy below 2, and {numpy} is installed: "
            "run pip install 'groundwatch[models]'"
        )
    return root


def write_backend(root: Path, folder: Path) -> None:
    """The Python backend as Triton looks for it, with the process for models of this Python's version."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for source in (
        *(root / "backends" / "python").glob("*.*"),
        root / "python_backend_stubs" / _VERSION / "triton_python_backend_stub",
    ):
        (folder / source.name).symlink_to(source)


def package_paths() -> list[str]:
    """Where this Python finds packages: the models' process looks at no environment variable."""
    return [str(Path(path).absolute()) for path in sys.path if path]


def environment(root: Path) -> dict[str, str]:
    """Where the server finds its own libraries and this Python's."""
    own = os.environ.copy()
    libraries = (
        str(root.parents[1] / "nvidia_pytriton.libs"),
        sysconfig.get_config_var("LIBDIR"),
        own.get("LD_LIBRARY_PATH"),
    )
    own["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, libraries))
    return own | {"TOKENIZERS_PARALLELISM": "false"}
