"""`groundwatch up` and `groundwatch serve`: everything here, or one service."""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from groundwatch.addresses import shown_address
from groundwatch.cli.options import ConfigOption, Configured, ModelsOption, NatsOption
from groundwatch.cli.output import loading_shown, say
from groundwatch.errors import SettingsError, UsageError
from groundwatch.models.repository import ServedModel
from groundwatch.protocols import registry
from groundwatch.runtime.services.run import until_told_to_stop
from groundwatch.runtime.services.tasks import first_of
from groundwatch.runtime.settings import Settings
from groundwatch.system.connecting import ADDRESS_FILE, data_dir, prepare, run
from groundwatch.system.models import named_models
from groundwatch.system.services import SERVED
from groundwatch.system.services import serve as run_service
from groundwatch.system.up import prepare_folder, whole_system, writing_address
from groundwatch.terminal import Console


def up(
    settings: Configured,
    port: Annotated[
        int | None, typer.Option(help="Port of the pages and the HTTP intake; 0: a free one.")
    ] = None,
    folder: Annotated[Path | None, typer.Option("--folder", help="Where the streams are kept.")] = None,
    models: ModelsOption = "",
) -> None:
    """Run the whole system on this machine, NATS included, pages at a port; with --models also Triton."""
    if port is not None:
        settings = settings.model_copy(update={"gateway": settings.gateway.model_copy(update={"port": port})})
    if folder is not None:
        settings = settings.model_copy(update={"data_dir": str(folder)})
    served = named_models(models)
    try:
        settings = prepare_folder(settings)
    except UsageError as error:
        raise UsageError(f"{error}: name another folder", "folder") from error
    run(_up(settings, served))


async def _up(settings: Settings, models: Mapping[str, ServedModel]) -> None:
    folder = data_dir(settings)
    async with contextlib.AsyncExitStack() as stack:
        with contextlib.ExitStack() as starting:
            on_progress = None
            if models:
                words = f"starting Triton with {', '.join(models)};"
                on_progress = starting.enter_context(loading_shown(Console(stderr=True), words))
            system = await stack.enter_async_context(whole_system(settings, folder, models, on_progress))
        stack.enter_context(writing_address(folder / ADDRESS_FILE, system))
        nats = shown_address(system.nats_url)
        say(f"groundwatch is up: {system.gateway_url}   (NATS {nats}, data {folder})")
        say(f"  send answers   groundwatch submit FILE   or POST {system.gateway_url}/v1/responses")
        if system.triton is not None:
            say(
                f"  models         {', '.join(system.triton.models)} at {system.triton.url} (gRPC), "
                f"metrics {system.triton.metrics_url}"
            )
        judges = system.settings.verification.by_protocol()
        say(f"  judges         {' · '.join(f'{name} {engine}' for name, engine in judges.items())}")
        say("  look           groundwatch watch · groundwatch report · groundwatch audit")
        say("  stop           Ctrl-C")
        try:
            await first_of(until_told_to_stop(), system.bus.until_lost())
        finally:
            say("draining…")


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
    registry.configure(settings.protocols)
    run(run_service(stage, settings, wait))
