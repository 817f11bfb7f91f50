"""Halves of calls that are logged apart, kept in NATS until they can be joined.

They lie in a bucket before they are acknowledged, since the halves of a call may come to different gateways,
in any order, with a crash in between. Each is stored before anybody looks for the others, and joining them
twice adds nothing: both times the call has the same id.

A half is the message `$KV.gw-halves.<family>.<key>.<part>`. Its first line is a JSON object that names its
tenant (none: the default one), so that an erasure finds it; the rest is as it was logged.
"""

import nats.js.errors

from groundwatch.runtime.delivery.bus import Bus, Outgoing, Stored
from groundwatch.runtime.delivery.streams import Read, last_message, read_stream
from groundwatch.topology import HALVES_BUCKET

STREAM = f"KV_{HALVES_BUCKET}"
GONE = (10037, 10043, 10057)
"""JetStream's error codes for a message that is not there."""


class HalvesBucket:
    """The halves of one family, such as `otlp`. What is called raises what NATS raises."""

    def __init__(self, bus: Bus, family: str) -> None:
        self._bus = bus
        self._subjects = f"$KV.{HALVES_BUCKET}.{family}"

    async def put(self, key: str, part: str, head: bytes, body: bytes) -> Stored:
        """Raises `InputError` for what is too large, `TransientError` where it may be stored later."""
        payload = head + b"\n" + body
        return await self._bus.create(Outgoing(subject=self._subject(key, part), payload=payload))

    async def get(self, key: str, part: str) -> Read | None:
        return await last_message(self._bus.js, STREAM, self._subject(key, part))

    async def waiting(self) -> dict[str, dict[str, Read]]:
        """What there is, by key and part, without its content."""
        found: dict[str, dict[str, Read]] = {}
        subjects = (f"{self._subjects}.>",)
        async for read in read_stream(self._bus.js, STREAM, subjects=subjects, headers_only=True):
            key, _, part = read.subject.removeprefix(f"{self._subjects}.").partition(".")
            found.setdefault(key, {})[part] = read
        return found

    async def remove(self, sequence: int) -> bool:
        """Whether it was there: of several gateways one removes it."""
        try:
            return bool(await self._bus.js.delete_msg(STREAM, sequence))
        except nats.js.errors.NotFoundError:
            return False
        except nats.js.errors.APIError as error:
            if error.err_code in GONE:
                return False
            raise

    def _subject(self, key: str, part: str) -> str:
        return f"{self._subjects}.{key}.{part}"


def head_and_body(read: Read) -> tuple[bytes, bytes]:
    head, _, body = read.data.partition(b"\n")
    return head, body
