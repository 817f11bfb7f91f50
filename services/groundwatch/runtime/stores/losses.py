"""What senders lost before it came to a gateway: counts that they report, of each process its newest."""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Annotated

import msgspec
import nats.js.errors
from nats.js import JetStreamContext

from groundwatch.errors import UNDECODED, TransientError, words
from groundwatch.keys import digest
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.streams import read_newest
from groundwatch.runtime.stores.buckets import Bucket
from groundwatch.topology import LOSSES_BUCKET

STREAM = f"KV_{LOSSES_BUCKET}"
SUBJECTS = f"$KV.{LOSSES_BUCKET}.>"
MAX_REPORT = 256 * 1024
"""Bytes of a report."""

BATCH_REFUSED = "batch_refused"
REASONS = ("full", "unreadable", "too_large", "refused", "gave_up", "exit", "bug", BATCH_REFUSED)
"""Why our own client drops a response, as its metric names them; what others say is `other` there. A batch of
logged calls that the gateway refuses counts as one, since nobody reads how many were in it."""

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


async def put_report(bus: Bus, tenant: str, report: LossReport) -> dict[str, int]:
    """Keep it if it is the newest of its process; what is new of it, by reason.

    Raises `Unavailable` when the bucket cannot be written.
    """
    scope = (digest("tenant", tenant)[:_TOKEN], digest("sender", report.sender)[:_TOKEN])
    key = ".".join((*scope, report.process))
    counted: Mapping[str, int] = {}

    def newest(before: LossReport | None) -> LossReport:
        nonlocal counted
        if before is not None and before.sequence >= report.sequence:
            counted = report.lost
            return before
        counted = before.lost if before is not None else {}
        return report

    await Bucket(bus, LOSSES_BUCKET, nameless=True).change(key, _read, newest)
    more = {reason: number - counted.get(reason, 0) for reason, number in report.lost.items()}
    return {reason: number for reason, number in more.items() if number > 0}


def _read(data: bytes | None) -> LossReport | None:
    """What is kept of a process. Raises `TransientError` for what is no report."""
    try:
        return _DECODER.decode(data) if data is not None else None
    except UNDECODED as error:
        raise TransientError(f"losses are not counted: {words(error)}") from error


async def losses_by_sender(js: JetStreamContext) -> dict[str, dict[str, int]]:
    """What was lost in all, by sender and reason; nothing on a server that was provisioned before it was
    counted. Of very many senders those that are found last are counted together."""
    found: dict[str, Counter[str]] = {}
    others: Counter[str] = Counter()
    try:
        for data in (await read_newest(js, STREAM, SUBJECTS)).values():
            try:
                report = _DECODER.decode(data)
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
