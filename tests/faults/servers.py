"""The NATS servers of a system under test: one, or a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.faults.processes import Child

from groundwatch.runtime.local.servers import find_binary, free_port

NATS = "nats"


def names(count: int) -> list[str]:
    """What so many servers are called here."""
    return [NATS] if count == 1 else [f"{NATS}-{number}" for number in range(1, count + 1)]


def servers(folder: Path, stores: Path, ports: Sequence[int]) -> list[Child]:
    """A server for each port, with its data below `stores`, all of one cluster.

    They tell clients nothing of each other: one that learnt the other addresses would go round a proxy that
    stands before its own. They take all of the disk, so that it can be full.
    """
    routes = [free_port() for _ in ports]
    children = []
    for name, port, route in zip(names(len(ports)), ports, routes, strict=True):
        others = ", ".join(f'"nats-route://127.0.0.1:{other}"' for other in routes if other != route)
        clustered = (
            f'cluster {{ name: "campaign", host: "127.0.0.1", port: {route}, no_advertise: true, '
            f"routes: [{others}] }}\n"
        )
        config = folder / f"{name}.conf"
        config.write_text(
            f'server_name: "{name}"\nhost: "127.0.0.1"\nport: {port}\nmax_payload: 8388608\n'
            f'jetstream {{ store_dir: "{stores / name}", max_file_store: 64GB }}\n'
            f"{clustered if others else ''}"
        )
        children.append(Child(name, (find_binary(), "-c", str(config)), {}, folder / f"{name}.log"))
    return children
