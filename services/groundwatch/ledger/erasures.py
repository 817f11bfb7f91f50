"""What an erasure tells the ledger: which pairs it removes, so that their days' lines stay true."""

import contextlib
import secrets
from collections.abc import Iterable, Sequence

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
from groundwatch.topology.partitions import kind_of, partition_of_stream

TOGETHER = 5_000
"""Pairs in one message, or a few more: those of a response are in the same one."""


class ErasureEntries:
    """Of one erasure, whose tombstone has this `name`: says what goes before it goes, and that it is gone.

    A response is named with all of its outcomes, hot or cold, before the first of these messages is removed:
    wherever the erasure dies, the response is in its day's line as a whole, or out of it.
    """

    def __init__(self, js: JetStreamContext, name: str, partitions: int = 1) -> None:
        self._parts = [_Entries(js, name, partition) for partition in range(partitions)]

    async def start(self) -> None:
        """Take over what an erasure of the same said that died before it was done."""
        for part in self._parts:
            await part.start()

    def note(self, stream: str, message: Read) -> None:
        """Remember a message that is to be erased, from the stream or from the archive."""
        self._parts[partition_of_stream(stream)].note(kind_of(stream), message)

    async def say(self, keys: Iterable[str] | None = None) -> None:
        """Say that what was noted goes now: of these responses, or all."""
        for part in self._parts:
            await part.say(keys)

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
        self._responses: dict[str, Recorded] = {}
        self._outcomes: dict[str, dict[str, tuple[Outcome, int]]] = {}
        self._others: list[int] = []
        self._places: dict[str, tuple[int, int]] = {}
        """Sequence and day of a response, which its later outcomes are named with too."""
        self._open: dict[str, ErasedPairs] = {}
        self._noted: set[tuple[str, int]] = set()

    async def start(self) -> None:
        store = await LedgerStore.open(self._js, self._partition)
        if store is None:
            return
        for name, entries in (await store.erased()).items():
            if name.startswith(f"{store.erasure}.{self._name}.") and not entries.done:
                self._open[name] = entries
                self._noted |= {(RESPONSES, sequence) for sequence in entries.others}
                for one in entries.pairs:
                    self._noted |= {(RESPONSES, one.recorded), (OUTCOMES, one.outcome)}

    def note(self, stream: str, message: Read) -> None:
        if stream not in (RESPONSES, OUTCOMES) or (stream, message.sequence) in self._noted:
            return
        self._noted.add((stream, message.sequence))
        address = parse_subject(message.subject)
        live = address is not None and address.run == LIVE
        if stream == RESPONSES:
            recorded = recorded_of(message)
            if recorded.protocols and live:
                self._responses[recorded.key] = recorded
                self._places[recorded.key] = (message.sequence, day_of(message.time))
            else:
                self._others.append(message.sequence)
        elif live and (outcome := outcome_of(message)) is not None:
            day = 0
            with contextlib.suppress(*UNDECODED):
                # Where its response has gone before.
                day = day_of(msgspec.json.decode(message.data, type=ResponseScored).recorded_at)
            several = self._outcomes.setdefault(outcome.key, {})
            # The archive has also those whose place a retry has taken.
            if outcome.protocol not in several or several[outcome.protocol][0].sequence < outcome.sequence:
                several[outcome.protocol] = (outcome, day)

    async def say(self, keys: Iterable[str] | None) -> None:
        pairs: list[ErasedPair] = []
        for key in list(self._responses.keys() | self._outcomes.keys()) if keys is None else keys:
            pairs += self._pairs(key)
            if len(pairs) >= TOGETHER:
                await self._write(pairs)
                pairs = []
        while self._others or pairs:
            others, self._others = self._others[:TOGETHER], self._others[TOGETHER:]
            await self._write(pairs, others)
            pairs = []

    def _pairs(self, key: str) -> list[ErasedPair]:
        """All of a response that is not said yet."""
        response, outcomes = self._responses.pop(key, None), self._outcomes.pop(key, {})
        pairs: list[ErasedPair] = []
        for protocol in dict.fromkeys((*(response.protocols if response else ()), *outcomes)):
            outcome, day = outcomes.get(protocol, (None, 0))
            sequence, day = self._places.get(key, (0, day))
            pairs.append(
                ErasedPair(
                    pair=pair_hash(protocol, key),
                    day=day,
                    recorded=sequence,
                    outcome=outcome.sequence if outcome else 0,
                    kind=outcome.kind if outcome else "",
                    reason=outcome.reason if outcome else "",
                    replaced=outcome.replaced if outcome else "",
                    first=response is not None and not pairs,
                )
            )
        return pairs

    async def _write(self, pairs: Sequence[ErasedPair], others: Sequence[int] = ()) -> None:
        store = await LedgerStore.open(self._js, self._partition)
        if store is None:
            return
        entries = ErasedPairs(tuple(pairs), others=tuple(others))
        name = f"{store.erasure}.{self._name}.{secrets.token_hex(8)}"
        await store.say(name, entries)
        self._open[name] = entries

    async def finish(self) -> None:
        store = await LedgerStore.open(self._js, self._partition) if self._open else None
        if store is not None:
            for name, entries in self._open.items():
                await store.say(name, msgspec.structs.replace(entries, done=True))
        self._open.clear()
