"""Where the archive of given settings lies: a folder, or an object store that delta-rs reaches."""

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from groundwatch.addresses import shown_address
from groundwatch.errors import MissingExtraError, SettingsError
from groundwatch.runtime.settings import Settings

SWITCHED_OFF = "off"
FOLDER = "archive"
"""Below the data folder of `groundwatch up`, where settings say nothing else."""

IMAGES = "images"
"""The folder of images below an archive's address."""

PACKAGES = ("deltalake", "duckdb", "pyarrow")

STORES = ("s3", "s3a", "gs", "abfs", "abfss")

IMPATIENT = {"max_retries": "3", "retry_timeout": "20s"}
"""The archive tries again by itself: that a store does not answer is to be known soon."""


def placed(settings: Settings, data: Path) -> Settings:
    """The same settings with the archive's place: in the data folder `data` where none is set.

    Empty still where the archive is switched off or what it needs is not installed.
    """
    url = settings.archive.url
    if url == SWITCHED_OFF:
        url = ""
    elif not url and installed():
        url = str(data / FOLDER)
    return settings.model_copy(update={"archive": settings.archive.model_copy(update={"url": url})})


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """An archive's address as delta-rs takes it. `folder` is set for a local one; `shown` may be shown."""

    url: str
    shown: str
    folder: Path | None = None
    options: dict[str, str] = {}


def local_folder(url: str) -> Path | None:
    """Where an archive lies that is a folder; None for an object store."""
    scheme, rest = urlsplit(url).scheme if "://" in url else "", url.partition("://")[2]
    return Path(rest if scheme else url).expanduser().absolute() if scheme in ("", "file") else None


def place(url: str, options: Mapping[str, Any] | None = None) -> Place:
    """Raises `SettingsError` for what cannot be, `MissingExtraError` without the packages that it takes."""
    require()
    shown = shown_address(url)
    given = {}
    for name, value in (options or {}).items():
        if not isinstance(value, str | int | float):
            raise SettingsError(f"setting 'archive.options': {name} takes one text, number, true or false")
        given[name] = str(value).lower() if isinstance(value, bool) else str(value)
    if (folder := local_folder(url)) is not None:
        return Place(url=str(folder), shown=shown, folder=folder)
    if urlsplit(url).scheme not in STORES:
        raise SettingsError(
            f"setting 'archive.url': {shown}: write a folder, or one of {', '.join(STORES)}://"
        )
    return Place(url=url.rstrip("/"), shown=shown, options=IMPATIENT | given)


def installed() -> bool:
    """Whether what the archive needs is there; asked without importing it."""
    return all(importlib.util.find_spec(name) is not None for name in PACKAGES)


def require() -> None:
    """Raises `MissingExtraError` unless what the archive needs is installed."""
    if not installed():
        raise MissingExtraError(f"what the archive needs ({', '.join(PACKAGES)})", "archive")
