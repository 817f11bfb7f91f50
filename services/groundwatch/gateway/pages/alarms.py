"""Alarms: a list, and one at a permanent address, with the answers that moved it and what was different."""

import msgspec
import nats.js.errors
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from groundwatch.errors import UNDECODED, GroundwatchError
from groundwatch.events import LIVE, AlarmRaised
from groundwatch.gateway.auth import Need
from groundwatch.gateway.core import GatewayCore
from groundwatch.gateway.http.bodies import form_of
from groundwatch.gateway.http.routing import Route, caller_of
from groundwatch.gateway.live.alarms import Acknowledgements, key_of
from groundwatch.gateway.live.around import LENGTHS, Around, Traffic, read_around
from groundwatch.gateway.live.corrections import CorrectedRates
from groundwatch.gateway.pages.rendering import Pages, address
from groundwatch.gateway.pages.showing import scale_top
from groundwatch.gateway.refusals import Refused
from groundwatch.reporting.alarms import Raised
from groundwatch.reporting.trends import merged_trend
from groundwatch.runtime.delivery.streams import FAULTS, read_stream
from groundwatch.topology import ALARMS, run_subjects

LISTED = 200

NOT_READ = (*FAULTS, GroundwatchError)

_DECODER = msgspec.json.Decoder(AlarmRaised)


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What stood one way before a turn and another way after it; `differs` where that is no chance matter."""

    what: str
    before: dict[str, str] | str
    after: dict[str, str] | str
    differs: bool = False


class AlarmPages:
    def __init__(self, core: GatewayCore, pages: Pages) -> None:
        self._core = core
        self._pages = pages
        self._notes = Acknowledgements(core.bus)

    def routes(self) -> list[Route]:
        route = self._pages.route
        return [
            route("/alarms", self.list_alarms, Need("viewer", "the list of alarms", page=True)),
            route("/alarms/{key}", self.one_alarm, Need("viewer", "an alarm", page=True)),
            route("/alarms/{key}/acknowledge", self.acknowledge, Need("reviewer", "an alarm"), ["POST"]),
        ]

    async def list_alarms(self, request: Request) -> Response:
        live = self._core.live
        raised = list(live.raised)[::-1]
        try:
            notes = await self._notes.by_key()
        except NOT_READ:
            notes = {}
        watched = live.alarms()
        return self._pages.render(
            request,
            "alarms.html",
            open=[one for one in raised if one.recovered_at is None],
            over=[one for one in raised if one.recovered_at is not None][:LISTED],
            notes=notes,
            key_of=key_of,
            watched=watched["watched"],
            rule=live.rule,
            complete=watched["complete"],
        )

    async def one_alarm(self, request: Request) -> Response:
        found, others = await self._find(request)
        alarm = found.alarm
        around: Around | None = None
        unread = ""
        try:
            around = await read_around(self._core.bus, alarm, self._core.metrics.version_of)
            notes = await self._notes.of(alarm)
        except NOT_READ as error:
            notes, unread = [], str(error) or repr(error)
        rose = next(iter(await self._core.corrections.alarms([found], [found, *others])), None)
        corrected = CorrectedRates(await self._core.live.corrected())
        name = (alarm.model, alarm.protocol, alarm.fingerprint)
        versions = [
            one
            for one in await self._core.live.versions()
            if (one.model, one.protocol, one.fingerprint) == name
        ]
        points = merged_trend(one.trend for one in versions).points()
        return self._pages.render(
            request,
            "alarm.html",
            found=found,
            alarm=alarm,
            around=around,
            unread=unread,
            changes=_changes(around) if around is not None else [],
            notes=notes,
            others=others,
            points=points,
            top=scale_top([point.rate for point in points]),
            rose=rose,
            corrected=[
                (one.version, row)
                for one in versions
                if (row := corrected.row(*name, version=one.version, category=alarm.category)) is not None
            ],
            siblings=[
                one
                for one in self._core.live.raised
                if (one.alarm.model, one.alarm.protocol, one.alarm.fingerprint) == name
                and one.alarm.category != alarm.category
                and abs(one.alarm.since - alarm.since) < max(3600.0, alarm.raised_at - alarm.since)
            ],
        )

    async def acknowledge(self, request: Request) -> Response:
        form = await form_of(request)
        found, _ = await self._find(request, at=form.get("at", ""))
        await self._notes.add(found.alarm, caller_of(request).name, form.get("note", ""))
        to = address(f"/alarms/{found.alarm.key}", at=repr(found.alarm.raised_at)) + "#notes"
        return RedirectResponse(to, 303)

    async def _find(self, request: Request, at: str = "") -> tuple[Raised, list[Raised]]:
        """The alarm of this address, and others of its kind, the newest first; without `at` the newest."""
        key = request.path_params["key"]
        at = at or request.query_params.get("at", "")
        several = {_place(one.alarm): one for one in await self._announced(key)}
        several |= {_place(one.alarm): one for one in self._core.live.raised if one.alarm.key == key}
        newest = sorted(several.values(), key=lambda one: -one.alarm.raised_at)
        chosen = [one for one in newest if not at or f"{one.alarm.raised_at:.3f}" == _seconds(at)]
        if not chosen:
            raise Refused("not_found", "There is no such alarm, or it was raised before the streams begin.")
        return chosen[0], [one for one in newest if one is not chosen[0]]

    async def _announced(self, key: str) -> list[Raised]:
        """Alarms of this kind as they stand in their stream, whose end is not known."""
        found = []
        try:
            async for read in read_stream(self._core.bus.js, ALARMS, subjects=[run_subjects("alarm", LIVE)]):
                if read.subject.endswith(f".{key}"):
                    try:
                        found.append(Raised(alarm=_DECODER.decode(read.data)))
                    except UNDECODED:
                        continue
        except (nats.js.errors.NotFoundError, *FAULTS):
            return found
        return found


def _place(alarm: AlarmRaised) -> tuple[str, float]:
    return alarm.protocol, alarm.raised_at


def _seconds(text: str) -> str:
    try:
        return f"{float(text):.3f}"
    except ValueError:
        return ""


def _changes(around: Around) -> list[Change]:
    before, after = around.before, around.after
    lengths = ("up to 25 words", "26 to 75", "more") if len(LENGTHS) == 3 else ()
    return [
        _counts("Version", before.versions, after.versions),
        _counts("Judges", before.judges, after.judges),
        _counts("Tenants", before.tenants, after.tenants, share=True),
        Change(
            what="Answers an hour",
            before=_number(before.per_hour),
            after=_number(after.per_hour),
            differs=_apart(before.per_hour, after.per_hour, 2.0),
        ),
        Change(
            what="Words an answer",
            before=_number(before.words, 1),
            after=_number(after.words, 1),
            differs=_apart(before.words, after.words, 1.3),
        ),
        Change(what="Length", before=_mix(lengths, before), after=_mix(lengths, after)),
        Change(what="Not scored", before=f"{before.unscored:,}", after=f"{after.unscored:,}"),
    ]


def _counts(what: str, before: dict[str, int], after: dict[str, int], share: bool = False) -> Change:
    """Counts by name; with `share` names alone do not make a difference, their shares do."""
    totals = (sum(before.values()) or 1, sum(after.values()) or 1)
    differs = bool(before and after) and any(
        abs(before.get(name, 0) / totals[0] - after.get(name, 0) / totals[1]) > (0.2 if share else 0.05)
        for name in {*before, *after}
    )
    return Change(
        what=what,
        before={name: f"{number:,}" for name, number in before.items()},
        after={name: f"{number:,}" for name, number in after.items()},
        differs=differs,
    )


def _mix(names: tuple[str, ...], traffic: Traffic) -> dict[str, str]:
    return {name: f"{share:.0%}" for name, share in zip(names, traffic.lengths, strict=False)}


def _number(value: float | None, digits: int = 0) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


def _apart(before: float | None, after: float | None, times: float) -> bool:
    return bool(before and after) and not 1 / times <= (after or 1) / (before or 1) <= times
