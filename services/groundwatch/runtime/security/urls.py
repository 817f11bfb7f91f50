"""Addresses that others name, read strictly into one form, and the list of those that may be fetched.

What is compared with the list is what is asked for: the same text, with its path brought into one form. An
address that two programs could read in two ways is refused.
"""

import ipaddress
import re
from collections.abc import Iterable
from urllib.parse import quote, unquote

import msgspec

from groundwatch.addresses import shown_address
from groundwatch.errors import InputError

MOST = 8192
"""Characters of an address."""

SHOWN = 300
STORES = ("s3", "gs")
PORTS = {"http": 80, "https": 443}

_PARTS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^?#]*)(?:\?([^#]*))?(?:#.*)?", re.DOTALL)
_PLACE = re.compile(r"(\[[0-9a-f:.]+\]|[^:\[\]]+)(?::([0-9]{1,5}))?")
_NAME = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,221}")
_NOWHERE = re.compile(r"[\x00-\x1f\x7f\\]")
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})?")
_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_SAFE = "!#$%&'()*+,/:;=?@[]~"
_ROUNDS = 3


class Url(msgspec.Struct, frozen=True, kw_only=True):
    """An address in parts. `host` is a bucket's name for a store, empty for a file; `port` 0 but for http(s).

    `path` begins with `/`. That of http(s) is as it is sent, with escapes; others have none.
    """

    scheme: str
    host: str = ""
    port: int = 0
    path: str = "/"
    query: str | None = None

    @property
    def place(self) -> str:
        """Host and port as they are written."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS.get(self.scheme, 0) else f"{host}:{self.port}"

    @property
    def target(self) -> str:
        """What a request asks the host for."""
        return self.path if self.query is None else f"{self.path}?{self.query}"

    @property
    def text(self) -> str:
        return f"{self.scheme}://{self.place}{self.target}"

    @property
    def shown(self) -> str:
        """As messages and logs may have it."""
        return shown(self.text)


def shown(url: str) -> str:
    """An address as a message may have it, also one that is none: without keys, and not endless."""
    told = shown_address(url[:MOST])
    return told if len(told) <= SHOWN else f"{told[:SHOWN]}…"


def read_url(text: str) -> Url:
    """Raises `InputError` that says what is wrong with it."""
    return _read(text, pattern=False)


def read_location(base: Url, location: str) -> Url:
    """Where the server of `base` says that something is. Raises `InputError`."""
    if _PARTS.fullmatch(location):
        return read_url(location)
    root = f"{base.scheme}://{base.place}"
    if location.startswith("//"):
        return read_url(f"{base.scheme}:{location}")
    if location.startswith("/"):
        return read_url(root + location)
    if location.startswith("?"):
        return read_url(root + base.path + location)
    return read_url(f"{root}{base.path.rpartition('/')[0]}/{location}")


def _read(text: str, *, pattern: bool) -> Url:
    if len(text) > MOST:
        raise InputError(f"an address has at most {MOST} characters")
    parts = _PARTS.fullmatch(text)
    if parts is None:
        raise InputError(f"{shown(text)} is no address such as https://images.example.com/cat.png")
    if _NOWHERE.search(text):
        raise InputError(f"{shown(text)!r} has a control character or a backslash")
    scheme, place, path, query = parts[1].lower(), parts[2], parts[3], parts[4]
    if scheme in PORTS:
        host, port = _place(text, scheme, place.lower(), pattern=pattern)
        if " " in path or " " in (query or ""):
            raise InputError(f"{shown(text)} has a space: write %20")
        return Url(
            scheme=scheme,
            host=host,
            port=port,
            path=_path(text, path or "/"),
            query=None if query is None else quote(query, safe=_SAFE),
        )
    if scheme == "file":
        if place.lower() not in ("", "localhost"):
            raise InputError(f"{shown(text)} names a host: write file:///folder/file")
        path = _once(path)
        if _NOWHERE.search(path):
            raise InputError(f"{shown(text)} has a control character or a backslash")
    elif scheme not in STORES:
        raise InputError(f"{shown(text)}: {scheme}:// is not fetched, only https, http, s3, gs and file")
    elif not _BUCKET.fullmatch(place):
        raise InputError(f"{shown(text)} has no bucket: write {scheme}://bucket/name")
    if "?" in text or "#" in text:
        raise InputError(f"{shown(text)} has a ? or #, which may not stand in a {scheme}:// address")
    folders = path.split("/")[1:-1] if pattern else path.split("/")[1:]
    if not path.startswith("/") or any(part in ("", ".", "..") for part in folders):
        raise InputError(f"{shown(text)} has no path, or one with empty parts, . or ..")
    return Url(scheme=scheme, host="" if scheme == "file" else place, path=path)


def _place(text: str, scheme: str, place: str, *, pattern: bool) -> tuple[str, int]:
    if "@" in place:
        raise InputError(f"{shown(text)} has a user or a password in it: leave them out")
    found = _PLACE.fullmatch(place)
    host = found[1] if found else ""
    port = int(found[2]) if found and found[2] else PORTS[scheme]
    if not 0 < port < 65536:
        raise InputError(f"{shown(text)} has no port from 1 to 65535")
    if host.startswith("["):
        try:
            return str(ipaddress.IPv6Address(host[1:-1])), port
        except ValueError as error:
            raise InputError(f"{shown(text)} has no address of IPv6 between [ and ]") from error
    name = host.removeprefix("*.") if pattern else host
    if (pattern and host == "*") or (len(name) <= 253 and _NAME.fullmatch(name)):
        return host, port
    raise InputError(f"{shown(text)} has no name of a host that is read: letters, digits, - and dots")


def _path(text: str, path: str) -> str:
    """The one form of a path: no `.` and `..`, no escapes that need not be, however they were written."""
    written = _ESCAPE.sub(_escape, quote(path, safe=_SAFE))
    parts: list[str] = []
    for part in written.split("/")[1:]:
        if part == "..":
            del parts[-1:]
        elif part != ".":
            parts.append(part)
    if written.rsplit("/", 1)[1] in (".", ".."):
        parts.append("")
    written = "/" + "/".join(parts)
    _hidden(text, written)
    return written


def _escape(found: re.Match[str]) -> str:
    if found[1] is None:
        return "%25"
    said = chr(int(found[1], 16))
    return said if said in _PLAIN else f"%{found[1].upper()}"


def _hidden(text: str, path: str) -> None:
    """Refuse what a server that takes escapes apart once more would read as another path."""
    for _ in range(_ROUNDS):
        path, before = unquote(path, errors="replace"), path
        if _NOWHERE.search(path) or any(
            part.partition(";")[0].strip() in (".", "..") for part in path.split("/")
        ):
            raise InputError(f"{shown(text)} hides . or .., a backslash or a control character in its path")
        if path == before:
            return
    raise InputError(f"{shown(text)} has escapes of escapes in its path")


def _once(path: str) -> str:
    try:
        return unquote(path, errors="strict")
    except UnicodeDecodeError as error:
        raise InputError(f"{shown(path)} has escapes that are not UTF-8") from error


def read_pattern(text: str) -> Url:
    """An entry of the list: all below a folder, at a host or, as `*.example.com`, at all below a name.

    Raises `InputError`.
    """
    found = _read(text, pattern=True)
    if found.query is not None or not found.path.endswith("/"):
        raise InputError(
            f"{shown(text)} does not end with /: write the folder below which all may be fetched"
        )
    return found


class AllowList:
    """Which addresses may be fetched; with no entry none."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self.patterns = tuple(map(read_pattern, patterns))

    def covers(self, url: Url) -> bool:
        """Scheme, host and port are the same, and the path is below the folder."""
        return any(_matches(pattern, url) for pattern in self.patterns)


def _matches(pattern: Url, url: Url) -> bool:
    if (pattern.scheme, pattern.port) != (url.scheme, url.port) or not url.path.startswith(pattern.path):
        return False
    if pattern.host == "*":
        return True
    if pattern.host.startswith("*."):
        return url.host.endswith(pattern.host[1:]) and len(url.host) >= len(pattern.host)
    return url.host == pattern.host
