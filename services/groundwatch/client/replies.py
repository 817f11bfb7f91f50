"""What the gateway's reply to a batch of lines means for each of them."""

from collections.abc import Sequence

import msgspec

from groundwatch.client.lines import Line
from groundwatch.client.transport import Reply

PASSING = frozenset({"rate_limited", "backlog", "image_unavailable", "unavailable", "unconfirmed"})
"""Reasons of the gateway that are not the response's fault: the same one is sent again."""

BUSY_SECONDS = 5.0
"""Pause of a gateway that is full and does not say for how long."""


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    line: int
    reason: str = ""
    error: str = ""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The gateway's own, as docs/ingestion.md has it."""

    retry_from: int | None = None
    errors: list[Refused] = []


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """`left` must be sent again, after `pause` seconds where the gateway said so. `lost` counts by reason.

    `fault` is why nothing was taken: the gateway's, or of the way to it. `smaller`: fewer lines at once may
    pass. `attempt`: it may be the fault of what was sent.
    """

    left: tuple[Line, ...] = ()
    lost: dict[str, int] = {}
    why: str = ""
    pause: float | None = None
    fault: str = ""
    smaller: bool = False
    attempt: bool = False


def judge(lines: Sequence[Line], reply: Reply) -> Verdict:
    every = tuple(lines)
    if (summary := _summary(reply)) is not None:
        return _by_line(every, summary, reply)
    match reply.status:
        case 413 | 400 | 415 | 422 if len(every) > 1:
            return Verdict(left=every, smaller=True)
        case 413:
            return Verdict(lost={"too_large": 1}, why=_said(reply))
        case 400 | 415 | 422:
            return Verdict(lost={"refused": 1}, why=_said(reply))
        case 429 | 503:
            pause = BUSY_SECONDS if reply.retry_after is None else reply.retry_after
            return Verdict(left=every, pause=pause, fault=_said(reply))
        case 500:
            return Verdict(left=every, fault=_said(reply), smaller=True, attempt=True)
        case _:
            return Verdict(left=every, fault=_said(reply))


def _by_line(every: tuple[Line, ...], summary: Summary, reply: Reply) -> Verdict:
    refused = {one.line: one for one in summary.errors if one.reason not in PASSING}
    first = len(every) + 1 if summary.retry_from is None else summary.retry_from
    left = tuple(line for number, line in enumerate(every, 1) if number >= first and number not in refused)
    verdict = Verdict(
        left=left,
        lost={"refused": len(refused)} if refused else {},
        why=next((f"{one.reason}: {one.error}" for one in refused.values()), ""),
    )
    if not left:
        return verdict
    pause = BUSY_SECONDS if reply.retry_after is None else reply.retry_after
    fault = next((one.error for one in summary.errors if one.reason in PASSING), "") or _said(reply)
    return msgspec.structs.replace(verdict, pause=pause, fault=fault)


def _summary(reply: Reply) -> Summary | None:
    """None where the reply tells nothing of lines, as that of a proxy, or to a request that was not read."""
    if reply.status not in (200, 408, 503) or b'"accepted"' not in reply.body:
        return None
    try:
        return msgspec.json.decode(reply.body, type=Summary)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _said(reply: Reply) -> str:
    return f"it answered {reply.status} {reply.body[:200].decode('utf-8', 'replace')}".strip()
