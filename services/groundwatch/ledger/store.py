"""The ledger's state in its bucket, and what erasures say there of pairs that they remove.

A state that is too large for one message lies in several parts, which are there before what names them. Of
two auditors that read at the same time the first to write wins; what the other has read is read again.

An erasure writes which pairs it removes before it removes their messages, and that it is done afterwards. So
an audit that reads the streams, then what erasures say, and only then counts, has each pair in its line or
out of it, whatever it met of its messages.
"""

import secrets
import time
import zlib
from collections.abc import Iterable

import msgspec
import nats.js.errors
from nats.js import JetStreamContext
from nats.js.kv import KeyValue

from groundwatch.errors import UNDECODED
from groundwatch.ledger.state import FORMAT, ErasedPairs, State
from groundwatch.runtime.delivery.streams import read_stream
from groundwatch.topology import LEDGER_BUCKET

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
    """The bucket, on a server that has one. Everything raises what NATS raises."""

    def __init__(self, js: JetStreamContext, bucket: KeyValue, partition: int = 0) -> None:
        self._js = js
        self._bucket = bucket
        mine = f"-p{partition}" if partition else ""
        self._state, self._part = f"state{mine}", f"part{mine}"
        self.erasure = f"erased{mine}"
        self._revision = 0
        self._name = ""

    @classmethod
    async def open(cls, js: JetStreamContext, partition: int = 0) -> "LedgerStore | None":
        """Of one partition. None on a server that was provisioned before there was one."""
        try:
            return cls(js, await js.key_value(LEDGER_BUCKET), partition)
        except nats.js.errors.NotFoundError:
            return None

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
