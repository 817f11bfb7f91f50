"""The command that prepares NATS: streams and consumers, or users, rights and certificates."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from groundwatch.cli.options import ConfigOption, JsonOption, NatsOption, client_settings
from groundwatch.cli.output import print_json, say
from groundwatch.errors import UsageError
from groundwatch.runtime.delivery.provisioning import provision
from groundwatch.runtime.security.users import SECRETS_FILE, SERVER_FILE, VALUES_FILE, write_auth
from groundwatch.system.connecting import connected, run
from groundwatch.topology import PROVISIONER


def provision_command(
    config: ConfigOption = None,
    nats: NatsOption = "",
    as_json: JsonOption = False,
    auth: Annotated[
        Path | None,
        typer.Option(
            "--auth",
            metavar="DIR",
            help="Write users, rights and seeds for the NATS server into this folder; talks to no server.",
            show_default=False,
        ),
    ] = None,
    tls: Annotated[
        list[str] | None,
        typer.Option(
            "--tls",
            metavar="HOST",
            help="With --auth: also an authority and a certificate for servers of this name or address.",
            show_default=False,
        ),
    ] = None,
    rotate: Annotated[
        list[str] | None,
        typer.Option(
            "--rotate",
            metavar="USER",
            help="With --auth: a new seed for this user; the server takes the former one too.",
            show_default=False,
        ),
    ] = None,
    retire: Annotated[
        list[str] | None,
        typer.Option(
            "--retire",
            metavar="USER",
            help="With --auth: the server takes this user's former seeds no more.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Create streams and consumers, or change them without dropping anything; --auth: users and rights."""
    if auth is not None:
        _write_auth(auth, rotate or [], retire or [], tls or [], as_json)
        return
    if rotate or retire or tls:
        raise UsageError("--tls, --rotate and --retire go with --auth DIR")
    settings = client_settings(config, nats)

    async def work() -> None:
        async with connected(settings, PROVISIONER, user=PROVISIONER) as bus:
            done = await provision(bus.js, replicas=settings.nats.replicas, cache=settings.cache)
        if as_json:
            print_json({one.name: one.change for one in done})
            return
        for one in done:
            say(f"{one.change:<10} {one.kind:<9} {one.name}")

    run(work())


def _write_auth(folder: Path, rotate: list[str], retire: list[str], hosts: list[str], as_json: bool) -> None:
    wrote = write_auth(folder, rotate=rotate, retire=retire, hosts=hosts)
    if as_json:
        print_json({one.path: one.change for one in wrote})
        return
    for one in wrote:
        say(f"{one.change:<10} {one.path}")
    say(f"  server     include {folder / SERVER_FILE} in its configuration, then reload it")
    say("  services   GROUNDWATCH_NATS__NKEY_SEED_FILE and GROUNDWATCH_NATS__TLS_CA for each")
    say(f"  cluster    sh {folder / SECRETS_FILE}; helm upgrade … -f {folder / VALUES_FILE}")


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command("provision")(provision_command)
