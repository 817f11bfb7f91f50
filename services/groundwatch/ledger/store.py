"""The ledger's state in its bucket, and what erasures say there of pairs that they remove.

A state that is too large for one message lies in several parts, which are there before what names them. Of
two auditors that read at the same time the first to write wins; what the other has read is read again.

An erasure writes which pairs it removes before it removes their messages, and that it is done afterwards. So
an audit that reads the streams, then what erasures say, and only then counts, has each pair in its line or
out of it, whatever it met of its messages.
"""

import contextlib
import secrets
import time
import zlib
from collections.abc import Iterable, Sequence

import msgspec
import nats.js.errors
from nats.js import JetStreamContext
from nats.js.kv import KeyValue

from groundwatch.errors import UNDECODED
from groundwatch.events import LIVE, ResponseScored
from groundwatch.ledger.reading import outcome_of, recorded_of
from groundwatch.ledger.state import (
    FORMAT,
    ErasedPair,
    ErasedPairs,
    Outcome,
    Recorded,
    State,
    day_of,
    pair_hash,
)
from groundwatch.runtime.delivery.streams import Read, read_stream
from groundwatch.topology import LEDGER_BUCKET, OUTCOMES, RESPONSES, parse_subject
from groundwatch.topology.partitions import kind_of, partition_of_stream

STREAM = f"KV_{LEDGER_BUCKET}"
_SUBJECT = f"$KV.{LEDGER_BUCKET}"
_PART_BYTES = 512 * 1024
_PART_SECONDS = 3_600.0
"""After which parts that no state names are of an auditor that died before it was done."""

_TRIES = 3


class _Head(msgspec.Struct, frozen=True):
    """What stands under the state's name: the state itself, or where its parts are."""

    format: int
    data: bytes = b""
    parts: int = 0
    name: str = ""


class LedgerStore:
    """The bucket. Everything raises what NATS raises."""

    def __init__(self, js: JetStreamContext, bucket: KeyValue, partition: int = 0) -> None:
        self._js = js
        self._bucket = bucket
        mine = f"-p{partition}" if partition else ""
        self._state, self._part = f"state{mine}", f"part{mine}"
        self.erasure = f"erased{mine}"
        self._revision = 0
        self._name = ""

    @classmethod
    async def open(cls, js: JetStreamContext, partition: int = 0) -> "LedgerStore":
        """Of one partition."""
        return cls(js, await js.key_value(LEDGER_BUCKET), partition)

    async def load(self) -> State | str | None:
        """The last state saved; None before there was one, or why it cannot be used."""
        for _ in range(_TRIES):
            try:
                entry = await self._bucket.get(self._state)
            except nats.js.errors.KeyNotFoundError as error:
                # Where somebody has removed it, what is saved next takes the place of that.
                self._revision = (error.entry.revision or 0) if error.entry is not None else 0
                return None
            self._revision = entry.revision or 0
            try:
                head = msgspec.msgpack.decode(entry.value or b"", type=_Head)
                if head.format != FORMAT:
                    return f"its state has format {head.format}, and this version writes {FORMAT}"
                self._name = head.name
                parts = [await self._bucket.get(f"{self._part}.{head.name}.{n}") for n in range(head.parts)]
                data = head.data or b"".join(part.value or b"" for part in parts)
                return msgspec.msgpack.decode(zlib.decompress(data), type=State)
            except nats.js.errors.KeyNotFoundError:
                # Another auditor has written a newer one meanwhile.
                continue
            except (*UNDECODED, zlib.error) as error:
                return f"its state cannot be read: {error}"
        return "parts of its state are missing"

    async def save(self, state: State) -> bool:
        """Write the state over the one that was loaded; False when another auditor was first."""
        data = zlib.compress(msgspec.msgpack.encode(state), 1)
        head = _Head(FORMAT, data)
        room = min(_PART_BYTES, self._js._nc.max_payload // 2)
        if len(data) > room:
            name = f"{time.time():.0f}-{secrets.token_hex(8)}"
            pieces = [data[at : at + room] for at in range(0, len(data), room)]
            for number, piece in enumerate(pieces):
                await self._bucket.put(f"{self._part}.{name}.{number}", piece)
            head = _Head(FORMAT, parts=len(pieces), name=name)
        try:
            encoded = msgspec.msgpack.encode(head)
            self._revision = await self._bucket.update(self._state, encoded, self._revision or None)
            written = True
        except nats.js.errors.KeyWrongLastSequenceError:
            written = False
        stale, self._name = (self._name, head.name) if written else (head.name, self._name)
        await self._clear_parts(stale)
        return written

    async def _clear_parts(self, stale: str) -> None:
        old = time.time() - _PART_SECONDS
        for subject in await self._subjects(f"{self._part}.>"):
            name = subject.split(".")[3]
            if name == stale or (name != self._name and float(name.partition("-")[0]) < old):
                await self._js.purge_stream(STREAM, subject=subject)

    async def say(self, name: str, erased: ErasedPairs) -> None:
        """Write what an erasure says, under a name that begins with `erasure`."""
        await self._bucket.put(name, msgspec.msgpack.encode(erased))

    async def erased(self) -> dict[str, ErasedPairs]:
        """What erasures have said and is not counted in the state yet."""
        if not await self._subjects(f"{self.erasure}.>"):
            return {}
        return {
            read.subject.removeprefix(f"{_SUBJECT}."): msgspec.msgpack.decode(read.data, type=ErasedPairs)
            async for read in read_stream(self._js, STREAM, subjects=(f"{_SUBJECT}.{self.erasure}.>",))
            if read.data
        }

    async def forget(self, names: Iterable[str]) -> None:
        """Remove what erasures said, once it is counted in a state that is saved."""
        for name in names:
            await self._js.purge_stream(STREAM, subject=f"{_SUBJECT}.{name}")

    async def _subjects(self, family: str) -> list[str]:
        info = await self._js.stream_info(STREAM, subjects_filter=f"{_SUBJECT}.{family}")
        return list(info.state.subjects or ())


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
        entries = ErasedPairs(tuple(pairs), others=tuple(others))
        name = f"{store.erasure}.{self._name}.{secrets.token_hex(8)}"
        await store.say(name, entries)
        self._open[name] = entries

    async def finish(self) -> None:
        if self._open:
            store = await LedgerStore.open(self._js, self._partition)
            for name, entries in self._open.items():
                await store.say(name, msgspec.structs.replace(entries, done=True))
        self._open.clear()
