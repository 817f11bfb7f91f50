"""Where the archive of given settings lies."""

from __future__ import annotations

from pathlib import Path

from groundwatch.archive.store import installed
from groundwatch.runtime.settings import Settings

SWITCHED_OFF = "off"
FOLDER = "archive"
"""Below the data folder of `groundwatch up`, where settings say nothing else."""


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
