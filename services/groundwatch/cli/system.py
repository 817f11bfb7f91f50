"""Commands that run the system: up, serve."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import nats.errors
import typer

from groundwatch.addresses import shown_address
from groundwatch.archive.place import FOLDER, SWITCHED_OFF, placed
from groundwatch.cli.common import (
    ADDRESS_FILE,
    ConfigOption,
    NatsOption,
    Running,
    data_dir,
    prepare,
    run,
    with_nats,
)
from groundwatch.cli.models import ModelsOption, loading_shown, named_models, serving
from groundwatch.cli.output import say
from groundwatch.erasure.service import RetentionService
from groundwatch.errors import GroundwatchError, SettingsError, TransientError, UsageError
from groundwatch.models.repository import ServedModel
from groundwatch.protocols import registry
from groundwatch.protocols.faithscore.protocol import FaithScore
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.provisioning import missing, provision
from groundwatch.runtime.local.nats_server import NatsServer
from groundwatch.runtime.local.triton_server import OnProgress, TritonServer
from groundwatch.runtime.security.private_files import make_folders, make_private, write_private
from groundwatch.runtime.services.run import problems_of, running, until_told_to_stop
from groundwatch.runtime.services.service import Service
from groundwatch.runtime.services.tasks import SupervisedTask, first_of
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.runtime.telemetry.server import telemetry_server
from groundwatch.terminal import Console

T = TypeVar("T")

STAGES = (
    "gateway",
    "extraction",
    "captioning",
    "generation",
    "matching",
    "verification",
    "scoring",
    "archive",
)
"""Services of `groundwatch up`."""

SERVED = (*STAGES, "replay")
"""Services that may have processes of their own."""

READY_SECONDS = 60.0
RESTART_PAUSE = 2.0
ROOM_PAUSE = 5.0
ROOM_BYTES = 64 * 1024 * 1024
"""Free bytes with which a server whose disk was full is restarted."""

WAIT_PAUSE = 1.0


def make_service(name: str, settings: Settings, bus: Bus, metrics: Metrics) -> Service:
    """The service of this name. Imported only when wanted: a light one must not pay for a heavy one."""
    match name:
        case "gateway":
            from groundwatch.gateway.service import GatewayService
            from groundwatch.replay.watching import RunGauges

            gauges = RunGauges(bus, metrics.replay)
            if settings.gateway.grpc_port < 0:
                return GatewayService(settings, bus, metrics, run_gauges=gauges)
            from groundwatch.cli.replaying import ReplayDesk

            return GatewayService(settings, bus, metrics, ReplayDesk(settings), gauges)
        case "extraction":
            from groundwatch.extraction.service import ExtractionService

            return ExtractionService(settings, bus, metrics)
        case "captioning":
            from groundwatch.captioning.service import CaptioningService

            return CaptioningService(settings, bus, metrics)
        case "generation":
            from groundwatch.generation.service import GenerationService

            return GenerationService(settings, bus, metrics)
        case "matching":
            from groundwatch.matching.service import MatchingService

            return MatchingService(settings, bus, metrics)
        case "verification":
            from groundwatch.verification.service import VerificationService

            return VerificationService(settings, bus, metrics)
        case "scoring":
            from groundwatch.scoring.service import ScoringService

            return ScoringService(settings, bus, metrics)
        case "archive":
            from groundwatch.archive.service import ArchiveService

            return ArchiveService(settings, bus, metrics)
        case "replay":
            from groundwatch.replay.service import ReplayService

            return ReplayService(settings, bus, metrics)
    raise UsageError(f"no service '{name}'; there are {', '.join(SERVED)}")


def metrics_for(settings: Settings) -> Metrics:
    """The metrics of a process, as settings want them."""
    return Metrics(max_labels=settings.telemetry.max_labels, version_tags=settings.telemetry.version_tags)


def configure_protocols(settings: Settings) -> None:
    """Give protocols their settings."""
    registry.configure(FaithScore(weights=settings.faithscore.weights))


class System(msgspec.Struct, frozen=True, kw_only=True):
    """A running system on this machine."""

    settings: Settings
    bus: Bus
    metrics: Metrics
    nats_url: str
    gateway_url: str
    server: NatsServer | None
    triton: TritonServer | None = None


def _still_wanted() -> None:
    """Raises `CancelledError` where a Ctrl-C came while a library was connecting and kept it to itself."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


@contextlib.asynccontextmanager
async def whole_system(
    settings: Settings,
    folder: Path,
    models: Mapping[str, ServedModel] | None = None,
    on_progress: OnProgress | None = None,
) -> AsyncIterator[System]:
    """Every service in this process, with our own nats-server unless settings name another.

    `models` are served by a Triton of our own, which tells `on_progress` what it loads. Without `archive.url`
    there is no archive.
    """
    configure_protocols(settings)
    metrics = metrics_for(settings)
    async with contextlib.AsyncExitStack() as stack:
        server = None
        if not settings.nats.url:
            server = NatsServer(folder / "nats", max_payload=settings.nats.max_payload)
            await server.start()
            stack.push_async_callback(server.stop)
            _still_wanted()
            settings = with_nats(settings, server.url)
            guard = SupervisedTask("nats-guard", partial(_keep_alive, server))
            guard.start()
            stack.push_async_callback(guard.stop)
        settings, triton = await stack.enter_async_context(
            serving(models or {}, settings, folder, on_progress)
        )
        _still_wanted()
        bus = Bus(settings.nats, name="groundwatch")
        await bus.connect()
        _still_wanted()
        if server is not None:
            mending = SupervisedTask("nats-disk", lambda: restart_when_there_is_room(server, bus))
            mending.start()
            stack.push_async_callback(mending.stop)
        metrics.not_stored.set_function(lambda: len(bus.storage.problems()))
        await provision(bus.js, replicas=settings.nats.replicas, cache=settings.cache)
        archived = settings.archive.url not in ("", SWITCHED_OFF)
        wanted = [name for name in STAGES if name != "archive" or archived]
        services = [make_service(name, settings, bus, metrics) for name in wanted]
        services.append(RetentionService(settings, bus))
        await stack.enter_async_context(running(services, bus))
        await _wait_ready(services)
        _still_wanted()
        gateway = services[0]
        port: int = getattr(gateway, "port", settings.gateway.port)
        yield System(
            settings=settings,
            bus=bus,
            metrics=metrics,
            nats_url=settings.nats.url,
            gateway_url=f"http://{settings.gateway.host}:{port}",
            server=server,
            triton=triton,
        )


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


def up(
    config: ConfigOption = None,
    port: Annotated[
        int | None, typer.Option(help="Port of the pages and the HTTP intake; 0: a free one.")
    ] = None,
    folder: Annotated[Path | None, typer.Option("--data-dir", help="Where the streams are kept.")] = None,
    models: ModelsOption = "",
) -> None:
    """Run the whole system on this machine, NATS included, pages at a port; with --models also Triton."""
    settings = prepare(config)
    if port is not None:
        settings = settings.model_copy(update={"gateway": settings.gateway.model_copy(update={"port": port})})
    if folder is not None:
        settings = settings.model_copy(update={"data_dir": str(folder)})
    run(_up(settings, named_models(models)))


async def _up(settings: Settings, models: Mapping[str, ServedModel]) -> None:
    folder = data_dir(settings)
    try:
        # A folder that somebody named may be there for others too; what we keep in it is not.
        (make_folders if settings.data_dir else make_private)(folder)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        why = error.strerror or error
        raise UsageError(f"{folder} cannot be written ({why}): name another with --data-dir") from error
    settings = placed(settings, folder)
    if settings.archive.url == str(folder / FOLDER):
        make_private(folder / FOLDER)
    async with contextlib.AsyncExitStack() as stack:
        with contextlib.ExitStack() as starting:
            on_progress = None
            if models:
                words = f"starting Triton with {', '.join(models)};"
                on_progress = starting.enter_context(loading_shown(Console(stderr=True), words))
            system = await stack.enter_async_context(whole_system(settings, folder, models, on_progress))
        address = folder / ADDRESS_FILE
        with writing_address(address, system):
            nats = shown_address(system.nats_url)
            say(f"groundwatch is up: {system.gateway_url}   (NATS {nats}, data {folder})")
            say(f"  send answers   groundwatch submit FILE   or POST {system.gateway_url}/v1/responses")
            if system.triton is not None:
                say(
                    f"  models         {', '.join(system.triton.models)} at {system.triton.url} (gRPC), "
                    f"metrics {system.triton.metrics_url}"
                )
            say("  look           groundwatch watch · groundwatch report · groundwatch audit")
            say("  stop           Ctrl-C")
            try:
                await first_of(until_told_to_stop(), system.bus.until_lost())
            finally:
                say("draining…")


@contextlib.contextmanager
def writing_address(path: Path, system: System):  # type: ignore[no-untyped-def]
    """Lets the other commands on this machine find the system while the block runs."""
    make_folders(path.parent)
    running_now = Running(nats=system.nats_url, gateway=system.gateway_url, pid=os.getpid())
    write_private(path, msgspec.json.encode(running_now))
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def serve(
    stage: Annotated[str, typer.Argument(help=f"One of {', '.join(SERVED)}.")],
    config: ConfigOption = None,
    nats: NatsOption = "",
    metrics_port: Annotated[
        int | None, typer.Option(help="Port of /metrics and health; 0: a free one.")
    ] = None,
    wait: Annotated[
        float, typer.Option(help="Seconds to wait until NATS answers and is provisioned.", min=0)
    ] = 0.0,
) -> None:
    """Run one service: a container's entry point."""
    if stage not in SERVED:
        raise UsageError(f"no service '{stage}'; there are {', '.join(SERVED)}")
    settings = prepare(config, nats)
    if metrics_port is not None:
        settings = settings.model_copy(
            update={"telemetry": settings.telemetry.model_copy(update={"port": metrics_port})}
        )
    if not settings.nats.url:
        raise SettingsError("setting 'nats.url' is needed here: set it, GROUNDWATCH_NATS__URL, or --nats")
    configure_protocols(settings)
    run(_serve(stage, settings, wait))


async def _check_provisioned(stage: str, bus: Bus) -> None:
    """Raises `UsageError` when the server lacks what this service needs, or does not let it ask."""
    try:
        async with bus.unless_refused():
            absent = await missing(bus.js, stage)
    except (nats.errors.Error, TimeoutError) as error:
        raise UsageError(f"NATS does not tell what is provisioned ({error!r}): is JetStream on?") from error
    if absent:
        raise UsageError(f"not provisioned ({', '.join(absent)} missing): run groundwatch provision first")


async def _provisioned(stage: str, settings: Settings, wait: float) -> Bus:
    """A connection to a server that holds what this service needs, waited for `wait` seconds."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + wait
    told = ""
    while True:
        bus = Bus(settings.nats, name=stage)
        try:
            await bus.connect()
            await _check_provisioned(stage, bus)
            return bus
        except UsageError as error:
            await bus.close()
            if clock() >= deadline:
                raise
            if told != (told := str(error)):
                logger.info("serve.waiting", service=stage, reason=told)
        except BaseException:
            await bus.close()
            raise
        await asyncio.sleep(WAIT_PAUSE)


async def _serve(stage: str, settings: Settings, wait: float) -> None:
    # From the start: the first process of a container ignores SIGTERM until somebody handles it.
    told = asyncio.create_task(until_told_to_stop())
    try:
        while True:
            bus = await _unless(told, _provisioned(stage, settings, wait))
            try:
                if bus is None or await _serve_on(bus, stage, settings, told) is None:
                    logger.info("serve.stopped", service=stage)
                return
            except TransientError as error:
                if not wait:
                    raise
                logger.warning("serve.waiting", service=stage, reason=str(error))
    finally:
        told.cancel()
        await asyncio.gather(told, return_exceptions=True)


async def _unless(told: asyncio.Task[None], work: Coroutine[Any, Any, T]) -> T | None:
    """What the work gives; None, and the work given up, where we are told to stop before it is done."""
    task = asyncio.create_task(work)
    await asyncio.wait((told, task), return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        return task.result()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return None


async def _serve_on(bus: Bus, stage: str, settings: Settings, told: asyncio.Task[None]) -> Service | None:
    """The service that ran until we were told to stop; None where that came before it had started."""
    metrics = metrics_for(settings)
    metrics.not_stored.set_function(lambda: len(bus.storage.problems()))
    service = make_service(stage, settings, bus, metrics)
    problems: Callable[[], list[str]] = service.problems
    telemetry = telemetry_server(
        metrics,
        problems,
        lambda: bus.lost,
        host=settings.telemetry.host,
        port=settings.telemetry.port,
        hosts=settings.telemetry.hosts,
    )
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(bus.close)
        await telemetry.start()
        stack.push_async_callback(telemetry.stop, 2)
        logger.info("telemetry.started", service=stage, port=telemetry.port)
        if not await _unless(told, _entered(stack, running([service], bus))):
            return None
        await first_of(told, bus.until_lost())
    return service


async def _entered(stack: contextlib.AsyncExitStack, context: AbstractAsyncContextManager[None]) -> bool:
    await stack.enter_async_context(context)
    return True


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.command("up")(up)
    app.command("serve")(serve)
