"""Whether the service in this container answers /healthz on its telemetry port: exit status 0, else 1."""

from __future__ import annotations

import sys
import urllib.request

from groundwatch.errors import SettingsError
from groundwatch.runtime.settings.reading import load

SECONDS = 5.0


def main() -> int:
    """Ask once; why not, on standard error."""
    try:
        port = load().telemetry.port
        if not port:
            sys.stderr.write("telemetry.port is 0, a port that only the log tells: set it\n")
            return 1
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=SECONDS) as reply:
            return 0 if reply.status == 200 else 1
    except (OSError, SettingsError) as error:
        sys.stderr.write(f"{error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
