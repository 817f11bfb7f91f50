"""What an erasure tells the ledger: which pairs it removes, so that their days' lines stay true."""

import contextlib
import secrets
from collections.abc import Iterable, Mapping

import msgspec
from nats.js import JetStreamContext

from groundwatch.errors import UNDECODED
from groundwatch.events import LIVE, ResponseScored
from groundwatch.ledger.lines import day_of, pair_hash
from groundwatch.ledger.reading import outcome_of, recorded_of
from groundwatch.ledger.state import ErasedPair, ErasedPairs, Outcome, Recorded
from groundwatch.ledger.store import LedgerStore
from groundwatch.runtime.delivery.streams import Read
from groundwatch.topology import OUTCOMES, RESPONSES, parse_subject
from groundwatch.topology.partitions import kind_of, partition_of_stream, stream_in

TOGETHER = 5_000
"""Pairs in one message."""


class ErasureEntries:
    """Of one erasure, whose tombstone has this `name`: says what goes before it goes, and that it is gone."""

    def __init__(self, js: JetStreamContext, name: str, partitions: int = 1) -> None:
        self._parts = [_Entries(js, name, partition) for partition in range(partitions)]

    async def start(self) -> None:
        """Take over what an erasure of the same said that died before it was done."""
        for part in self._parts:
            await part.start()

    def note(self, stream: str, message: Read) -> None:
        """Remember a message that is to be erased."""
        self._parts[partition_of_stream(stream)].note(kind_of(stream), message)

    async def say(self, removed: Mapping[str, Iterable[int]]) -> None:
        """Say that the noted messages with these sequences, by stream, are removed now."""
        for partition, part in enumerate(self._parts):
            kinds = (stream_in(RESPONSES, partition), stream_in(OUTCOMES, partition))
            await part.say(*(removed.get(stream, ()) for stream in kinds))

    async def finish(self) -> None:
        """Say that the messages of all of them are gone."""
        for part in self._parts:
            await part.finish()


class _Entries:
    """Those of one partition."""

    def __init__(self, js: JetStreamContext, name: str, partition: int) -> None:
        self._js = js
        self._name = name
        self._partition = partition
        self._responses: dict[int, Recorded] = {}
        self._others: set[int] = set()
        self._outcomes: dict[int, tuple[Outcome, int]] = {}
        self._days: dict[str, int] = {}
        self._open: dict[str, ErasedPairs] = {}
        self._said: set[tuple[str, int]] = set()

    async def start(self) -> None:
        store = await LedgerStore.open(self._js, self._partition)
        if store is None:
            return
        for name, entries in (await store.erased()).items():
            if name.startswith(f"{store.erasure}.{self._name}.") and not entries.done:
                self._open[name] = entries
                self._said |= {(RESPONSES, sequence) for sequence in entries.others}
                for one in entries.pairs:
                    self._said |= {(RESPONSES, one.recorded), (OUTCOMES, one.outcome)}

    def note(self, stream: str, message: Read) -> None:
        address = parse_subject(message.subject)
        if (stream, message.sequence) in self._said:
            return
        live = address is not None and address.run == LIVE
        if stream == RESPONSES:
            recorded = recorded_of(message)
            if recorded.protocols and live:
                self._responses[message.sequence] = recorded
                self._days[recorded.key] = day_of(message.time)
            else:
                self._others.add(message.sequence)
        elif not live:
            return
        elif stream == OUTCOMES and (outcome := outcome_of(message)) is not None:
            day = 0
            with contextlib.suppress(*UNDECODED):
                # Where its response has gone before.
                day = day_of(msgspec.json.decode(message.data, type=ResponseScored).recorded_at)
            self._outcomes[message.sequence] = (outcome, day)

    async def say(self, responses: Iterable[int], outcomes: Iterable[int]) -> None:
        """Say that the noted messages with these sequences are removed now: from the streams, or from the
        archive when it alone has them."""
        pairs: dict[tuple[str, str], ErasedPair] = {}
        others = []
        for sequence in responses:
            if sequence in self._others:
                others.append(sequence)
            recorded = self._responses.pop(sequence, None)
            self._said.add((RESPONSES, sequence))
            for place, protocol in enumerate(dict.fromkeys(recorded.protocols) if recorded else ()):
                assert recorded is not None
                pairs[recorded.key, protocol] = ErasedPair(
                    pair=pair_hash(protocol, recorded.key),
                    day=self._days[recorded.key],
                    recorded=sequence,
                    first=place == 0,
                )
        for sequence in outcomes:
            if sequence not in self._outcomes:
                continue
            outcome, day = self._outcomes.pop(sequence)
            self._said.add((OUTCOMES, sequence))
            name = (outcome.key, outcome.protocol)
            alone = ErasedPair(
                pair=pair_hash(outcome.protocol, outcome.key), day=self._days.get(outcome.key, day)
            )
            pairs[name] = msgspec.structs.replace(
                pairs.get(name, alone),
                outcome=sequence,
                kind=outcome.kind,
                reason=outcome.reason,
                replaced=outcome.replaced,
            )
        several = list(pairs.values())
        most = max(len(several), len(others))
        store = await LedgerStore.open(self._js, self._partition) if most else None
        for at in range(0, most, TOGETHER) if store is not None else ():
            assert store is not None
            own, beside = several[at : at + TOGETHER], others[at : at + TOGETHER]
            entries = ErasedPairs(tuple(own), others=tuple(beside))
            name_of = f"{store.erasure}.{self._name}.{secrets.token_hex(8)}"
            await store.say(name_of, entries)
            self._open[name_of] = entries

    async def finish(self) -> None:
        store = await LedgerStore.open(self._js, self._partition) if self._open else None
        if store is not None:
            for name, entries in self._open.items():
                await store.say(name, msgspec.structs.replace(entries, done=True))
        self._open.clear()
