"""`groundwatch compare`: two runs side by side."""

from pathlib import Path
from typing import Annotated

import typer

from groundwatch.cli.options import ConfigOption, FolderOption, JsonOption, NatsOption, client_settings
from groundwatch.cli.output import print_json, say
from groundwatch.errors import UsageError
from groundwatch.reporting.compare.compare import CHANGED
from groundwatch.reporting.compare.html import html_report
from groundwatch.reporting.compare.render import render_comparison
from groundwatch.reporting.compare.result import Comparison
from groundwatch.system.connecting import connected
from groundwatch.system.connecting import run as run_coroutine
from groundwatch.terminal import Console


def compare(
    first: Annotated[str, typer.Argument(metavar="RUN", help="A run; live traffic is `live`.")],
    second: Annotated[str, typer.Argument(metavar="RUN", help="The run that is held against it.")],
    model: Annotated[str, typer.Option(help="Only answers of this model.", show_default=False)] = "",
    tenant: Annotated[str, typer.Option(help="Only of this tenant.", show_default=False)] = "",
    protocol: Annotated[str, typer.Option(help="Only by this protocol.", show_default=False)] = "",
    top: Annotated[int, typer.Option(min=0, help="Most changed responses to name.")] = CHANGED,
    out: Annotated[
        Path | None, typer.Option(help="Write a report with plots (HTML) here.", show_default=False)
    ] = None,
    config: ConfigOption = None,
    nats: NatsOption = "",
    folder: FolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Paired differences of two runs, with intervals and tests."""
    settings = client_settings(config, nats, folder)
    if out is not None and not out.absolute().parent.is_dir():
        raise UsageError(f"{out}: there is no folder {out.absolute().parent}")

    async def work() -> Comparison:
        # Imported only here: the gateway brings its web server along.
        from groundwatch.gateway.comparing import compare as read_and_compare

        async with connected(settings, "compare") as bus:
            return await read_and_compare(
                bus, first, second, model=model, tenant=tenant, protocol=protocol, top=top
            )

    found = run_coroutine(work())
    if out is not None:
        try:
            out.write_text(html_report(found), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{out}: cannot be written ({error.strerror or error})") from error
    if as_json:
        print_json(found)
        return
    render_comparison(found, Console())
    if out is not None:
        say(f"report with plots: {out}")
