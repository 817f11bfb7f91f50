"""The whole system in one process, the models it serves, and where the commands of this machine find it."""

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec

import groundwatch
from groundwatch.archive.cold import cold_events
from groundwatch.archive.images import archived_images
from groundwatch.archive.place import FOLDER, SWITCHED_OFF, placed
from groundwatch.erasure.retention import RetentionService
from groundwatch.errors import GroundwatchError, UsageError, told_to_user
from groundwatch.models.repository import (
    PRESETS,
    ServedModel,
    found_in,
    missing_checkpoints,
    not_to_be_had,
    read_manifest,
)
from groundwatch.protocols import registry
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.provisioning import provision, reserved_bytes
from groundwatch.runtime.local.servers import NatsServer
from groundwatch.runtime.local.triton_server import OnProgress, TritonServer
from groundwatch.runtime.security.private_files import make_folders, make_private, write_private
from groundwatch.runtime.services.run import notes_of, observed, problems_of, running
from groundwatch.runtime.services.service import Service
from groundwatch.runtime.services.tasks import SupervisedTask, still_wanted
from groundwatch.runtime.settings import Settings, held_at_once
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.system.connecting import ADDRESS_FILE, Running, data_dir, with_nats
from groundwatch.system.services import STAGES, make_service, metrics_for

READY_SECONDS = 60.0
RESTART_PAUSE = 2.0
ROOM_PAUSE = 5.0
ROOM_BYTES = 64 * 1024 * 1024
"""Free bytes with which a server whose disk was full is restarted."""


class System(msgspec.Struct, frozen=True, kw_only=True):
    """A running system on this machine."""

    settings: Settings
    bus: Bus
    metrics: Metrics
    nats_url: str
    gateway_url: str
    server: NatsServer | None
    triton: TritonServer | None = None


@contextlib.asynccontextmanager
async def whole_system(
    settings: Settings,
    folder: Path,
    models: Mapping[str, ServedModel] | None = None,
    on_progress: OnProgress | None = None,
    *,
    any_port: bool = False,
) -> AsyncIterator[System]:
    """Every service in this process, with our own nats-server unless settings name another.

    `models` are served by a Triton of our own, which tells `on_progress` what it loads. Without `archive.url`
    there is no archive. With `any_port` the gateway listens at another port where its own is taken. Other
    commands on this machine find the system by a file in `folder`, once it is ready.
    """
    from groundwatch.gateway.service import GatewayService

    registry.configure(settings.protocols, settings.prompts.folder)
    metrics = metrics_for(settings)
    async with contextlib.AsyncExitStack() as stack:
        server = None
        if not settings.nats.url:
            _check_room(folder)
            server = NatsServer(
                folder / "nats",
                max_payload=settings.nats.max_payload,
                reserved=reserved_bytes(settings.cache),
            )
            await server.start()
            stack.push_async_callback(server.stop)
            still_wanted()
            settings = with_nats(settings, server.url)
            guard = SupervisedTask("nats-guard", partial(_keep_alive, server))
            guard.start()
            stack.push_async_callback(guard.stop)
        settings, triton = await stack.enter_async_context(
            serving(models or {}, settings, folder, on_progress)
        )
        still_wanted()
        bus = Bus(settings.nats, name="groundwatch")
        bus.cold = cold_events(settings.archive)
        bus.cold_images = archived_images(settings.archive)
        await bus.connect()
        still_wanted()
        if server is not None:
            mending = SupervisedTask("nats-disk", lambda: restart_when_there_is_room(server, bus))
            mending.start()
            stack.push_async_callback(mending.stop)
        await stack.enter_async_context(observed(bus, "groundwatch", settings, metrics))
        archived = settings.archive.url not in ("", SWITCHED_OFF)
        await provision(
            bus.js,
            replicas=settings.nats.replicas,
            partitions=settings.nats.partitions,
            cache=settings.cache,
            held=held_at_once(settings),
            archived=archived,
        )
        wanted = [name for name in STAGES if name != "archive" or archived]
        services = [make_service(name, settings, bus, metrics, in_one_process=True) for name in wanted]
        services.append(RetentionService(settings, bus))
        gateway, *others = services
        assert isinstance(gateway, GatewayService)
        gateway.held_back, gateway.any_port = "the system is starting", any_port
        await stack.enter_async_context(running(services, bus))
        await _wait_ready(services)
        still_wanted()
        assert gateway.core is not None
        gateway.core.telling.append(lambda: _beside(others, bus, triton))
        system = System(
            settings=settings,
            bus=bus,
            metrics=metrics,
            nats_url=settings.nats.url,
            gateway_url=f"http://{settings.gateway.host}:{gateway.port}",
            server=server,
            triton=triton,
        )
        stack.enter_context(_writing_address(folder / ADDRESS_FILE, system))
        gateway.held_back = ""
        yield system


def _beside(others: Sequence[Service], bus: Bus, triton: TritonServer | None) -> list[str]:
    """What `/readyz` of the gateway tells of all else that is here; that NATS is away it says itself."""
    found = [] if bus.away else problems_of(others)
    found += notes_of(others)
    return [*found, triton.problem] if triton is not None and triton.problem else found


async def _wait_ready(services: list[Service]) -> None:
    deadline = asyncio.get_running_loop().time() + READY_SECONDS
    while found := problems_of(services):
        if asyncio.get_running_loop().time() > deadline:
            raise UsageError(f"the system did not become ready: {'; '.join(found)}")
        await asyncio.sleep(0.02)


async def restart_when_there_is_room(server: NatsServer, bus: Bus) -> None:
    """Restart our server when its disk was full and is no more: until then it stores nothing. Never ends."""
    while True:
        await asyncio.sleep(ROOM_PAUSE)
        if bus.storage.needs_restart and shutil.disk_usage(server.data_dir).free >= ROOM_BYTES:
            logger.warning("nats.restarted_after_full_disk", problems=bus.storage.problems())
            server.terminate()
            # Who looks after it starts it again; what goes unacknowledged until then is no sign.
            await asyncio.sleep(RESTART_PAUSE)
            await bus.until_connected(READY_SECONDS)
            bus.storage.forget()


async def _keep_alive(server: NatsServer) -> None:
    """Start our server again when it dies; the clients reconnect by themselves."""
    while True:
        status = await server.wait()
        logger.error("nats.died", status=status)
        try:
            await server.restart()
        except GroundwatchError as error:
            logger.error("nats.not_restarted", error=str(error))
            await asyncio.sleep(RESTART_PAUSE)


def prepare_folder(settings: Settings) -> Settings:
    """Settings with places in the data folder, made here. Raises `UsageError` where it cannot be."""
    folder = data_dir(settings)
    with told_to_user(f"{folder} cannot be written"):
        # A folder that somebody named may be there for others too; what we keep in it is not.
        (make_folders if settings.data_dir else make_private)(folder)
        with tempfile.TemporaryFile(dir=folder):
            pass
    settings = placed(settings, folder)
    if settings.archive.url == str(folder / FOLDER):
        make_private(folder / FOLDER)
    return settings


def _check_room(folder: Path) -> None:
    """Raises `UsageError` where the disk is as good as full."""
    folder.mkdir(parents=True, exist_ok=True)
    if (free := shutil.disk_usage(folder).free) < ROOM_BYTES:
        raise UsageError(
            f"{folder} has {free / 1e6:.0f} MB free, and {ROOM_BYTES / 1e6:.0f} MB are needed to start: make "
            "room, or name another folder",
            "folder",
        )


def little_room(settings: Settings, folder: Path) -> str:
    """A line where the disk has less than the streams' limits take together; empty where it has."""
    free, needed = shutil.disk_usage(folder).free, reserved_bytes(settings.cache)
    if settings.nats.url or free >= needed:
        return ""
    return (
        f"{folder} has {free / 1e9:.1f} GB free, and streams with a limit may take {needed / 1e9:.1f} GB: "
        "when the disk is full, answers are refused until there is room"
    )


@contextlib.contextmanager
def _writing_address(path: Path, system: System) -> Iterator[None]:
    """Lets the other commands on this machine find the system while the block runs."""
    make_folders(path.parent)
    running_now = Running(nats=system.nats_url, gateway=system.gateway_url, pid=os.getpid())
    write_private(path, msgspec.json.encode(running_now))
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


MINIATURE = Path(groundwatch.__file__).with_name("miniature") / "checkpoints"


def named_models(name: str) -> dict[str, ServedModel]:
    """What a user names; nothing for an empty name. Raises `UsageError`."""
    if not name:
        return {}
    place = MINIATURE if name == "miniature" else Path(name)
    if not place.exists() and name.isalnum():
        # A folder of one's own goes before a preset of its name.
        place = next(PRESETS.glob(f"{name}.toml"), place)
    models = found_in(place) if place.is_dir() else read_manifest(place) if place.exists() else {}
    if not models:
        known = ", ".join(sorted(path.stem for path in PRESETS.glob("*.toml")))
        raise UsageError(
            f"no models at {place}: name a TOML file, a folder of checkpoints, miniature, or one of {known}"
        )
    if absent := missing_checkpoints(models):
        raise UsageError(f"{place}: there is no checkpoint {absent[0]}")
    return models


@contextlib.asynccontextmanager
async def serving(
    models: Mapping[str, ServedModel], settings: Settings, folder: Path, on_progress: OnProgress | None = None
) -> AsyncIterator[tuple[Settings, TritonServer | None]]:
    """Our own Triton while the block runs, looked after, and settings that use it; neither without models."""
    if not models:
        yield settings, None
        return
    if why := await asyncio.to_thread(not_to_be_had, models):
        raise UsageError(why)
    server = TritonServer(folder / "triton", models)
    await server.start(on_progress=on_progress)
    guard = SupervisedTask("triton-guard", server.look_after)
    guard.start()
    try:
        yield with_triton(settings, server.url, models), server
    finally:
        await guard.stop()
        await server.stop()


def with_triton(settings: Settings, url: str, models: Mapping[str, ServedModel]) -> Settings:
    """Settings whose services ask the models at `url`, each stage that names no engine of its own.

    The verifier judges the protocols whose papers let a model look, unless settings name who judges them.
    """
    served: dict[str, list[str]] = {}
    for name, model in models.items():
        served.setdefault(model.kind, []).append(name)
    named = {kind: names[0] for kind, names in served.items() if getattr(settings.triton, kind) not in names}
    settings = settings.model_copy(
        update={"triton": settings.triton.model_copy(update={"url": url, **named})}
    )
    changes: dict[str, object] = {}
    captioning = settings.captioning
    if "lvlm" in served and not captioning.engine and not captioning.models:
        changes["captioning"] = captioning.model_copy(
            update={
                "engine": "triton",
                "served": captioning.served or {name: name for name in served["lvlm"]},
            }
        )
    if not settings.generation.engine and {"generator", "image_encoder"} <= served.keys():
        changes["generation"] = settings.generation.with_engine("triton")
    if not settings.verification.engine and "verifier" in served:
        changes["verification"] = settings.verification.with_served("triton")
    return settings.model_copy(update={**changes})
