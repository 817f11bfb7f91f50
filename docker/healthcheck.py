"""Whether the service in this container answers /healthz on its telemetry port: exit status 0, else 1.

It runs every few seconds in every container, so it imports next to nothing: `python3 -S -E healthcheck.py`.
"""

from __future__ import annotations

import os
import socket
import sys

SECONDS = 5.0
PORT = "GROUNDWATCH_TELEMETRY__PORT"
CONFIG = "GROUNDWATCH_CONFIG"


def telemetry_port() -> int:
    """As settings say: the environment, else the file; 0 where neither does."""
    if os.environ.get(PORT):
        return int(os.environ[PORT])
    if not os.environ.get(CONFIG):
        return 0
    import tomllib

    with open(os.environ[CONFIG], "rb") as file:  # noqa: PTH123
        return int(tomllib.load(file).get("telemetry", {}).get("port", 0))


def main() -> int:
    """Ask once; why not, on standard error."""
    try:
        port = telemetry_port()
        if not port:
            sys.stderr.write("telemetry.port is 0, a port that only the log tells: set it\n")
            return 1
        with socket.create_connection(("127.0.0.1", port), SECONDS) as connection:
            connection.settimeout(SECONDS)
            connection.sendall(b"GET /healthz HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
            reply = connection.recv(64)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if reply.split(b" ", 2)[1:2] == [b"200"]:
        return 0
    sys.stderr.write(f"/healthz: {reply.splitlines()[0][:60].decode('latin-1') if reply else 'no answer'}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
