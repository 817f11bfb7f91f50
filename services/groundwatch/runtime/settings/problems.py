"""What is wrong with settings, one line each, and what is only worth knowing."""

import re

from groundwatch.errors import SettingsError

_KEY = re.compile(r"(?:.*: )?setting '([^']*)': (.*)", re.DOTALL)


class Problems:
    """Wrong settings: once for each key, and nothing that follows from a wrong key in it or above it."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.notes: list[str] = []
        self._keys: list[list[str]] = []

    def add(self, key: str, why: str, *, origin: str = "") -> None:
        """A wrong setting, and the file or variable that says so."""
        parts = re.split(r"[.\[]", key)
        if any(parts[: len(one)] == one[: len(parts)] for one in self._keys):
            return
        self._keys.append(parts)
        self.found.append(f"{origin}: setting '{key}': {why}" if origin else f"setting '{key}': {why}")

    def add_error(self, error: SettingsError) -> None:
        """What somebody who reads a part of the settings raised."""
        for line in error.problems:
            if named := _KEY.fullmatch(line):
                self.add(named[1], named[2])
            else:
                self.found.append(line)

    def note(self, key: str, why: str) -> None:
        """A setting that is allowed and may not be meant."""
        self.notes.append(f"setting '{key}': {why}")
