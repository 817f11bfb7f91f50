"""`groundwatch export`: a stretch of what was recorded, in one file that can be replayed elsewhere."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from groundwatch.cli.options import ConfigOption, DataDirOption, JsonOption, NatsOption, client_settings
from groundwatch.cli.output import print_json
from groundwatch.errors import UsageError
from groundwatch.events import LIVE
from groundwatch.replay.files import Manifest
from groundwatch.replay.spec import Spec
from groundwatch.system.connecting import connected, run
from groundwatch.terminal import Console, TaskProgressColumn, progress
from groundwatch.times import read_moment, shown_moment


def export(
    out: Annotated[Path, typer.Option(help="The file to write.", show_default=False)],
    since: Annotated[str, typer.Option(help="From when on: 2026-03-01, 24h, 7d.", show_default=False)] = "",
    until: Annotated[str, typer.Option(help="Until when, exclusive.", show_default=False)] = "",
    model: Annotated[
        list[str] | None, typer.Option(help="Only answers of this model; repeatable.", show_default=False)
    ] = None,
    tenant: Annotated[
        list[str] | None, typer.Option(help="Only of this tenant; repeatable.", show_default=False)
    ] = None,
    ids: Annotated[str, typer.Option(help="Only these responses: ids by commas.", show_default=False)] = "",
    sample: Annotated[int, typer.Option(min=0, help="So many responses, by hash.", show_default=False)] = 0,
    seed: Annotated[int, typer.Option(help="Another seed chooses another sample.")] = 0,
    stage: Annotated[
        str,
        typer.Option(
            "--from", help="What goes into this stage: extraction (responses), verification, …, scoring."
        ),
    ] = "extraction",
    source: Annotated[str, typer.Option(help="The run whose events are exported.")] = LIVE,
    allow_gap: Annotated[
        bool, typer.Option("--allow-gap", help="Export what is left where retention has removed a part.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
    config: ConfigOption = None,
    nats: NatsOption = "",
    folder: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write recorded events with their images to a file; replay it with `groundwatch replay --file`."""
    from groundwatch.replay.exporting import export as write

    settings = client_settings(config, nats, folder)
    now = time.time()
    if out.exists() and not force:
        raise UsageError(f"{out} is there already: name another file, or write over it with --force")
    spec = Spec(
        run="export",
        source=source,
        stage=stage,
        since=read_moment(since, "--since", now) if since else 0.0,
        until=read_moment(until, "--until", now) if until else 0.0,
        models=tuple(model or ()),
        tenants=tuple(tenant or ()),
        ids=tuple(filter(None, (one.strip() for one in ids.split(",")))),
        sample=sample,
        seed=seed,
    )
    spec.check()

    async def work() -> Manifest:
        bar = progress(TaskProgressColumn(), quiet=as_json)
        async with connected(settings, "export") as bus:
            with bar:
                task = bar.add_task("export", total=1.0)
                return await write(
                    bus.js,
                    spec,
                    out,
                    allow_gap=allow_gap,
                    on_progress=lambda share: bar.update(task, completed=share),
                )

    manifest = run(work())
    size = out.stat().st_size
    if as_json:
        print_json(msgspec.to_builtins(manifest) | {"file": str(out), "bytes": size})
        return
    left = "".join(
        f", {number:,} {what}"
        for number, what in (
            (manifest.missing_images, "images were stored no more"),
            (manifest.unreadable, "events could not be read and were left out"),
        )
        if number
    )
    between = (
        f", recorded {shown_moment(manifest.first)} to {shown_moment(manifest.last)}"
        if manifest.events
        else ""
    )
    Console().print(
        f"{out}: {manifest.events:,} events and {manifest.images:,} images in {size:,} bytes{between}{left}",
        soft_wrap=True,
    )


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command("export")(export)
