"""The arithmetic of the ledger: however events come in portions, it says what a count of everything says."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from groundwatch.ledger.state import (
    OUTCOME,
    RECORDED,
    ErasedPair,
    ErasedPairs,
    Line,
    Outcome,
    Recorded,
    State,
    day_of,
    pair_hash,
)
from groundwatch.topology import DAY

PROTOCOLS = ("faithscore", "other")


class World:
    """Two streams as a server keeps them, an erasure in its steps, and an auditor that reads portions."""

    def __init__(self) -> None:
        self.responses: dict[int, Recorded] = {}
        self.outcomes: dict[int, Outcome] = {}
        self.sequences = Counter[str]()
        self.now = 0.4 * DAY
        self.state = State()
        self.said: dict[str, ErasedPairs] = {}
        self.looked: list[tuple[str, list[ErasedPair]]] = []
        self.days: dict[str, int] = {}
        self.erasing: list[tuple[str, str]] = []
        self.erased: set[str] = set()
        self.again: set[str] = set()
        self.gone = Counter[int]()
        self.read: list[Recorded | Outcome] | None = None
        self.reached: dict[str, int] = {}
        self.stage: list[tuple[str, str]] = []
        self.names = 0

    def record(self, key: int, protocols: int) -> None:
        name = f"k{key}"
        if any(one.key == name for one in self.responses.values()) or not self._is_free(name):
            return
        if name in self.erased:
            self.erased.remove(name)
            self.again.add(name)
        asked = PROTOCOLS[: 1 + protocols % 2]
        self.sequences[RECORDED] += 1
        sequence = self.sequences[RECORDED]
        self.responses[sequence] = Recorded(sequence, self.now, name, asked)
        self.days[name] = day_of(self.now)
        self.stage += [(name, protocol) for protocol in asked]

    def _is_free(self, name: str) -> bool:
        """Whether it was never erased, or nothing of it is left and nobody is at it any more."""
        at = (*self.stage, *self.erasing, *self.looked, *((one.key, "") for one in self.outcomes.values()))
        return name not in self.erased or not any(key == name for key, _ in at)

    def judge(self, place: int, kind: int) -> None:
        """A stage publishes an outcome of what it holds, erased or not."""
        if not self.stage:
            return
        key, protocol = self.stage.pop(place % len(self.stage))
        what, reason = (("scored", ""), ("unscored", "dead_letter"), ("declined", "sampled_out"))[kind % 3]
        self._publish(key, protocol, what, reason, "")

    def _publish(self, key: str, protocol: str, kind: str, reason: str, replaced: str) -> None:
        self.sequences[OUTCOME] += 1
        sequence = self.sequences[OUTCOME]
        self.outcomes[sequence] = Outcome(sequence, self.now, key, protocol, kind, reason, replaced)

    def retry(self, place: int) -> None:
        """A dead letter succeeds."""
        dead = [one for one in self.outcomes.values() if one.reason == "dead_letter"]
        if dead:
            one = dead[place % len(dead)]
            del self.outcomes[one.sequence]
            self._publish(one.key, one.protocol, "scored", "", one.reason)

    def glance(self, key: int) -> None:
        """The same where the response lies in an archive that the erasure cannot read, or was removed by
        another: its first outcomes alone are found."""
        self.look(key, alone=True)

    def look(self, key: int, *, alone: bool = False) -> None:
        """The first step of an erasure: to find what there is of a response, whoever erases it as well."""
        name = f"k{key}"
        pairs: dict[str, ErasedPair] = {}
        for response in self.responses.values() if not alone else ():
            for place, protocol in enumerate(response.protocols if response.key == name else ()):
                pairs[protocol] = ErasedPair(
                    pair=pair_hash(protocol, name),
                    day=self.days[name],
                    recorded=response.sequence,
                    first=place == 0,
                )
        for one in self.outcomes.values():
            if one.key == name and not (alone and one.replaced):
                lone = ErasedPair(pair=pair_hash(one.protocol, name), day=self.days[name])
                pairs[one.protocol] = msgspec.structs.replace(
                    pairs.get(one.protocol, lone),
                    outcome=one.sequence,
                    kind=one.kind,
                    reason=one.reason,
                    replaced=one.replaced,
                )
        if pairs:
            self.erased.add(name)
            self.looked.append((name, list(pairs.values())))

    def say(self, place: int) -> None:
        """The second step: to say which pairs go."""
        if self.looked:
            key, gone = self.looked.pop(place % len(self.looked))
            self.names += 1
            self.said[f"e{self.names}"] = ErasedPairs(tuple(gone))
            self.erasing.append((key, f"e{self.names}"))

    def remove(self, place: int) -> None:
        """The third step: the messages go."""
        if self.erasing:
            _, name = self.erasing.pop(place % len(self.erasing))
            entries = self.said.pop(name)
            self._remove(entries.pairs)
            # It is written anew, behind what others have said since.
            self.said[name] = msgspec.structs.replace(entries, done=True)

    def _remove(self, pairs: Iterable[ErasedPair]) -> None:
        for pair in pairs:
            if (gone := self.responses.pop(pair.recorded, None)) is not None:
                self.gone[day_of(gone.time)] += 1
            self.outcomes.pop(pair.outcome, None)

    def die(self, place: int) -> None:
        """An erasure is killed after some of its messages went; another comes later."""
        if self.erasing:
            _, name = self.erasing.pop(place % len(self.erasing))
            self._remove(self.said[name].pairs[: place % 3])

    def tick(self, part: int) -> None:
        self.now += DAY * (part % 5) / 4

    def begin(self, responses: int, outcomes: int) -> None:
        """Read so many of each, which are not counted yet."""
        if self.read is not None:
            return
        self.reached = {
            kind: min(self.sequences[kind], self.state.position(kind) + number)
            for kind, number in ((RECORDED, responses), (OUTCOME, outcomes))
        }
        several: list[Recorded | Outcome] = [
            one
            for kind, messages in ((RECORDED, self.responses), (OUTCOME, self.outcomes))
            for sequence, one in messages.items()
            if self.state.position(kind) < sequence <= self.reached[kind]
        ]
        self.read = sorted(several, key=lambda one: one.time)

    def count(self) -> None:
        if self.read is None:
            return
        moved = self.state.count(self.read, self.reached, dict(self.said), day_of(self.now))
        self.read = None
        for outcome in moved:
            unread = (
                one.key == outcome.key and sequence > self.state.position(RECORDED)
                for sequence, one in self.responses.items()
            )
            self.state.replace(outcome, None if any(unread) else self.days[outcome.key])

    def find_waiting(self) -> None:
        """Look for outcomes of what waits, as `Counting` does: those of an id that was taken again may have
        been read before its response."""
        for one in self.outcomes.values():
            if one.key in self.again and one.sequence <= self.state.position(OUTCOME):
                self.state.settle(pair_hash(one.protocol, one.key), one.kind, one.reason)

    def save(self) -> None:
        """The auditor dies and another goes on from what was saved; what is over is forgotten."""
        self.read = None
        self.state = msgspec.msgpack.decode(msgspec.msgpack.encode(self.state), type=State)
        for name, entries in list(self.said.items()):
            if (
                entries.done
                and name in self.state.applied
                and all(
                    one.recorded <= self.state.position(RECORDED)
                    and one.outcome <= self.state.position(OUTCOME)
                    for one in entries.pairs
                )
            ):
                del self.said[name]


def counted(world: World) -> dict[int, Line]:
    """The lines, counted from all that the streams hold."""
    lines: dict[int, Line] = {}
    days: dict[tuple[str, str], int] = {}
    for one in world.responses.values():
        line = lines.setdefault(day_of(one.time), Line())
        line.responses += 1
        for protocol in one.protocols:
            line.record(pair_hash(protocol, one.key))
            days[one.key, protocol] = day_of(one.time)
    for outcome in world.outcomes.values():
        pair = (outcome.key, outcome.protocol)
        if pair in days:
            lines[days[pair]].outcome(pair_hash(outcome.protocol, outcome.key), outcome.kind, outcome.reason)
    return lines


WEIGHTS = {
    "record": 6,
    "judge": 6,
    "retry": 2,
    "look": 3,
    "glance": 1,
    "say": 2,
    "remove": 2,
    "die": 1,
    "tick": 1,
    "begin": 4,
    "count": 4,
    "save": 1,
}
ARGUMENTS = {"record": 2, "judge": 2, "begin": 2, "count": 0, "save": 0}


@settings(max_examples=1000)
@given(st.integers(0, 2**32))
def test_read_in_portions_it_is_what_the_streams_hold(seed: int) -> None:
    world, chance = World(), random.Random(seed)
    for name in chance.choices(list(WEIGHTS), list(WEIGHTS.values()), k=chance.randint(5, 150)):
        getattr(world, name)(*(chance.randrange(12) for _ in range(ARGUMENTS.get(name, 1))))
    world.count()
    rounds = True
    while rounds:
        # An erasure looks again until it finds nothing.
        for name in world.erased:
            world.look(int(name[1:]))
        rounds = bool(world.looked or world.erasing)
        world.say(0)
        world.remove(0)
    for _ in range(3):
        world.begin(1_000, 1_000)
        world.count()
        world.find_waiting()
        world.save()
    expected = counted(world)
    found = world.state.lines
    for day in expected.keys() | found.keys():
        line = msgspec.structs.replace(expected.get(day, Line()), erased=world.gone[day])
        assert found.get(day, Line()) == line, day
    assert world.state.erased == world.gone.total()
    waiting = {
        pair_hash(protocol, one.key) for one in world.responses.values() for protocol in one.protocols
    } - {pair_hash(one.protocol, one.key) for one in world.outcomes.values()}
    assert set(world.state.waiting) == waiting
    assert not world.state.owed


def test_an_outcome_erased_before_its_response_was_read_takes_nothing_out() -> None:
    state, pair = State(), pair_hash("faithscore", "erased")
    state.count([Recorded(1, 1.0, "stays", ("faithscore",))], {RECORDED: 1}, {}, 0)
    outcome = ErasedPair(pair, 0, outcome=1, kind="scored")
    said = {"hot": ErasedPairs((outcome,))}
    state.count([Recorded(2, 1.0, "erased", ("faithscore",))], {RECORDED: 2, OUTCOME: 1}, said, 0)
    said["cold"] = ErasedPairs((ErasedPair(pair, 0, recorded=2, first=True),))
    state.count([], {}, said, 0)
    (line,) = state.lines.values()
    assert (line.responses, line.recorded, line.scored, line.erased) == (1, 1, 0, 1)


def test_an_id_that_is_taken_again_and_erased_again_between_audits_is_taken_out_twice() -> None:
    state, pair = State(), pair_hash("faithscore", "again")
    first = [
        Recorded(1, 1.0, "again", ("faithscore",)),
        Outcome(1, 1.0, "again", "faithscore", "scored", "", ""),
    ]
    state.count(first, {RECORDED: 1, OUTCOME: 1}, {}, 0)
    said = {
        "once": ErasedPairs((ErasedPair(pair, 0, recorded=1, outcome=1, kind="scored", first=True),)),
        "twice": ErasedPairs((ErasedPair(pair, 0, recorded=2, outcome=2, kind="scored", first=True),)),
    }
    state.count([], {RECORDED: 2, OUTCOME: 2}, said, 0)
    (line,) = state.lines.values()
    assert (line.responses, line.recorded, line.scored, line.erased) == (0, 0, 0, 2)
