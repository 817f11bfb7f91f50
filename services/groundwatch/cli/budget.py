"""Commands for budgets of judging: set, changed and removed while everything runs."""

from typing import Annotated

import msgspec
import typer

from groundwatch.cli.options import JsonOption, OnServer
from groundwatch.cli.output import print_json, say
from groundwatch.gateway.budgets import rules
from groundwatch.gateway.budgets.rules import SIGNALS, Budget, BudgetUse
from groundwatch.system.connecting import on_bus
from groundwatch.terminal import Console, Table, lines


def list_budgets(settings: OnServer, as_json: JsonOption = False) -> None:
    """List the budgets, each with what is used of it this minute and today."""
    told = on_bus(settings, lambda bus: rules.in_use(bus.js), "budget")
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


def _budget(
    name: Annotated[str, typer.Argument(help="A name for it, such as acme.")],
    tenant: Annotated[str, typer.Option(help="Only this tenant.")] = "",
    model: Annotated[str, typer.Option(help="Only this model.")] = "",
    protocol: Annotated[str, typer.Option(help="Only this protocol.")] = "",
    responses_per_minute: Annotated[int | None, typer.Option(help="Responses judged a minute.")] = None,
    tokens_per_day: Annotated[int | None, typer.Option(help="Tokens of judges a day (UTC).")] = None,
    cost_per_day: Annotated[float | None, typer.Option(help="US dollars a day (UTC).")] = None,
    rate: Annotated[float | None, typer.Option(help="At most this share, 0 to 1.")] = None,
    salt: Annotated[str, typer.Option(help="For the hash that draws.")] = "",
    reserve: Annotated[float, typer.Option(help="Share of each limit kept for suspicious responses.")] = 0.0,
    signal: Annotated[
        list[str] | None, typer.Option(help=f"What makes one suspicious: {', '.join(SIGNALS)}.")
    ] = None,
    threshold: Annotated[float, typer.Option(help="From which signal on, 0 to 1.")] = 0.5,
) -> tuple[str, Budget]:
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
    return name, wanted


def set_budget(
    budget: Annotated[tuple[str, Budget], _budget], settings: OnServer, as_json: JsonOption = False
) -> None:
    """Set a budget, or replace the one of this name; every gateway keeps to it within a second."""
    name, wanted = budget
    new = on_bus(settings, lambda bus: rules.put(bus.js, name, wanted), "budget")
    if as_json:
        print_json({"name": name, "new": new, **msgspec.to_builtins(wanted)})
    else:
        say(f"budget {name} {'set' if new else 'changed'}")


def remove_budget(
    settings: OnServer,
    name: Annotated[str, typer.Argument(help="Its name, from `admin budget list`.")],
    as_json: JsonOption = False,
) -> None:
    """Remove a budget: what it was about is judged as the settings say."""
    on_bus(settings, lambda bus: rules.remove(bus.js, name), "budget")
    print_json({"name": name, "removed": True}) if as_json else say(f"budget {name} removed")


def _plain(one: BudgetUse) -> dict[str, object]:
    used = {"responses": one.responses, "tokens": one.tokens, "cost": one.cost}
    return {"name": one.name, **msgspec.structs.asdict(one.budget), "used": used}


def _of(used: str, limit: float | None) -> str:
    return "–" if limit is None else f"{used} of {limit:,}"
