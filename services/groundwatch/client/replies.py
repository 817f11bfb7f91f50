"""What the gateway's reply to a batch of lines means for each of them."""

from collections.abc import Sequence

import msgspec

from groundwatch.client.lines import Line

PASSING = frozenset({"rate_limited", "backlog", "image_unavailable", "unavailable", "unconfirmed"})
"""Reasons of the gateway that are not the response's fault: the same one is sent again."""

BUSY_SECONDS = 5.0
"""Pause of a gateway that is full and does not say for how long."""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    status: int
    body: bytes = b""
    retry_after: float | None = None

    @property
    def error(self) -> str:
        """What is wrong, in one line; a proxy in between may not speak JSON."""
        try:
            return str(msgspec.json.decode(self.body)["error"])[:300]
        except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
            return f"it answered {self.status} {self.body[:200].decode('utf-8', 'replace')}".strip()


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    line: int = 1
    reason: str = ""
    error: str = ""
    field: str = ""
    id: str = ""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The gateway's own, as docs/ingestion.md has it."""

    accepted: int = 0
    duplicates: int = 0
    refused: int = 0
    retry_from: int | None = None
    errors: list[Refused] = []


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """`left` must be sent again, after `pause` seconds where the gateway said so.

    `unsure` are those of `left` of which this attempt does not tell whether they are recorded. `fault` is why
    something was not taken that is not its own fault: the gateway's, or of the way to it; `status` is that of
    the reply, 0 where there was none. `smaller`: fewer lines at once may pass. `attempt`: it may be the fault
    of what was sent.
    """

    left: tuple[Line, ...] = ()
    unsure: tuple[Line, ...] = ()
    refused: tuple[tuple[Line, Refused], ...] = ()
    accepted: int = 0
    duplicates: int = 0
    pause: float | None = None
    fault: str = ""
    status: int = 0
    smaller: bool = False
    attempt: bool = False


def judge(lines: Sequence[Line], reply: Reply) -> Verdict:
    every = tuple(lines)
    if (summary := _summary(reply)) is not None:
        return _by_line(every, summary, reply)
    again = Verdict(left=every, unsure=every, fault=reply.error, status=reply.status)
    match reply.status:
        case 413 | 400 | 415 | 422 if len(every) > 1:
            return Verdict(left=every, smaller=True, status=reply.status)
        case 413 | 400 | 415 | 422:
            reason = "too_large" if reply.status == 413 else "refused"
            refused = Refused(reason=reason, error=reply.error)
            return Verdict(refused=tuple((line, refused) for line in every), status=reply.status)
        case 429 | 503:
            pause = BUSY_SECONDS if reply.retry_after is None else reply.retry_after
            return msgspec.structs.replace(again, pause=pause)
        case 500:
            return msgspec.structs.replace(again, smaller=True, attempt=True)
        case _:
            return again


def _by_line(every: tuple[Line, ...], summary: Summary, reply: Reply) -> Verdict:
    named = {one.line: one for one in summary.errors}
    passing = {number for number, one in named.items() if one.reason in PASSING}
    # A request that was cut off was read up to here.
    read = summary.accepted + summary.duplicates + summary.refused if reply.status != 200 else len(every)
    first = len(every) + 1
    if summary.retry_from is not None and summary.refused > len(named):
        first = summary.retry_from
    numbered = tuple(enumerate(every, 1))
    left = [
        (number, line)
        for number, line in numbered
        if number in passing or (number not in named and (number > read or number >= first))
    ]
    verdict = Verdict(
        left=tuple(line for _, line in left),
        unsure=tuple(
            line
            for number, line in left
            if number <= read and (number not in named or named[number].reason == "unconfirmed")
        ),
        refused=tuple(
            (line, named[number]) for number, line in numbered if number in named and number not in passing
        ),
        accepted=summary.accepted,
        duplicates=summary.duplicates,
        status=reply.status,
    )
    if not left:
        return verdict
    pause = BUSY_SECONDS if reply.retry_after is None else reply.retry_after
    fault = next((named[number].error for number in sorted(passing)), "") or reply.error
    return msgspec.structs.replace(verdict, pause=pause, fault=fault)


def _summary(reply: Reply) -> Summary | None:
    """None where the reply tells nothing of lines, as that of a proxy, or to a request that was not read."""
    if reply.status not in (200, 408, 503) or b'"accepted"' not in reply.body:
        return None
    try:
        return msgspec.json.decode(reply.body, type=Summary)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
