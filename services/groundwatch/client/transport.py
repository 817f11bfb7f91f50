"""What the gateway's reply to a batch of lines means for each of them."""

from __future__ import annotations

import random
import time
import urllib.parse
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from groundwatch import __version__
from groundwatch.client.lines import Line, body

if TYPE_CHECKING:
    import httpx


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


MAX_REPLY = 1024 * 1024
CONNECT_SECONDS = 3.0
ANSWER_SECONDS = 30.0
"""A gateway itself waits for a full stream for up to ten."""

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0
MAX_LINES = 100
"""The gateway names so many refused lines of a batch, and no more."""

MAX_BYTES = 4 * 1024 * 1024
MOST_ATTEMPTS = 5
"""How often one response alone is sent that makes the gateway fail, or hang."""

GAVE_UP, TOO_LARGE = "gave_up", "too_large"
TOKEN_VARIABLE = "GROUNDWATCH_TOKEN"
NDJSON = "application/x-ndjson"
AGENT = f"groundwatch-client/{__version__}"


class Connection:
    """Asks one gateway. Whatever is wrong on the way is raised as it comes."""

    def __init__(self, address: str, token: str) -> None:
        """Raises `ValueError` for what is no address or no token."""
        # Here, where the application makes its recorder: OpenAI's client looks for httpx among the modules
        # at each call, and fails where another thread is half way through importing it.
        import httpx  # noqa: F401

        parts = urllib.parse.urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(
                f"'{address}' is no address of a gateway: write http://HOST:PORT or https://HOST"
            )
        if token and not (token.isascii() and token.isprintable() and " " not in token):
            raise ValueError(
                f"the token ({TOKEN_VARIABLE}) holds what no token can: letters, digits and signs of one line"
            )
        self.address = address.rstrip("/")
        self._secure = parts.scheme == "https"
        self._host = parts.hostname
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._transport: httpx.HTTPTransport | None = None

    def get(self, path: str, seconds: float) -> Reply:
        """`seconds` bound connecting, and every wait for the gateway to take or say something."""
        return self._ask("GET", path, seconds)

    def post(self, path: str, content: bytes | Iterable[bytes], media_type: str, seconds: float) -> Reply:
        return self._ask("POST", path, seconds, content, {"Content-Type": media_type})

    def _ask(
        self,
        method: str,
        path: str,
        seconds: float,
        content: bytes | Iterable[bytes] = b"",
        headers: dict[str, str] | None = None,
    ) -> Reply:
        import httpx

        # Not by `httpx.Client`: it tells of each request in the application's log.
        if self._transport is None:
            self._transport = httpx.HTTPTransport(verify=self._secure, proxy=self._proxy())
        timeout = {
            "connect": min(CONNECT_SECONDS, seconds),
            "read": seconds,
            "write": seconds,
            "pool": seconds,
        }
        request = httpx.Request(
            method,
            f"{self.address}{path}",
            headers={"User-Agent": AGENT, **(headers or {}), **self._headers},
            content=content,
            extensions={"timeout": timeout},
        )
        response = self._transport.handle_request(request)
        try:
            return Reply(
                status=response.status_code,
                body=_read(response),
                retry_after=_seconds(response.headers.get("retry-after")),
            )
        finally:
            response.close()

    def close(self) -> None:
        """Whoever posts again connects again."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()

    def _proxy(self) -> Any:
        import urllib.request

        if urllib.request.proxy_bypass(self._host):
            return None
        return urllib.request.getproxies().get("https" if self._secure else "http")


class Sender:
    """Sends lines until each has ended: recorded, or refused for its own fault.

    A line that is sent twice counts once at the gateway, by its id. `ended` is given each line that is over,
    with the refusal where it was refused; `GAVE_UP` is that of one which makes the gateway fail each time.
    """

    def __init__(self, connection: Connection, ended: Callable[[Line, Refused | None], None]) -> None:
        self.connection = connection
        self._ended = ended
        self.lines: list[Line] = []
        """What has not ended, in the order in which it is sent."""
        self.fault = ""
        """Why the gateway takes nothing now; empty where it does."""
        self.asked_to_wait = False
        """Whether the gateway itself named the time before which nothing is to be sent again."""
        self._try_at = 0.0
        self._failures = 0
        self._most = MAX_LINES
        self._attempts = 0

    @property
    def full(self) -> bool:
        """Whether there is a whole batch to send."""
        return len(self.lines) >= MAX_LINES or sum(line.length for line in self.lines) >= MAX_BYTES

    @property
    def wait(self) -> float:
        """Seconds before which nothing is to be sent after a fault."""
        return max(0.0, self._try_at - time.monotonic())

    def hurry(self) -> None:
        """Let a pause be over, unless the gateway asked for it."""
        if not self.asked_to_wait:
            self._try_at = 0.0

    def send(self, seconds: float) -> Verdict:
        """One request with the first of the lines; `seconds` bound each of its waits."""
        return self.apply(*self.attempt(seconds))

    def attempt(self, seconds: float) -> tuple[list[Line], Verdict]:
        """The request alone: its lines, and what its reply means for them."""
        import httpx

        lines = self.lines[: self._most]
        # Until the reply is there nobody knows, also whoever looks while it is waited for.
        certain = [line for line in lines if not line.unconfirmed]
        for line in certain:
            line.unconfirmed = True
        try:
            verdict = judge(lines, self.connection.post("/v1/responses", body(lines), NDJSON, seconds))
        except Exception as error:
            self.connection.close()
            hangs = isinstance(error, httpx.ReadTimeout | httpx.WriteTimeout)
            unsent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
            verdict = Verdict(
                left=tuple(lines),
                unsure=() if unsent else tuple(lines),
                fault=repr(error)[:300],
                smaller=hangs,
                attempt=hangs,
            )
        unsure = {id(line) for line in verdict.unsure}
        for line in certain:
            line.unconfirmed = id(line) in unsure
        return lines, verdict

    def apply(self, lines: Sequence[Line], verdict: Verdict) -> Verdict:
        """Let go of the lines that ended, and pause after a fault."""
        left = {id(line): line for line in verdict.left}
        refused = {id(line): why for line, why in verdict.refused}
        if verdict.attempt:
            # It is tried alone from here on: what it does to the gateway is no other's fault.
            self._most = 1
        elif verdict.smaller and len(lines) > 1:
            self._most = max(1, len(lines) // 2)
        elif not verdict.fault:
            self._most = min(MAX_LINES, self._most * 2)
        self._attempts = self._attempts + 1 if verdict.attempt and len(lines) == 1 else 0
        if self._attempts >= MOST_ATTEMPTS:
            self._attempts = 0
            why = f"dropped after {MOST_ATTEMPTS} attempts: {verdict.fault}"
            refused |= dict.fromkeys(left, Refused(reason=GAVE_UP, error=why))
            left.clear()
        for line in lines:
            why_not = refused.get(id(line))
            if why_not is not None and why_not.reason == TOO_LARGE and line.may_shrink:
                left[id(line)] = line.without_images()
            elif id(line) not in left:
                self._ended(line, why_not)
        self.lines[: len(lines)] = [left[id(line)] for line in lines if id(line) in left]
        self._pause(verdict)
        return verdict

    def _pause(self, verdict: Verdict) -> None:
        """The breaker: after a fault nothing is sent for a while."""
        self.asked_to_wait = verdict.pause is not None
        self.fault = verdict.fault
        if not verdict.fault:
            self._failures, self._try_at = 0, 0.0
            return
        pause = verdict.pause
        if pause is None:
            pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(self._failures, 10))
            pause *= 0.5 + random.random() / 2
        self._failures += 1
        self._try_at = time.monotonic() + pause


def _read(response: httpx.Response) -> bytes:
    read = bytearray()
    for chunk in response.iter_bytes():
        read += chunk
        if len(read) > MAX_REPLY:
            break
    return bytes(read)


def _seconds(header: str | None) -> float | None:
    """A Retry-After in seconds; a date is taken for none."""
    try:
        return min(max(float(header), 0.0), 3600.0) if header else None
    except ValueError:
        return None
