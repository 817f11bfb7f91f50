"""Commands for budgets of judging: set, changed and removed while everything runs."""

from typing import Annotated

import msgspec
import typer

from groundwatch.cli.options import ConfigOption, JsonOption, NatsOption, client_settings
from groundwatch.cli.output import print_json, say
from groundwatch.gateway.budgets import rules
from groundwatch.gateway.budgets.rules import Budget, BudgetUse
from groundwatch.gateway.budgets.signals import SIGNALS
from groundwatch.system.connecting import connected, run
from groundwatch.terminal import Console, Table, lines


def list_budgets(config: ConfigOption = None, nats: NatsOption = "", as_json: JsonOption = False) -> None:
    """List the budgets, each with what is used of it this minute and today."""
    settings = client_settings(config, nats)

    async def work() -> list[BudgetUse]:
        async with connected(settings, "budget") as bus:
            return await rules.in_use(bus.js)

    told = run(work())
    if as_json:
        print_json({"budgets": [_plain(one) for one in told]})
        return
    console = Console()
    if not told:
        console.print("no budgets: settings alone decide what is judged (gateway.sampling)")
        return
    table = Table(box=None)
    for heading in ("budget", "for", "responses\nthis minute", "tokens\ntoday", "cost\ntoday", "rate"):
        table.add_column(lines(*heading.split("\n")))
    table.add_column("reserve")
    for one in told:
        limits = one.budget
        table.add_row(
            one.name,
            " · ".join(filter(None, limits.scope)) or "everybody",
            _of(f"{one.responses:,}", limits.responses_per_minute),
            _of(f"{one.tokens:,}", limits.tokens_per_day),
            _of(f"${one.cost:,.2f}", limits.cost_per_day),
            "–" if limits.rate is None else f"{limits.rate:g}",
            f"{limits.reserve:.0%} for {', '.join(limits.signals)} ≥ {limits.threshold:g}"
            if limits.reserve
            else "–",
        )
    console.print(table)


def set_budget(
    name: Annotated[str, typer.Argument(help="A name for it, such as acme.", show_default=False)],
    tenant: Annotated[str, typer.Option(help="Only this tenant.", show_default=False)] = "",
    model: Annotated[str, typer.Option(help="Only this model.", show_default=False)] = "",
    protocol: Annotated[str, typer.Option(help="Only this protocol.", show_default=False)] = "",
    responses_per_minute: Annotated[
        int | None, typer.Option(help="Responses judged a minute.", show_default=False)
    ] = None,
    tokens_per_day: Annotated[
        int | None, typer.Option(help="Tokens of judges a day (UTC).", show_default=False)
    ] = None,
    cost_per_day: Annotated[
        float | None, typer.Option(help="US dollars a day (UTC).", show_default=False)
    ] = None,
    rate: Annotated[
        float | None, typer.Option(help="At most this share, 0 to 1.", show_default=False)
    ] = None,
    salt: Annotated[str, typer.Option(help="For the hash that draws.", show_default=False)] = "",
    reserve: Annotated[float, typer.Option(help="Share of each limit kept for suspicious responses.")] = 0.0,
    signal: Annotated[
        list[str] | None,
        typer.Option(help=f"What makes one suspicious: {', '.join(SIGNALS)}.", show_default=False),
    ] = None,
    threshold: Annotated[float, typer.Option(help="From which signal on, 0 to 1.")] = 0.5,
    config: ConfigOption = None,
    nats: NatsOption = "",
    as_json: JsonOption = False,
) -> None:
    """Set a budget, or replace the one of this name; every gateway keeps to it within a second."""
    wanted = Budget(
        tenant=tenant,
        model=model,
        protocol=protocol,
        responses_per_minute=responses_per_minute,
        tokens_per_day=tokens_per_day,
        cost_per_day=cost_per_day,
        rate=rate,
        salt=salt,
        reserve=reserve,
        signals=tuple(dict.fromkeys(signal or ())),
        threshold=threshold,
    )
    rules.check(name, wanted)
    settings = client_settings(config, nats)

    async def work() -> bool:
        async with connected(settings, "budget") as bus:
            return await rules.put(bus.js, name, wanted)

    new = run(work())
    if as_json:
        print_json({"name": name, "new": new, **msgspec.to_builtins(wanted)})
    else:
        say(f"budget {name} {'set' if new else 'changed'}")


def remove_budget(
    name: Annotated[str, typer.Argument(help="Its name, from `admin budget list`.", show_default=False)],
    config: ConfigOption = None,
    nats: NatsOption = "",
    as_json: JsonOption = False,
) -> None:
    """Remove a budget: what it was about is judged as the settings say."""
    settings = client_settings(config, nats)

    async def work() -> None:
        async with connected(settings, "budget") as bus:
            await rules.remove(bus.js, name)

    run(work())
    if as_json:
        print_json({"name": name, "removed": True})
    else:
        say(f"budget {name} removed")


def _plain(one: BudgetUse) -> dict[str, object]:
    used = {"responses": one.responses, "tokens": one.tokens, "cost": one.cost}
    return {"name": one.name, **msgspec.structs.asdict(one.budget), "used": used}


def _of(used: str, limit: float | None) -> str:
    return "–" if limit is None else f"{used} of {limit:,}"
