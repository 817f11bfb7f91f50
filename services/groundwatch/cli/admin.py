"""`groundwatch admin`: NATS and its users prepared, settings looked at, models for Triton, budgets."""

import os
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from groundwatch.addresses import concealed, without_secrets
from groundwatch.archive.place import SWITCHED_OFF
from groundwatch.cli.messages import complain, print_json, say
from groundwatch.cli.options import Configured, OnServer
from groundwatch.errors import SettingsError, UsageError
from groundwatch.gateway import budgets
from groundwatch.gateway.budgets import Budget, BudgetUse
from groundwatch.judging.cost import ENDPOINTS, SHARES, engine_in_use, price, watching
from groundwatch.models.repository import write_repository
from groundwatch.protocols import registry
from groundwatch.runtime.delivery.provisioning import provision
from groundwatch.runtime.security.users import SECRETS_FILE, SERVER_FILE, VALUES_FILE, write_auth
from groundwatch.runtime.settings import held_at_once
from groundwatch.runtime.settings.reading import read, with_second_judge
from groundwatch.runtime.telemetry import logs
from groundwatch.system.connecting import on_bus, run, with_archive
from groundwatch.system.settings_check import ENGINES, ask_endpoints, named_engine
from groundwatch.system.settings_check import check_settings as checked
from groundwatch.system.up import named_models
from groundwatch.terminal import Console, Table, lines
from groundwatch.topology import PROVISIONER


def provision_command(settings: OnServer, *, as_json: bool = False) -> None:
    """Create streams and consumers, or change them without dropping anything; safe to repeat."""
    replicas, partitions = settings.nats.replicas, settings.nats.partitions
    cache, held = settings.cache, held_at_once(settings)
    archived = with_archive(settings).archive.url not in ("", SWITCHED_OFF)
    done = on_bus(
        settings,
        lambda bus: provision(
            bus.js,
            replicas=replicas,
            partitions=partitions,
            cache=cache,
            held=held,
            archived=archived,
        ),
        PROVISIONER,
        PROVISIONER,
    )
    if as_json:
        print_json({one.name: one.change for one in done})
        return
    for one in done:
        say(f"{one.change:<10} {one.kind:<9} {one.name}")


def auth(
    folder: Path,
    *,
    tls: list[str] | None = None,
    tenant: list[str] | None = None,
    rotate: list[str] | None = None,
    retire: list[str] | None = None,
    partitions: int = 1,
    as_json: bool = False,
) -> None:
    """Write users, rights and seeds for the NATS server into a folder; talks to no server."""
    wrote = write_auth(
        folder,
        rotate=rotate or [],
        retire=retire or [],
        hosts=tls or [],
        tenants=tenant or [],
        partitions=partitions,
    )
    if as_json:
        print_json({one.path: one.change for one in wrote})
        return
    for one in wrote:
        say(f"{one.change:<10} {one.path}")
    say(f"  server     include {folder / SERVER_FILE} in its configuration, then reload it")
    say("  services   GROUNDWATCH_NATS__NKEY_SEED_FILE and GROUNDWATCH_NATS__TLS_CA for each")
    say(f"  cluster    sh {folder / SECRETS_FILE}; helm upgrade … -f {folder / VALUES_FILE}")


def models(folder: Path, *, models: str, as_json: bool = False) -> None:
    """Write a model repository for a Triton that runs elsewhere."""
    found = named_models(models)
    write_repository(folder, found)
    if as_json:
        print_json(found)
        return
    for name, model in found.items():
        say(f"{name:<16} {model.kind:<14} {model.told}")


def check_settings(
    file: Path | None = None,
    *,
    stage: list[str] | None = None,
    offline: bool = False,
    as_json: bool = False,
) -> None:
    """Read the file and the environment as services do, and tell every problem: exit status 2 with any.

    Each model behind an endpoint is asked once whether it sees images, gives log-probabilities, and thinks.
    """
    logs.configure(level="error")
    stages = tuple(stage or ENGINES)
    if unknown := [name for name in stages if name not in ENGINES]:
        raise UsageError(f"no stage '{unknown[0]}' with engines; there are {', '.join(ENGINES)}")
    reading = read(file, os.environ)
    problems = reading.problems
    run(checked(reading.settings, os.environ, stages, problems))
    ask = not (offline or problems.found)
    abilities = run(ask_endpoints(reading.settings, stages)) if ask else {}
    engines = {name: named_engine(reading.settings, name) for name in stages}
    judges = reading.settings.verification.judges() if "verification" in stages else {}
    own = sorted({one.own for one in registry.own_prompts(reading.settings.prompts.folder).values()} - {""})
    if as_json:
        print_json(
            {
                "ok": not problems.found,
                "file": str(reading.source) if reading.source else None,
                "problems": [concealed(problem) for problem in problems.found],
                "notes": [concealed(note) for note in problems.notes],
                "engines": engines,
                "judges": judges,
                "endpoints": {key: msgspec.to_builtins(one) for key, one in abilities.items()},
                "own_prompts": own,
            }
        )
    elif not problems.found:
        say(f"settings are right: {reading.source or 'no file'}, {len(reading.variables)} variables")
        say("engines: " + ", ".join(f"{name} {engine}" for name, engine in engines.items()))
        if judges:
            say("judges: " + ", ".join(f"{name} {engine}" for name, engine in judges.items()))
        for key, one in abilities.items():
            say(f"endpoint {key}: {one.model} {concealed(one.told)}")
        if own:
            say(f"prompts: own: {', '.join(own)}")
        for note in problems.notes:
            say(f"note: {concealed(note)}")
    else:
        for problem in problems.found:
            complain(problem)
    if problems.found:
        raise typer.Exit(2)


def show_settings(file: Path | None = None, *, as_json: bool = False) -> None:
    """What is set, and by which file or variable; as JSON also all that is effective. No secrets."""
    reading = read(file, os.environ)
    if reading.problems.found:
        raise SettingsError(*reading.problems.found)
    given = {key: (without_secrets(value, key), origin) for key, (value, origin) in reading.given.items()}
    if as_json:
        print_json(
            {
                "file": str(reading.source) if reading.source else None,
                "set": {key: {"value": value, "from": origin} for key, (value, origin) in given.items()},
                "effective": without_secrets(reading.settings.model_dump(mode="json")),
            }
        )
        return
    for key, (value, origin) in given.items():
        say(f"{key} = {msgspec.json.encode(value).decode()}   ({origin})")
    say("all else is default")


def list_budgets(settings: OnServer, *, as_json: bool = False) -> None:
    """List the budgets, each with what is used of it today."""
    told = on_bus(settings, lambda bus: budgets.in_use(bus.js), "budget")
    if as_json:
        print_json({"budgets": [_plain(one) for one in told]})
        return
    console = Console()
    if not told:
        console.print("no budgets: settings alone decide what is judged (gateway.sampling)")
        return
    table = Table(box=None)
    for heading in (
        "budget",
        "for",
        "responses a minute,\neach gateway",
        "tokens\ntoday",
        "cost\ntoday",
        "rate",
    ):
        table.add_column(lines(*heading.split("\n")))
    for one in told:
        limits = one.budget
        table.add_row(
            one.name,
            " · ".join(filter(None, limits.scope)) or "everybody",
            "–" if limits.responses_per_minute is None else f"{limits.responses_per_minute:,}",
            _of(f"{one.tokens:,}", limits.tokens_per_day),
            _of(f"${one.cost:,.2f}", limits.cost_per_day),
            "–" if limits.rate is None else f"{limits.rate:g}",
        )
    console.print(table)


def _budget(
    name: str,
    *,
    tenant: str = "",
    model: str = "",
    protocol: str = "",
    responses_per_minute: int | None = None,
    tokens_per_day: int | None = None,
    cost_per_day: float | None = None,
    rate: float | None = None,
    salt: str = "",
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
    )
    budgets.check(name, wanted)
    return name, wanted


def set_budget(
    budget: Annotated[tuple[str, Budget], _budget], settings: OnServer, *, as_json: bool = False
) -> None:
    """Set a budget, or replace the one of this name; every gateway keeps to it within a second."""
    name, wanted = budget
    new = on_bus(settings, lambda bus: budgets.put(bus.js, name, wanted, bus.partitions), "budget")
    if as_json:
        print_json({"name": name, "new": new, **msgspec.to_builtins(wanted)})
    else:
        say(f"budget {name} {'set' if new else 'changed'}")


def remove_budget(settings: OnServer, name: str, *, as_json: bool = False) -> None:
    """Remove a budget: what it was about is judged as the settings say."""
    on_bus(settings, lambda bus: budgets.remove(bus.js, name, bus.partitions), "budget")
    print_json({"name": name, "removed": True}) if as_json else say(f"budget {name} removed")


def _plain(one: BudgetUse) -> dict[str, object]:
    used = {"tokens": one.tokens, "cost": one.cost}
    return {"name": one.name, **msgspec.structs.asdict(one.budget), "used": used}


def _of(used: str, limit: float | None) -> str:
    return "–" if limit is None else f"{used} of {limit:,}"


def cost(
    settings: Configured,
    *,
    rate: float = 1.0,
    facts: float = 12.0,
    first: str = "",
    second: str = "",
    share: list[float] | None = None,
    wrong: float = 0.12,
    right: float = 0.95,
    alike: float = 0.1,
    as_json: bool = False,
) -> None:
    """What watching costs, by the share with a second opinion: GPUs, money, how well the rate is known."""
    if any(not 0 <= one <= 1 for one in share or ()):
        raise UsageError("--share: must be from 0 to 1")
    judges, strong, llm = settings.verification, "", settings.verification.llm
    protocol = registry.get(next(iter(settings.gateway.protocols or registry.names())))
    if settings.second_opinion.judge:
        strong_settings, _ = with_second_judge(settings)
        section = strong_settings.verification.of(protocol)
        strong, llm = engine_in_use(strong_settings, section.engine), section.llm or llm
    first = first or engine_in_use(settings, judges.of(protocol).engine)
    second = second or strong or "verifier-7b"
    if second in ENDPOINTS and llm is None:
        raise UsageError(f"--second {second}: no endpoint is set, so no price is known: set verification.llm")
    rows = watching(
        price(first, facts, settings, judges.of(protocol).llm or judges.llm),
        price(second, facts, settings, llm),
        share or SHARES,
        rate=rate,
        facts=facts,
        wrong=wrong,
        right=right,
        alike=alike,
    )
    if as_json:
        print_json({"first": first, "second": second, "rows": msgspec.to_builtins(rows)})
        return
    say(f"{rate:g} answers/s of {facts:g} facts: {first} judges all, {second} the share")
    table = Table(box=None)
    for heading in (
        "share",
        "GPU-s/answer",
        "GPUs",
        "of answering",
        "$/day",
        "opinions/day",
        "rate ±",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        known = "unknown" if row.points is None else f"{row.points:.2f} points"
        table.add_row(
            *(f"{row.share:.0%}", f"{row.seconds:.4f}", f"{row.gpus:.2f}", f"{row.of_answering:.0%}"),
            *(f"{row.dollars:,.2f}" if row.dollars else "–", f"{row.opinions:,.0f}", known),
        )
    Console().print(table)
