"""Whether everything is accounted for: the ledger, what waits, dead letters, refusals, budgets, NATS; and who
has sent in the last minutes, with the setting that mends what was missing in it."""

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

import msgspec
from prometheus_client.metrics import MetricWrapperBase
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from groundwatch.errors import GroundwatchError, UsageError, words
from groundwatch.gateway.auth import VIEW, Need
from groundwatch.gateway.budgets import in_use
from groundwatch.gateway.core import GatewayCore
from groundwatch.gateway.http.requests import Route, caller_of, is_json, json
from groundwatch.gateway.intake.senders import STRETCH
from groundwatch.gateway.pages.rendering import Pages
from groundwatch.gateway.refusals import Refused
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.dead_letters import DeadLetter, dead_letters, send_again
from groundwatch.runtime.delivery.streams import FAULTS, position_of
from groundwatch.runtime.stores.audits import read_summary
from groundwatch.runtime.stores.losses import losses_by_sender
from groundwatch.topology import DEAD, STAGES

LETTERS = 50
"""Dead letters that are shown, the newest, and that are sent again at once."""

RETRY = Need("operator", "the dead letters")
NOT_READ = (*FAULTS, GroundwatchError)

T = TypeVar("T")


class Stage(msgspec.Struct, kw_only=True):
    """A service with what waits for it. `asking` are calls for more; `missing` consumers are not there."""

    name: str
    waiting: int = 0
    in_work: int = 0
    asking: int = 0
    missing: int = 0


class HealthPage:
    def __init__(self, core: GatewayCore, pages: Pages) -> None:
        self._core = core
        self._pages = pages

    def routes(self) -> list[Route]:
        route = self._pages.route
        return [
            route("/health", self.page, Need("viewer", "the state of everything", page=True)),
            route("/health/dead/{number}/retry", self.retry, RETRY, methods=["POST"]),
            *self._pages.both("/connect", self.list_senders, VIEW),
        ]

    async def page(self, request: Request) -> Response:
        core = self._core
        bus, unread = core.bus, dict[str, str]()

        async def read(what: str, reading: Awaitable[T]) -> T | None:
            try:
                return await reading
            except NOT_READ as error:
                unread[what] = words(error)
                return None

        letters, ledger, losses, budgets = await asyncio.gather(
            read("dead", newest_letters(bus)),
            read("ledger", read_summary(bus.js)),
            read("losses", losses_by_sender(bus.js)),
            read("budgets", in_use(bus.js)),
        )
        return self._pages.render(
            request,
            "health.html",
            problems=core.problems(),
            notes=core.notes(),
            audit=ledger,
            stages=self._stages(),
            letters=letters[0] if letters is not None else [],
            dead=letters[1] if letters is not None else 0,
            refused=_counts(core.metrics.refused),
            losses=losses,
            budgets=budgets,
            servers=sorted(core.nats_monitor.seen.items()) if core.nats_monitor is not None else [],
            away=bus.away,
            partitions=bus.partitions,
            unread=unread,
        )

    async def retry(self, request: Request) -> Response:
        """Send a dead letter again, or with `all` in place of its number the newest ones."""
        number = request.path_params["number"]
        if number == "all":
            chosen, _ = await newest_letters(self._core.bus)
        else:
            if not (number.isascii() and number.isdigit()):
                raise Refused("not_found", "A dead letter has a number.")
            chosen = [await _letter(self._core.bus, int(number))]
        for letter in chosen:
            await send_again(self._core.bus, letter)
        return RedirectResponse("/health#dead", 303)

    async def list_senders(self, request: Request) -> Response:
        """What this gateway knows; others know of what came to them."""
        tenant = caller_of(request).tenant(request.query_params.get("tenant", ""))
        senders = self._core.intake.senders.rows(tenant)
        if is_json(request):
            rows = [msgspec.structs.asdict(one) | {"problems": one.problems} for one in senders]
            return json({"seconds": STRETCH, "senders": rows})
        return self._pages.render(request, "senders.html", senders=senders, seconds=STRETCH, here="/health")

    def _stages(self) -> list[Stage]:
        """In the order in which an answer goes through them."""
        found: dict[str, Stage] = {}
        for name, info in self._core.gauges.seen.values():
            stage = found.setdefault(name, Stage(name=name))
            if info is None:
                stage.missing += 1
            else:
                stage.waiting += info.num_pending or 0
                stage.in_work += info.num_ack_pending or 0
                stage.asking += info.num_waiting or 0
        order = {name: place for place, name in enumerate(("gateway", *STAGES))}
        return sorted(found.values(), key=lambda one: (order.get(one.name, len(order)), one.name))


async def newest_letters(bus: Bus, most: int = LETTERS) -> tuple[list[DeadLetter], int]:
    """The newest dead letters, the newest first, and how many there are. Raises what NATS raises."""
    number = int((await bus.js.stream_info(DEAD)).state.messages)
    last, stretch = (await position_of(bus.js, DEAD)).last, most
    while True:
        first = max(1, last - stretch + 1)
        found = [letter async for letter in dead_letters(bus, first)]
        if len(found) >= most or first == 1:
            return found[-most:][::-1], number
        # Those that were sent again have left gaps.
        stretch *= 4


async def _letter(bus: Bus, number: int) -> DeadLetter:
    async for letter in dead_letters(bus, number):
        if letter.sequence == number:
            return letter
        break
    raise UsageError(f"no dead letter has number {number}: it may have been sent again already")


def _counts(metric: MetricWrapperBase) -> dict[str, int]:
    """A counter's values above 0, by its label."""
    found: dict[str, Any] = {
        " ".join(sample.labels.values()): int(sample.value)
        for family in metric.collect()
        for sample in family.samples
        if sample.name.endswith("_total") and sample.value
    }
    return dict(sorted(found.items(), key=lambda one: -one[1]))
