"""Addresses as they may be shown: without the passwords, tokens and keys that stand in some of them."""

import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "…"

_SECRET = r"[\w.-]*(?:key|token|secret|passw|credential|sig|auth|sas|connection_string)[\w.-]*"
_LIST = re.compile(r",\s*(?=[A-Za-z][\w+.-]*://)")
_USER = re.compile(r"([A-Za-z][\w+.-]*://)[^\s,]*(?:,(?!\s*[A-Za-z][\w+.-]*://)[^\s,]*)*@")
_QUERY = re.compile(rf"([?&;]{_SECRET}=)[^\s&#;'\"]+", re.IGNORECASE)
_NAME = re.compile(_SECRET, re.IGNORECASE)
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]{0,63}\Z")


def shown_address(url: str) -> str:
    """One address, or several with commas, as messages, logs and records may have it.

    Of what stands before an `@` nothing is shown: in a password any character may stand for itself.
    """
    return ",".join(_shown(one) for one in _LIST.split(url))


def _shown(url: str) -> str:
    scheme, found, rest = url.partition("://")
    if not found:
        scheme, rest = "", url
    if "@" in rest:
        rest = f"{HIDDEN}@{rest.rpartition('@')[2]}"
    return _QUERY.sub(rf"\1{HIDDEN}", f"{scheme}{found}{rest}")


def concealed(text: str) -> str:
    """A sentence with the addresses in it as they may be shown: libraries quote what they were given."""
    if "://" in text and "@" in text:
        text = _USER.sub(rf"\1{HIDDEN}@", text)
    return _QUERY.sub(rf"\1{HIDDEN}", text) if "=" in text else text


def shown_variable(name: str) -> str:
    """The name of a variable that holds a key; where somebody wrote the key itself, nothing of it."""
    return name if _VARIABLE.match(name) else HIDDEN


def without_secrets(value: Any, key: str = "") -> Any:
    """Plain values as they may be shown. `key` is the name of the setting, with dots.

    Of `archive.options`, which go to a library, only what has a harmless name and no address is shown.
    """
    if isinstance(value, Mapping):
        return {name: without_secrets(one, f"{key}.{name}".lstrip(".")) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [without_secrets(one, key) for one in value]
    if not isinstance(value, str) or not value:
        return value
    last = key.rpartition(".")[2]
    if last.endswith("_env"):
        return shown_variable(value)
    if "options" in key.split(".") and _NAME.search(last):
        return HIDDEN
    if last.endswith("url") or "://" in value:
        return shown_address(value)
    return value


def below(url: str, path: str) -> str:
    """The address of `path` where `url` may name the server, or have the path already."""
    url = url.rstrip("/")
    return url if url.endswith(path) else url + path
