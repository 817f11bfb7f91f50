"""Alarms: a list, and one at a permanent address, with the answers that moved it and what was different."""

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from groundwatch.errors import GroundwatchError, words
from groundwatch.events import AlarmRaised, Decision, OutcomeKind, ResponseScored
from groundwatch.gateway.auth import Need
from groundwatch.gateway.core import GatewayCore
from groundwatch.gateway.http.requests import Route, caller_of, form_of, is_json, json
from groundwatch.gateway.live.alarms import Acknowledgements, key_of
from groundwatch.gateway.pages.painting import marked_sentence
from groundwatch.gateway.pages.rendering import Pages, address, decimal, percent, scale_top, whole
from groundwatch.gateway.refusals import Refused
from groundwatch.keys import home_key, response_key
from groundwatch.reporting.alarms import Raised, faults
from groundwatch.reporting.sums import facts_of
from groundwatch.reporting.trends import merged_trend
from groundwatch.reviews.corrected import RateTable
from groundwatch.reviews.queues import Queues, check_reviewer
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.history import last_before
from groundwatch.runtime.delivery.streams import FAULTS, Read, announced_alarms, decoded
from groundwatch.statistics.alarm import ALL
from groundwatch.statistics.intervals import Interval
from groundwatch.statistics.sampling import WeightedSums, weight, weighted_rate
from groundwatch.topology import OUTCOMES, run_subjects, subject_of
from groundwatch.topology.partitions import partition_of_subject, stream_in, subjects_in

READ = 1_500
"""Outcomes of the protocol, of all models, that are read before the turn, and behind it."""

LENGTHS = {"up to 25 words": 0, "26 to 75": 26, "more": 76}
"""Words of short, middling and long answers, at least."""

_SCORED = msgspec.json.Decoder(ResponseScored)


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """A model's answers in a stretch of time, from `first` to `last` (when they were recorded).

    `versions`, `judges` and `tenants` count answers; `words` is their mean length, `lengths` the shares of
    those with at least so many words as `LENGTHS` says; `rate` is that of facts of the alarm's category.
    """

    answers: int
    first: float
    last: float
    rate: Interval | None
    versions: dict[str, int]
    judges: dict[str, int]
    tenants: dict[str, int]
    words: float | None
    lengths: tuple[float, ...]
    unscored: int

    @property
    def per_hour(self) -> float | None:
        """None of a burst: a few answers in no time tell nothing of an hour."""
        seconds = self.last - self.first
        return 3600 * (self.answers - 1) / seconds if seconds >= 60 and self.answers >= 10 else None


class WrongAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer with facts of the alarm's category that are not in its image, by sentence."""

    event: ResponseScored
    sentences: list[tuple[str, list[str]]]
    refuted: int
    decided: int


class Around(msgspec.Struct, frozen=True, kw_only=True):
    before: Traffic
    after: Traffic
    wrong_before: list[WrongAnswer]
    wrong_after: list[WrongAnswer]


async def read_around(
    bus: Bus, alarm: AlarmRaised, version_of: Callable[[Mapping[str, str]], str], most: int = 12
) -> Around:
    """Before the turn and from there to the alarm, of each the `most` answers with the most wrong facts.

    Raises what NATS and the archive raise.
    """
    before: list[ResponseScored] = []
    after: list[ResponseScored] = []
    history = bus.history.of_one_partition
    share = max(50, READ // bus.partitions)
    raised = await _raising(bus, alarm)
    for partition in range(bus.partitions):
        stream = stream_in(OUTCOMES, partition)
        turn = await last_before(history, stream, alarm.since)
        first, last = turn - share + 1, turn + share
        if raised is not None:
            here = partition == partition_of_subject(raised.subject)
            end = raised.sequence if here else await last_before(history, stream, raised.time)
            # What is judged long after it was recorded does not lie where its time says.
            first, last = (end - 2 * share, end) if not 0 < turn <= end else (first, min(last, end))
        reading = history.read(
            stream,
            subjects=subjects_in([run_subjects("outcome", alarm.run, alarm.protocol)], partition),
            start_sequence=max(1, first),
            last_sequence=last,
        )
        async with contextlib.aclosing(reading):
            async for read in reading:
                event = decoded(_SCORED, read)
                if event is None or event.model != alarm.model:
                    continue
                if event.recorded_at < alarm.since:
                    before.append(event)
                elif event.recorded_at <= alarm.raised_at:
                    after.append(event)
    return Around(
        before=_traffic(before, alarm.category, version_of),
        after=_traffic(after, alarm.category, version_of),
        wrong_before=_wrong(before, alarm.category, most),
        wrong_after=_wrong(after, alarm.category, most),
    )


async def _raising(bus: Bus, alarm: AlarmRaised) -> Read | None:
    """The outcome that raised the alarm, where it is known which."""
    if not alarm.response_id:
        return None
    key = home_key(response_key(alarm.tenant, alarm.response_id), bus.partitions)
    return await bus.history.last(OUTCOMES, subject_of("outcome", alarm.run, alarm.protocol, key))


def _traffic(
    events: Sequence[ResponseScored], category: str, version_of: Callable[[Mapping[str, str]], str]
) -> Traffic:
    facts = WeightedSums()
    versions: Counter[str] = Counter()
    judges: Counter[str] = Counter()
    tenants: Counter[str] = Counter()
    for event in events:
        versions[version_of(event.tags)] += 1
        tenants[event.tenant] += 1
        if event.outcome is not OutcomeKind.SCORED:
            continue
        for stage, judge in sorted(event.judges.items()):
            judges[f"{stage}: {judge.model or judge.engine} ({judge.fingerprint})"] += 1
        facts.add(*facts_of(event).get(category, (0, 0)), weight(event.drawn))
    scored = [event for event in events if event.outcome is OutcomeKind.SCORED]
    times = [event.recorded_at for event in events]
    words = tuple(event.answer_words for event in scored)
    return Traffic(
        answers=len(events),
        first=min(times, default=0.0),
        last=max(times, default=0.0),
        rate=weighted_rate(facts),
        versions=dict(versions.most_common(6)),
        judges=dict(judges.most_common(6)),
        tenants=dict(tenants.most_common(6)),
        words=sum(words) / len(words) if words else None,
        lengths=_shares(words),
        unscored=len(events) - len(scored),
    )


def _shares(words: Sequence[int]) -> tuple[float, ...]:
    found = Counter(sum(number >= start for start in LENGTHS.values()) for number in words)
    return tuple(found[place] / len(words) for place in range(1, len(LENGTHS) + 1)) if words else ()


def _wrong(events: Sequence[ResponseScored], category: str, most: int) -> list[WrongAnswer]:
    """Those with the most wrong facts of the category; of equals the latest."""
    found = []
    for event in events:
        wrong = [
            claim
            for claim in event.claims
            if claim.decision is Decision.REFUTED and category in (ALL, claim.category)
        ]
        if not wrong:
            continue
        by_unit: dict[int, list[str]] = {}
        for claim in wrong:
            by_unit.setdefault(claim.unit, []).append(claim.text)
        sentences = [
            (event.units[unit].text.strip() if 0 <= unit < len(event.units) else texts[0], texts)
            for unit, texts in sorted(by_unit.items())
        ]
        decided = sum(
            claim.decision is not Decision.UNDECIDED and category in (ALL, claim.category)
            for claim in event.claims
        )
        found.append(WrongAnswer(event=event, sentences=sentences, refuted=len(wrong), decided=decided))
    found.sort(key=lambda one: (-one.refuted, -one.event.recorded_at))
    return found[:most]


LISTED = 200

NOT_READ = (*FAULTS, GroundwatchError)

_DECODER = msgspec.json.Decoder(AlarmRaised)


Side = dict[str, str] | str
Change = tuple[str, Side, Side, bool]
"""What stood one way before a turn and another way after it; true where that is no chance matter."""


class AlarmPages:
    def __init__(self, core: GatewayCore, pages: Pages) -> None:
        self._core = core
        self._pages = pages
        self._notes = Acknowledgements(core.bus)
        self._queues = Queues(core.bus)

    def routes(self) -> list[Route]:
        route = self._pages.route
        return [
            *self._pages.both("/alarms", self.list_alarms, Need("viewer", "the list of alarms")),
            route("/alarms/{key}", self.one_alarm, Need("viewer", "an alarm", page=True)),
            route("/alarms/{key}/acknowledge", self.acknowledge, Need("reviewer", "an alarm"), ["POST"]),
        ]

    async def list_alarms(self, request: Request) -> Response:
        """Which model got worse, in which category, since when, and whether second opinions say so too; and
        what is watched."""
        live = self._core.live
        watched = live.alarms()
        if is_json(request):
            await self._core.corrections.add_to(watched["alarms"], live.raised)
            return json(watched, headers={"Cache-Control": "no-store"})
        try:
            notes = await self._notes.by_key()
        except NOT_READ:
            notes = {}
        return self._pages.render(
            request,
            "alarms.html",
            open=faults(one for one in live.raised if one.recovered_at is None),
            over=faults(one for one in live.raised if one.recovered_at is not None)[:LISTED],
            seen_of=lambda fault: sorted(
                (note for one in fault for note in notes.get(key_of(one.alarm), ())), key=lambda note: note.at
            ),
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
            notes, unread = [], words(error)
        rose = next(iter(await self._core.corrections.alarms([found], [found, *others])), None)
        corrected = RateTable(await self._core.live.corrected())
        name = (alarm.model, alarm.protocol, alarm.fingerprint)
        versions = [
            one
            for one in await self._core.live.versions()
            if (one.model, one.protocol, one.fingerprint) == name
        ]
        points = merged_trend(one.trend for one in versions).points()
        fault = next((one for one in faults(self._core.live.raised) if found in one), [found])
        sides = (around.before.versions, around.after.versions) if around is not None else ({}, {})
        first, second = (max(side, key=lambda name: side[name], default="") for side in sides)
        queue = f"alarm-{alarm.key[:24]}-{alarm.raised_at:.0f}"
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
            siblings=[one for one in fault if one != found],
            pair=(first, second) if first and second and first != second else None,
            queue=queue,
            has_queue=await self._has_queue(queue),
            number=alarm.raised_response - alarm.since_response + 1,
            now=time.time(),
            marked_sentence=marked_sentence,
        )

    async def _has_queue(self, name: str) -> bool:
        with contextlib.suppress(*NOT_READ):
            return bool(await self._queues.find(name))
        return False

    async def acknowledge(self, request: Request) -> Response:
        form = await form_of(request)
        found, _ = await self._find(request, at=form.get("at", ""))
        by = caller_of(request).name or form.get("by", "")
        if by:
            check_reviewer(by, "by")
        await self._notes.add(found.alarm, by, form.get("note", ""))
        if found.earlier and found.recovered_at is None:
            self._core.live.end(found.alarm)
        to = address(f"/alarms/{found.alarm.key}", at=repr(found.alarm.raised_at))
        return RedirectResponse(to + "#notes" if form.get("note") else to, 303)

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
        """Alarms of this kind as they stand in their stream."""
        found = []
        with contextlib.suppress(*FAULTS):
            async for alarm in announced_alarms(self._core.bus.js):
                if alarm.key == key:
                    found.append(Raised(alarm=alarm))
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
    hourly, words = (before.per_hour, after.per_hour), (before.words, after.words)
    return [
        _counts("Version", before.versions, after.versions),
        _counts("Judges", before.judges, after.judges),
        _counts("Tenants", before.tenants, after.tenants, share=True),
        ("Answers an hour", whole(hourly[0]), whole(hourly[1]), _apart(*hourly, 2.0)),
        ("Words an answer", decimal(words[0], 1), decimal(words[1], 1), _apart(*words, 1.3)),
        ("Length", _mix(before), _mix(after), False),
        ("Not scored", whole(before.unscored), whole(after.unscored), False),
    ]


def _counts(what: str, before: dict[str, int], after: dict[str, int], share: bool = False) -> Change:
    """Counts by name; with `share` names alone do not make a difference, their shares do."""
    totals = (sum(before.values()) or 1, sum(after.values()) or 1)
    differs = bool(before and after) and any(
        abs(before.get(name, 0) / totals[0] - after.get(name, 0) / totals[1]) > (0.2 if share else 0.05)
        for name in {*before, *after}
    )
    shown = [
        {name: f"{whole(number)} answer{'s' if number > 1 else ''}" for name, number in side.items()}
        for side in (before, after)
    ]
    return what, shown[0], shown[1], differs


def _mix(traffic: Traffic) -> dict[str, str]:
    return {name: percent(share, 0) for name, share in zip(LENGTHS, traffic.lengths, strict=False)}


def _apart(before: float | None, after: float | None, times: float) -> bool:
    return bool(before and after) and not 1 / times <= (after or 1) / (before or 1) <= times
