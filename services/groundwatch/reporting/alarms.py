"""Alarms over recorded outcomes, as they come: one reading for the gateway, `watch` and `report` alike."""

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from groundwatch.events import AlarmRaised, OutcomeKind, ResponseScored
from groundwatch.reporting.sums import CATEGORIES, OTHER, Facts, Names, NamesState, facts_of, fingerprint
from groundwatch.statistics.alarm import ALL, ModelAlarm, Rule, State, Turn
from groundwatch.statistics.sampling import representative
from groundwatch.times import moment_of

REMEMBERED = 1_000
"""Alarms that are kept to be shown, the latest."""

SAME_FAULT_SECONDS = 3_600.0
"""So far apart, or as long as one took to be noticed, may the beginnings be of alarms of one fault."""


class Raised(msgspec.Struct, kw_only=True):
    """An alarm as it is known by now: with its end, once it has ended. `earlier`: by a rule not in use."""

    alarm: AlarmRaised
    earlier: bool = False

    @property
    def recovered_at(self) -> float | None:
        return self.alarm.recovered_at


class Watched(msgspec.Struct):
    """One model under one protocol and one set of judges; `latest` is when its latest outcome was scored."""

    run: str
    model: str
    protocol: str
    fingerprint: str
    series: ModelAlarm
    latest: float = 0.0


class AlarmsState(msgspec.Struct, frozen=True, array_like=True):
    """What alarms have learnt. `raised` names no response and no tenant; `open` has places in it."""

    watched: list[Watched]
    names: NamesState
    raised: list[Raised]
    open: list[tuple[tuple[str, str, str, str, str], int]]


class Alarms:
    """Takes in outcomes in the order of their stream.

    That is nearly the order of recording: outcomes of neighbours overtake each other by as many as are
    judged at once. They are not sorted, because the guarantee holds in any order that does not look at what
    is in the answers, because waiting for stragglers would delay every alarm, and because the stream's
    order alone is the same when it is read again: so a restart finds the same alarms and no others. An
    outcome that takes a dead letter's place counts once, since a dead letter has no facts. Where a budget
    judges suspicious answers likelier than others, only a representative part of them is taken: else a
    change of the budget would look like one of the model.

    At most `most` models are watched, those that come most often and all with an alarm that is raised. One
    that comes again after it was folded is learnt anew.
    """

    def __init__(self, rule: Rule, most: int | None = None) -> None:
        self.rule = rule
        self._names = Names(most, self.alarmed)
        self.watched: dict[tuple[str, str, str, str], Watched] = {}
        self._of_model: dict[tuple[str, str], list[Watched]] = {}
        self.raised: deque[Raised] = deque(maxlen=REMEMBERED)
        self._open: dict[tuple[str, str, str, str, str], Raised] = {}

    def add(self, event: ResponseScored) -> list[Raised]:
        if event.outcome is not OutcomeKind.SCORED or not representative(event.drawn, event.key):
            return []
        facts = facts_of(event)
        if not facts.pop(ALL)[1]:
            return []
        if folded := self._names.add(event.model):
            self._fold(folded)
        key = (event.run, event.model, event.protocol, fingerprint(event.judges))
        found = self.watched.get(key)
        if found is None:
            found = self.watched[key] = Watched(*key, ModelAlarm(self.rule))
            self._of_model.setdefault((event.model, event.protocol), []).append(found)
        found.latest = max(found.latest, event.scored_at)
        turns = found.series.add(event.recorded_at, _bounded(facts, found.series))
        return [self._turned((*key, category), turn, event) for category, turn in turns]

    def state(self) -> AlarmsState:
        """What is needed to go on from here; to be encoded before anything is added."""
        # One may be open and yet no longer among the latest.
        latest = {id(one) for one in self.raised}
        raised = [*(one for one in self._open.values() if id(one) not in latest), *self.raised]
        places = {id(one): place for place, one in enumerate(raised)}
        return AlarmsState(
            list(self.watched.values()),
            self._names.state(),
            [_anonymous(one) for one in raised],
            [(key, places[id(one)]) for key, one in self._open.items()],
        )

    def restore(self, state: AlarmsState, known: Mapping[tuple[str, str, str, float], AlarmRaised]) -> None:
        """Go on from there. `known` are alarms as they were announced, by `named`."""
        self.watched, self._of_model = {}, {}
        for watched in state.watched:
            self.watched[watched.run, watched.model, watched.protocol, watched.fingerprint] = watched
            self._of_model.setdefault((watched.model, watched.protocol), []).append(watched)
        self._names.restore(state.names)
        for one in state.raised:
            if told := known.get(named(one.alarm)):
                whose = {"response_id": told.response_id, "tenant": told.tenant}
                one.alarm = msgspec.structs.replace(one.alarm, **whose)
        self.raised = deque(state.raised, maxlen=REMEMBERED)
        self._open = {key: state.raised[place] for key, place in state.open}

    @property
    def folded(self) -> int:
        """How many models are not watched any more, or were not for a time."""
        return self._names.folded

    def models(self) -> Collection[tuple[str, str]]:
        return self._of_model.keys()

    def alarmed(self) -> set[str]:
        return {key[1] for key in self._open}

    def _fold(self, models: Collection[str]) -> None:
        for key in [key for key in self.watched if key[1] in models]:
            del self.watched[key]
            self._of_model.pop((key[1], key[2]), None)

    def _turned(self, key: tuple[str, str, str, str, str], turn: Turn, event: ResponseScored) -> Raised:
        if turn.raised:
            raised = Raised(alarm=_alarm(key[4], key[3], turn, event, self.rule))
            self.raised.append(raised)
            self._open[key] = raised
        else:
            raised = self._open.pop(key)
            end = {"recovered_at": turn.at.time, "recovered_response": turn.at.number}
            raised.alarm = msgspec.structs.replace(raised.alarm, **end)
        return raised

    def rows(self) -> list[dict[str, Any]]:
        """Every alarm, the oldest first, with `recovered_at` and `recovered_response`: None while raised."""
        return [msgspec.structs.asdict(one.alarm) for one in self.raised]

    def to_dict(self) -> dict[str, Any]:
        """`alarms` as `rows` has them, the `rule`, and what is `watched` with its base and state.

        `progress` is how much of the evidence for the next turn is there, on a logarithmic scale; `folded`
        how many models were too many to be watched.
        """
        return {
            "alarms": self.rows(),
            "folded": self.folded,
            "rule": msgspec.to_builtins(self.rule),
            "watched": [
                {name: getattr(one, name) for name in ("run", "model", "protocol", "fingerprint")}
                | {"category": category, "state": series.state.value}
                | {name: getattr(series, name) for name in ("base", "responses", "progress")}
                for one in self.watched.values()
                for category, series in sorted(one.series.series.items())
            ],
        }

    def raised_now(self, model: str, protocol: str, *, since: float = 0.0) -> dict[str, int]:
        """How many alarms are raised for each category, one for each set of judges.

        Only of what has had an outcome after `since`: of a model that answers no more, none is.
        """
        counts: dict[str, int] = {}
        for one in self._of_model.get((model, protocol), ()):
            for category, series in one.series.series.items():
                raised = series.state is State.RAISED and one.latest >= since
                counts[category] = counts.get(category, 0) + raised
        return counts


def named(alarm: AlarmRaised) -> tuple[str, str, str, float]:
    """What tells one alarm from all others."""
    return alarm.run, alarm.protocol, alarm.key, alarm.raised_at


def kind_of(alarm: AlarmRaised) -> tuple[str, ...]:
    """What is watched together: of one kind, one alarm follows the other."""
    return alarm.run, alarm.protocol, alarm.model, alarm.category, alarm.fingerprint


def faults(raised: Iterable[Raised]) -> list[list[Raised]]:
    """Alarms by fault, the latest fault first. One fault raises an alarm in several categories: the one over
    all facts comes first, where there is one, then those that rose most."""
    found: dict[tuple[str, ...], list[list[Raised]]] = {}
    for one in raised:
        alarm = one.alarm
        several = found.setdefault((alarm.run, alarm.protocol, alarm.model, alarm.fingerprint), [])
        last = several[-1][0].alarm if several else alarm
        apart = max(SAME_FAULT_SECONDS, last.raised_at - last.since)
        if not several or abs(last.since - alarm.since) >= apart:
            several.append([])
        several[-1].append(one)
    every = [sorted(fault, key=_leading) for several in found.values() for fault in several]
    return sorted(every, key=lambda fault: -fault[0].alarm.raised_at)


def _leading(one: Raised) -> tuple[bool, float]:
    return one.alarm.category != ALL, (one.alarm.before or 0.0) - one.alarm.after


def _anonymous(raised: Raised) -> Raised:
    return Raised(alarm=msgspec.structs.replace(raised.alarm, response_id="", tenant=""))


def tell(raised: Raised) -> str:
    one = raised.alarm
    facts = "facts" if one.category == "all" else f"{one.category} facts"
    before = "" if one.before is None else f"{one.before:.1%} → "
    line = (
        f"{one.model} · {one.protocol}: {before}{one.after:.1%} of {facts} not in the image since "
        f"{moment(one.since)} (its response {one.since_response}); raised {moment(one.raised_at)}, "
        f"{one.raised_response - one.since_response + 1} responses later"
    )
    return line + (f"; over since {moment(raised.recovered_at)}" if raised.recovered_at is not None else "")


def moment(seconds: float) -> str:
    """A time in UTC, to the second; where there is none, a dash."""
    return f"{moment_of(seconds):%Y-%m-%d %H:%M:%S}Z" if seconds > 0 else "–"


def _bounded(facts: Mapping[str, Facts], watched: ModelAlarm) -> dict[str, Facts]:
    """(refuted, decided) facts; those of categories that are too many to be told apart counted together."""
    room = CATEGORIES - len(watched.series)
    found: dict[str, Facts] = {}
    for category, (refuted, decided) in facts.items():
        name = category
        if category not in watched.series and category not in found:
            name, room = (category, room - 1) if room > 0 else (OTHER, room)
        before = found.get(name, (0, 0))
        found[name] = (before[0] + refuted, before[1] + decided)
    return found


def _alarm(category: str, judges: str, turn: Turn, event: ResponseScored, rule: Rule) -> AlarmRaised:
    return AlarmRaised(
        **{name: getattr(event, name) for name in ("model", "protocol", "tenant", "run")},
        **{name: getattr(turn, name) for name in ("base", "before", "after", "learnt")},
        category=category,
        # Answers are not always judged in the order in which they were recorded.
        since=min(turn.since.time, turn.at.time),
        since_response=turn.since.number,
        raised_at=turn.at.time,
        raised_response=turn.at.number,
        response_id=event.id,
        fingerprint=judges,
        responses=rule.responses,
    )
