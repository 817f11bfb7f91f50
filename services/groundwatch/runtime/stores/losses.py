"""What senders lost before it came to a gateway: counts that they report, of each process its newest."""

import re
from collections import Counter
from typing import Annotated

import msgspec
import nats.js.errors
from nats.js import JetStreamContext

from groundwatch.errors import UNDECODED, TransientError
from groundwatch.keys import digest
from groundwatch.runtime.delivery.streams import FAULTS, read_stream
from groundwatch.topology import LOSSES_BUCKET

STREAM = f"KV_{LOSSES_BUCKET}"
SUBJECTS = f"$KV.{LOSSES_BUCKET}.>"
TRIES = 10
MAX_REPORT = 256 * 1024
"""Bytes of a report."""

REASONS = ("full", "unreadable", "too_large", "refused", "gave_up", "exit", "bug")
"""Why our own client drops a response, as its metric names them; what others say is `other` there."""

OTHER = "other"
MOST_SENDERS, MOST_REASONS = 200, 40
"""Senders that are told of one by one, and reasons of each: anybody may call them anything."""

OTHERS = "all other senders"

_TOKEN = 16
Number = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Reason = Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9_]{0,31}$")]


class Unconfirmed(msgspec.Struct, frozen=True, kw_only=True):
    """A response that a sender gave up without an answer, so that it may be recorded."""

    id: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
    tenant: Annotated[str, msgspec.Meta(max_length=256)] = ""
    reason: Reason


class LossReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one process of a sender has lost since it began, by reason.

    The counts only grow, and `sequence` with them: a report that comes again, or late, changes nothing.
    Those `unconfirmed` are not in `lost`: they count if they are not recorded.
    """

    sender: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    process: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    sequence: Number
    lost: Annotated[dict[Reason, Number], msgspec.Meta(max_length=32)]
    unconfirmed: Annotated[tuple[Unconfirmed, ...], msgspec.Meta(max_length=1_000)] = ()


_DECODER = msgspec.json.Decoder(LossReport)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def read_report(data: bytes) -> LossReport | str:
    """The report, or what is wrong with it."""
    try:
        report = _DECODER.decode(data)
    except UNDECODED as error:
        return str(error)
    if _CONTROL.search(report.sender):
        return "Expected `str` without control characters - at `$.sender`"
    return report


async def put_report(js: JetStreamContext, tenant: str, report: LossReport) -> dict[str, int]:
    """Keep it if it is the newest of its process; what is new of it, by reason.

    Raises `TransientError` when the bucket cannot be written.
    """
    scope = (digest("tenant", tenant)[:_TOKEN], digest("sender", report.sender)[:_TOKEN])
    key = ".".join((*scope, report.process))
    data = msgspec.json.encode(report)
    try:
        bucket = await js.key_value(LOSSES_BUCKET)
        for _ in range(TRIES):
            try:
                entry = await bucket.get(key)
            except nats.js.errors.KeyNotFoundError:
                revision, known = 0, {}
            else:
                before = _DECODER.decode(entry.value or b"")
                if report.sequence <= before.sequence:
                    return {}
                revision, known = entry.revision or 0, before.lost
            try:
                await bucket.update(key, data, revision)
            except nats.js.errors.KeyWrongLastSequenceError:
                continue
            return {
                reason: number - known.get(reason, 0)
                for reason, number in report.lost.items()
                if number > known.get(reason, 0)
            }
    except (*FAULTS, *UNDECODED) as error:
        raise TransientError(f"losses are not counted: {error!r}") from error
    raise TransientError("losses are not counted: other gateways write the same at this moment")


async def losses_by_sender(js: JetStreamContext) -> dict[str, dict[str, int]]:
    """What was lost in all, by sender and reason; nothing on a server that was provisioned before it was
    counted. Of very many senders those that are found last are counted together."""
    found: dict[str, Counter[str]] = {}
    others: Counter[str] = Counter()
    try:
        async for read in read_stream(js, STREAM, subjects=(SUBJECTS,)):
            try:
                report = _DECODER.decode(read.data)
            except UNDECODED:
                continue
            known = report.sender in found or len(found) < MOST_SENDERS
            lost = found.setdefault(report.sender, Counter()) if known else others
            for reason, number in report.lost.items():
                lost[reason if reason in lost or len(lost) < MOST_REASONS else OTHER] += number
    except nats.js.errors.NotFoundError:
        return {}
    told = {sender: dict(sorted(found[sender].items())) for sender in sorted(found)}
    return told | ({OTHERS: dict(sorted(others.items()))} if others else {})
