"""Any service of the system, made from settings; and run in this process: the main process of a container."""

import asyncio
import contextlib
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from typing import TYPE_CHECKING

import nats.errors

from groundwatch.archive.cold import cold_events
from groundwatch.archive.images import archived_images
from groundwatch.archive.place import installed
from groundwatch.errors import TransientError, UsageError, words
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.provisioning import missing, partitions_there
from groundwatch.runtime.services.run import observed, running, stopping
from groundwatch.runtime.services.service import Service
from groundwatch.runtime.services.tasks import first_of, unless
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.settings.reading import with_second_judge
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.runtime.telemetry.server import telemetry_server
from groundwatch.topology import GATEWAY

if TYPE_CHECKING:
    from groundwatch.gateway.answers import Index

STAGES = (
    "gateway",
    "extraction",
    "captioning",
    "generation",
    "matching",
    "verification",
    "scoring",
    "archive",
    "outflow",
    "annotation",
)
"""Services of `groundwatch up`."""

SERVED = (*STAGES, "replay")
"""Services that may have processes of their own."""


def make_service(
    name: str, settings: Settings, bus: Bus, metrics: Metrics, *, in_one_process: bool = False
) -> Service:
    """The service of this name. Imported only when wanted: a light one must not pay for a heavy one.

    `in_one_process` says that all services are in this one.
    """
    if name not in SERVED:
        raise UsageError(f"no service '{name}'; there are {', '.join(SERVED)}")
    more: list[object] = []
    if name == "gateway":
        from groundwatch.replay.service import ReplayManager, RunGauges

        more = [ReplayManager(settings), RunGauges(bus, metrics.replay), answer_index(settings)]
    if name == "annotation" and settings.second_opinion.judge:
        more = [_second_opinions(settings, bus, metrics)]
    made = getattr(import_module(f"groundwatch.{name}.service"), f"{name.title()}Service")
    named = {"in_one_process": in_one_process} if name == "archive" else {}
    service: Service = made(settings, bus, metrics, *more, **named)
    metrics.ready.labels(name).set_function(lambda: not service.problems())
    return service


def _second_opinions(settings: Settings, bus: Bus, metrics: Metrics) -> object:
    """The judge of `[second_opinion]`: a verification engine that is asked outside of its stage. Raises
    `SettingsError` where settings name no judge that can give another opinion."""
    from groundwatch.annotation.second_opinion import SecondOpinions
    from groundwatch.events import OpinionAsked
    from groundwatch.verification.engines import build

    chosen, protocols = with_second_judge(settings)
    made = SecondOpinions(chosen, bus, metrics, protocols)
    engine = build(
        chosen.verification,
        load_image=made.load_image,
        on_call=made.count_request,
        visual=chosen.visual,
        triton=chosen.triton,
        detector=chosen.detector,
    )
    stage = chosen.verification.model_copy(update={"concurrency": settings.second_opinion.concurrency})
    made.consume(OpinionAsked, made.handle, stage, engine)
    return made


def answer_index(settings: Settings) -> "Index | None":
    """In what answers are found, where the packages for it are installed."""
    if not installed():
        return None
    from groundwatch.archive.answers import AnswerIndex

    return AnswerIndex(settings.archive, settings.telemetry.version_tags)


def metrics_for(settings: Settings) -> Metrics:
    return Metrics(max_labels=settings.telemetry.max_labels, version_tags=settings.telemetry.version_tags)


WAIT_PAUSE = 1.0


async def serve(stage: str, settings: Settings, wait: float) -> None:
    """Run the service until SIGTERM; wait so many seconds for NATS, also when it goes away later."""
    # From the start: the first process of a container ignores SIGTERM until somebody handles it.
    async with stopping() as stopped:
        while True:
            bus = await unless(stopped, _provisioned(stage, settings, wait))
            try:
                if bus is None or await _serve_on(bus, stage, settings, stopped) is None:
                    logger.info("serve.stopped", service=stage)
                return
            except TransientError as error:
                if not wait:
                    raise
                logger.warning("serve.waiting", service=stage, reason=str(error))


async def _check_provisioned(stage: str, bus: Bus) -> None:
    """Raises `UsageError` when the server lacks what this service needs, or does not let it ask."""
    try:
        async with bus.unless_refused():
            absent = await missing(bus.js, stage, bus.partitions)
            # Who records must do so where all others look.
            there = await partitions_there(bus.js) if stage == GATEWAY else 0
    except (nats.errors.Error, TimeoutError) as error:
        raise UsageError(
            f"NATS does not say what is provisioned ({words(error)}): is JetStream on?"
        ) from error
    if absent:
        raise UsageError(
            f"not provisioned ({', '.join(absent)} missing): run groundwatch admin provision first"
        )
    if there not in (0, bus.partitions):
        raise UsageError(
            f"the streams were made for {there} partitions, and not for {bus.partitions}: set nats.partitions"
        )


async def _provisioned(stage: str, settings: Settings, wait: float) -> Bus:
    """A connection to a server that holds what this service needs, waited for `wait` seconds."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + wait
    told = ""
    while True:
        bus = Bus(settings.nats, name=stage)
        bus.cold = cold_events(settings.archive)
        bus.cold_images = archived_images(settings.archive)
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


async def _serve_on(bus: Bus, stage: str, settings: Settings, stopped: asyncio.Event) -> Service | None:
    """The service that ran until we were told to stop; None where that came before it had started."""
    metrics = metrics_for(settings)
    service = make_service(stage, settings, bus, metrics)
    problems: Callable[[], list[str]] = service.problems
    telemetry = telemetry_server(
        metrics,
        problems,
        lambda: bus.lost,
        host=settings.telemetry.host,
        port=settings.telemetry.port,
        hosts=settings.telemetry.hosts,
        notes=getattr(service, "notes", tuple),
    )
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(observed(bus, stage, settings, metrics))
        stack.push_async_callback(bus.close)
        await telemetry.start()
        stack.push_async_callback(telemetry.stop, 2)
        logger.info("telemetry.started", service=stage, port=telemetry.port)
        if not await unless(stopped, _entered(stack, running([service], bus))):
            return None
        await first_of(stopped.wait(), bus.until_lost())
    return service


async def _entered(stack: contextlib.AsyncExitStack, context: AbstractAsyncContextManager[None]) -> bool:
    await stack.enter_async_context(context)
    return True
