"""What all pages share: how they show numbers, times and texts, their templates, the files that they load,
and the headers they are sent with.

Every text that others wrote goes through the filter `text` or `cut`: isolated from the direction of what
stands around it, with control characters made visible, and no longer than a page can bear.
"""

import gzip
import hashlib
import unicodedata
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib import resources
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from groundwatch.errors import GroundwatchError, words
from groundwatch.events import DEFAULT_TENANT, LIVE
from groundwatch.gateway.auth import ANYBODY, VIEW, Caller, Need
from groundwatch.gateway.http.requests import Route, known_caller
from groundwatch.gateway.refusals import Refused, refusal_of
from groundwatch.runtime.delivery.streams import FAULTS
from groundwatch.runtime.settings.login import LoginSettings
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.statistics.intervals import Interval
from groundwatch.times import moment_of

LONGEST = 300
"""Characters of a text that are shown at once, unless a template says otherwise."""

MOST = 100_000
"""Characters of a text that are in a page at all."""

NONE = "–"
THIN = "\u202f"
FORMS = {"moment": "%-d %b %Y, %H:%M", "clock": "%H:%M:%S", "day": "%-d %b"}


def percent(share: float | None, digits: int = 1) -> str:
    """0.114 as `11.4 %`."""
    return NONE if share is None else f"{100 * share:.{digits}f}{THIN}%"


def whole(number: float | None) -> str:
    return NONE if number is None else f"{number:,.0f}"


def decimal(number: float | None, digits: int = 3) -> str:
    return NONE if number is None else f"{number:,.{digits}f}"


def dollars(number: float | None) -> str:
    """An amount of US dollars, with as many digits as tell small ones apart."""
    if number is None:
        return NONE
    return f"${number:,.2f}" if number >= 1 or number == 0 else f"${number:.2g}"


def signed(number: float | None, digits: int = 1) -> str:
    """A difference of shares in percentage points, with its sign: `+3.2`."""
    if number is None:
        return NONE
    shown = f"{100 * number:+.{digits}f}".replace("-", "−")
    return shown if shown.strip("+−0.") else shown[1:]


def bounds(interval: Interval | None, digits: int = 1) -> str:
    """The two ends of an interval of shares: `10.3–12.5 %`."""
    if interval is None:
        return NONE
    return f"{100 * interval.low:.{digits}f}–{100 * interval.high:.{digits}f}{THIN}%"


def limits(interval: Interval | None, digits: int = 2) -> str:
    """The two ends of an interval of what is no share and may be below 0: `−0.04 to 0.31`."""
    if interval is None:
        return NONE
    return f"{interval.low:.{digits}f} to {interval.high:.{digits}f}".replace("-", "−")


def moment(seconds: float | None, form: str = "moment") -> Markup | str:
    """A moment as `<time>`, which `times.js` puts into its reader's zone."""
    if not seconds:
        return NONE
    when = moment_of(seconds)
    return Markup('<time datetime="{}" title="{} UTC" data-form="{}">{} UTC</time>').format(
        when.strftime("%Y-%m-%dT%H:%M:%SZ"),
        when.strftime("%-d %b %Y, %H:%M:%S"),
        form,
        when.strftime(FORMS[form]),
    )


def stamp(seconds: float) -> str:
    """A moment in UTC as plain text."""
    return f"{moment_of(seconds):%-d %b %Y, %H:%M} UTC"


def clock(seconds: float | None) -> Markup | str:
    """The time of day; its `<time>` has the day too."""
    return moment(seconds, "clock")


def duration(seconds: float | None) -> str:
    """A number of seconds in its two largest units: `2 d 3 h`, `4 min 10 s`, `0.4 s`."""
    if seconds is None:
        return NONE
    if seconds < 10:
        return f"{seconds:.1f}{THIN}s"
    parts = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        number, seconds = divmod(int(seconds), size)
        if number:
            parts.append(f"{number}{THIN}{unit}")
    return " ".join(parts[:2])


def size(number: float | None) -> str:
    """Bytes as `1.2 GB`."""
    if number is None:
        return NONE
    units = ["B", "kB", "MB", "GB", "TB"]
    while number >= 1000 and len(units) > 1:
        number /= 1000
        del units[0]
    return f"{number:.{0 if units[0] == 'B' else 1}f}{THIN}{units[0]}"


def visible(text: object) -> str:
    """The same with control characters as signs that one sees; line breaks and tabs stay."""
    return "".join(
        chr(0x2400 + ord(char))
        if char < " " and char not in "\n\t"
        else "\u2421"
        if "\x7f" <= char < "\xa0"
        else "\ufffd"
        if unicodedata.category(char) == "Cs"
        else char
        for char in str(text)
    )


def isolated(text: object, limit: int = LONGEST) -> Markup:
    """On one line, whatever its direction; of what is longer than `limit`, more stands in `title`."""
    shown = " ".join(visible(str(text)[: 4 * limit]).split())
    if len(shown) <= limit:
        return Markup("<bdi>{}</bdi>").format(shown)
    return Markup('<bdi title="{}">{}…</bdi>').format(shown[: 4 * limit], shown[: limit - 1])


def cut(text: object, limit: int = LONGEST) -> Markup:
    """With its own line breaks; what is longer than `limit` stands behind a button, up to `MOST`."""
    whole_text = str(text)
    shown = visible(whole_text[:MOST])
    if len(shown) <= limit:
        return Markup('<div class="words" dir="auto">{}</div>').format(shown)
    left = len(whole_text) - MOST
    end = Markup('<p class="note">{:,} more characters are not shown</p>').format(left) if left > 0 else ""
    return Markup(
        '<div class="words" dir="auto">{}…</div><details><summary>all {:,} characters</summary>'
        '<div class="words" dir="auto">{}</div>{}</details>'
    ).format(shown[:limit], len(whole_text), shown, end)


def in_words(name: object) -> Markup:
    """A reason or category with spaces in place of its underscores."""
    return escape(str(name).replace("_", " "))


FILTERS = {
    "percent": percent,
    "whole": whole,
    "decimal": decimal,
    "dollars": dollars,
    "signed": signed,
    "bounds": bounds,
    "limits": limits,
    "moment": moment,
    "stamp": stamp,
    "clock": clock,
    "duration": duration,
    "size": size,
    "visible": visible,
    "text": isolated,
    "cut": cut,
    "in_words": in_words,
}


def scale_top(rates: Sequence[Interval | None]) -> float:
    """Where a scale that these share ends, a multiple of 5 %.

    One that rests on little has an interval as wide as the scale: it must not flatten the others.
    """
    ends = [one.value if one.n < 50 else one.high for one in rates if one is not None]
    return min(1.0, max(0.1, -(-max(ends, default=0.0) // 0.05) * 0.05))


POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    ]
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}

NOTHING_LOADED = {"Content-Security-Policy": "default-src 'none'"}

LEAST_PACKED = 1_000
"""Bytes from which on compressing is worth it."""

NAVIGATION = (
    ("/", "Overview"),
    ("/answers", "Answers"),
    ("/alarms", "Alarms"),
    ("/runs", "Runs"),
    ("/queues", "Review"),
    ("/health", "Health"),
)

Handler = Callable[[Request], Awaitable[Response]]

MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


TITLES = {
    403: "This is not for you",
    404: "Nothing is here",
    405: "Nothing is here",
    410: "This answer was erased",
    429: "This cannot be read now",
    503: "This cannot be read now",
}
"""Of the pages that say why there is no other."""


class StaticFiles:
    """The style sheet, scripts and icon, read once. Their address has the digest of them all in it."""

    def __init__(self) -> None:
        folder = resources.files(__package__ or "").joinpath("static")
        self._files = {one.name: one.read_bytes() for one in folder.iterdir() if one.is_file()}
        state = hashlib.sha256()
        for name, data in sorted(self._files.items()):
            state.update(f"{name} {len(data)} ".encode() + data)
        self.version = state.hexdigest()[:16]

    def address(self, name: str) -> str:
        """Raises `KeyError` for a file that there is not: a template names it."""
        return f"/static/{self.version}/{name}" if self._files[name] else ""

    def reply(self, request: Request, version: str, name: str) -> Response | None:
        """The file; under its own digest it is kept for a year. A page of another version gets it too."""
        data = self._files.get(name)
        if data is None:
            return None
        kept = "public, max-age=31536000, immutable" if version == self.version else "no-cache"
        media_type = MEDIA_TYPES.get(name[name.rfind(".") :], "application/octet-stream")
        return packed(request, data, 200, {"Cache-Control": kept, **NOTHING_LOADED}, media_type)


def packed(
    request: Request, data: bytes, status: int, headers: Mapping[str, str], media_type: str
) -> Response:
    """Compressed for who takes that."""
    headers = {**headers, "Vary": "Accept-Encoding"}
    if len(data) >= LEAST_PACKED and "gzip" in request.headers.get("accept-encoding", ""):
        data, headers["Content-Encoding"] = gzip.compress(data, 4), "gzip"
    return Response(data, status, headers, media_type)


class Standing(NamedTuple):
    """What every page tells: how many models are under alarm, and why nothing new can be read now."""

    alarms: int = 0
    problem: str = ""


class Pages:
    """The templates of all pages. `render` makes an answer of one of them, `route` serves it."""

    def __init__(self, standing: Callable[[], Standing]) -> None:
        self.static = StaticFiles()
        self._standing = standing
        self._needs: dict[str, Need] = {}
        self._environment = environment = Environment(
            loader=PackageLoader("groundwatch.gateway.pages", "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            auto_reload=False,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        environment.filters.update(FILTERS)
        environment.globals.update(
            static=self.static.address,
            address=address,
            answer_address=answer_address,
        )

    def render(self, request: Request, name: str, /, *, status: int = 200, **values: Any) -> Response:
        """The page `name` with these values and `caller`; `here` is the address in the navigation that
        it belongs to."""
        template = self._environment.get_template(name)
        caller = known_caller(request)
        values.setdefault("here", "/" + request.url.path.split("/")[1])
        standing = self._standing() if caller is not None else Standing()
        if caller is not None and caller.only is not None:
            standing = standing._replace(alarms=0)  # They are of all tenants.
        html = template.render(
            caller=caller,
            in_session=request.state.in_session,
            navigation=self.navigation_of(caller),
            standing=standing,
            **values,
        )
        return packed(request, html.encode("utf-8", "replace"), status, HEADERS, "text/html; charset=utf-8")

    def route(self, path: str, handler: Handler, need: Need, methods: Sequence[str] = ("GET",)) -> Route:
        """Serves a page; why it cannot be made is told on a page too."""

        async def page(request: Request) -> Response:
            try:
                return await handler(request)
            except (GroundwatchError, *FAULTS) as error:
                is_away = isinstance(error, FAULTS)
                refused = Refused("unavailable", words(error)) if is_away else refusal_of(error)
                if isinstance(error, Refused) and refused.status.http in (401, 403):
                    raise
                if refused.passing:
                    logger.warning("gateway.page", path=request.url.path, error=refused.message)
                return self.refused(request, refused)

        if "GET" in methods:
            self._needs[path] = need
        return Route(path, page, need, methods)

    def both(self, path: str, handler: Handler, need: Need, methods: Sequence[str] = ("GET",)) -> list[Route]:
        """Serves the same as a page and, under `/v1`, as JSON."""
        page = msgspec.structs.replace(need, page="GET" in methods)
        return [self.route(path, handler, page, methods), Route(f"/v1{path}", handler, need, methods)]

    def routes(self) -> list[Route]:
        """Of the files that pages load, and of what those ask that do not change by themselves."""
        return [
            self.route("/pulse", self._pulse, VIEW),
            Route("/static/{name}", self._static, ANYBODY),
            Route("/static/{version}/{name}", self._static, ANYBODY),
            Route("/favicon.ico", self._icon, ANYBODY),
        ]

    async def _static(self, request: Request) -> Response:
        names = request.path_params
        reply = self.static.reply(request, names.get("version", ""), names["name"])
        if reply is None:
            raise HTTPException(404)
        return reply

    async def _pulse(self, request: Request) -> Response:
        return self.render(request, "pulse.html")

    async def _icon(self, request: Request) -> Response:
        return RedirectResponse(self.static.address("icon.svg"), 302)

    def navigation_of(self, caller: Caller | None) -> list[tuple[str, str]]:
        """The addresses and names of the pages that somebody may open."""
        return [item for item in NAVIGATION if caller is not None and caller.meets(self._needs[item[0]])]

    def refused(self, request: Request, refused: Refused) -> Response:
        """A page that says why there is no other."""
        again = ". Load this page again in a moment." if refused.passing else ""
        return self.problem(request, refused.status.http, refused.message + again)

    def problem(self, request: Request, status: int, message: str) -> Response:
        title = TITLES.get(status, "This cannot be shown")
        return self.render(request, "problem.html", status=status, title=title, message=message)


def answer_address(name: str, tenant: str = "", run: str = "", protocol: str = "") -> str:
    """The address of one answer, by its id."""
    tenant, run = "" if tenant == DEFAULT_TENANT else tenant, "" if run == LIVE else run
    return address(f"/answers/{quote(name, safe='')}", tenant=tenant, run=run, protocol=protocol)


def origin_of(request: Request, login: LoginSettings) -> str:
    """Where this gateway is reached; a request does not tell of TLS that ends before it."""
    return login.url or str(request.base_url).rstrip("/")


def address(path: str, /, **query: Any) -> str:
    """The address of a page of ours; what is empty is left out of its query."""
    told = {name: value for name, value in query.items() if value not in ("", None)}
    return f"{path}?{urlencode(told)}" if told else path
