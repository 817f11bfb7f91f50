"""The system that a campaign troubles: its processes, the links between them, its disks and its judge."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import httpx
from tests.faults.campaign.halves import SETTINGS
from tests.faults.campaign.proxy import Proxy
from tests.faults.campaign.traffic import BROKEN, Gateway
from tests.faults.campaign.truth import BRIEF
from tests.faults.harness import START_SECONDS, System
from tests.faults.processes import Child
from tests.faults.servers import names

from groundwatch.runtime.local.servers import free_port
from groundwatch.topology import DAY

ROOT = Path(__file__).parents[3]
JUDGE = "judge"
TOOLS = "tools"
ARCHIVE = "archive"
SERVICES = {
    "gateway-1": "gateway",
    "gateway-2": "gateway",
    "extraction": "extraction",
    "verification-1": "verification",
    "verification-2": "verification",
    "scoring": "scoring",
    ARCHIVE: "archive",
}
ARCHIVE_DISK = "disk of the archive"
BRIEF_DAYS = 0.0002
"""17 seconds."""

HOT_SECONDS = 20.0
"""So long the streams keep what is archived and no longer in work, at the least."""
COOL_SECONDS = 3.0


class Disk:
    """A small file system of its own under each server's data, and the archive's, where this user may mount
    one."""

    def __init__(self, folder: Path, megabytes: int) -> None:
        self.folder = folder
        self._size = megabytes
        self.mounted = False

    def mount(self) -> None:
        """Mount it; `mounted` says whether that was allowed."""
        self.folder.mkdir(parents=True)
        done = subprocess.run(
            ("mount", "-t", "tmpfs", "-o", f"size={self._size}m", "tmpfs", str(self.folder)),
            capture_output=True,
            check=False,
        )
        self.mounted = done.returncode == 0

    def fill(self) -> None:
        """Leave no byte free."""
        with (self.folder / "ballast").open("ab", buffering=0) as file, contextlib.suppress(OSError):
            free = os.statvfs(self.folder)
            os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_frsize)
            while True:
                file.write(bytes(4096))

    def free(self) -> None:
        """Give the space back."""
        (self.folder / "ballast").unlink(missing_ok=True)

    def unmount(self) -> None:
        """Take it away again."""
        if self.mounted:
            subprocess.run(("umount", "-l", str(self.folder)), check=False)


class Field:
    """A started system, each of its processes behind a proxy of its own."""

    def __init__(self, folder: Path, *, cluster: bool, megabytes: int) -> None:
        self.folder = folder
        self._window = {
            "FAULT_COOL": str(COOL_SECONDS),
            "GROUNDWATCH_ARCHIVE__HOT_DAYS": f"{HOT_SECONDS / DAY:.9f}",
        }
        self.cure = folder / "cured"
        servers = 3 if cluster else 1
        stores = folder / "stores"
        self.disks = {name: Disk(stores / name, megabytes) for name in names(servers)}
        self.disks[ARCHIVE_DISK] = Disk(folder / "archive", megabytes)
        self.archive = str(folder / "archive" / "tables")
        self.judge_port = free_port()
        self.system = System(
            folder,
            engines="claims",
            services={},
            servers=servers,
            stores=stores,
            wait=60,
            settings=self._settings(),
        )
        self.judge = Child(
            JUDGE,
            (sys.executable, "-m", "tests.faults.campaign.judge", "--port", str(self.judge_port)),
            {"PYTHONPATH": os.pathsep.join((str(ROOT), self.system.environment["PYTHONPATH"]))},
            folder / "judge.log",
        )
        self.proxies: dict[str, Proxy] = {}
        self.gateways: list[Gateway] = []
        self.down: set[str] = set()
        """Those that a fault has ended on purpose; the others are started again when they end."""
        self.ended: list[str] = []

    def _settings(self) -> dict[str, str]:
        llm = (
            f'{{base_url="http://127.0.0.1:{self.judge_port}/v1",model="ok",timeout=4.0,retries=1,'
            f"patience=2.0,first_wait=0.1}}"
        )
        ages = ",".join(f"{name}={BRIEF_DAYS}" for name in ("responses", "extracted", "judged", "outcomes"))
        return {
            "FAULT_ACK_WAIT": "0",
            **SETTINGS,
            "FAULT_CURE": str(self.cure),
            "OPENAI_API_KEY": "none",
            "GROUNDWATCH_ARCHIVE__URL": self.archive,
            "GROUNDWATCH_ARCHIVE__FLUSH_SECONDS": "1",
            **self._window,
            "GROUNDWATCH_VERIFICATION__ENGINE": "llm",
            "GROUNDWATCH_VERIFICATION__LLM": llm,
            "GROUNDWATCH_RETENTION__TENANTS": f"{{{BRIEF}={{{ages}}}}}",
        }

    @property
    def children(self) -> dict[str, Child]:
        """Every process, by name."""
        return {**self.system.children, JUDGE: self.judge}

    async def start(self) -> None:
        """Start everything and wait until it is ready."""
        for disk in self.disks.values():
            disk.mount()
        targets = self.system.nats_ports
        for at, (name, service) in enumerate({**SERVICES, TOOLS: ""}.items()):
            proxy = self.proxies[name] = Proxy(targets[at % len(targets) :] + targets[: at % len(targets)])
            await proxy.start()
            if not service:
                continue
            environment = {"GROUNDWATCH_NATS__URL": self.url_of(name)}
            if service == "gateway":
                gateway = Gateway(free_port(), free_port())
                self.gateways.append(gateway)
                environment["GROUNDWATCH_GATEWAY__PORT"] = gateway.url.rpartition(":")[2]
                environment["GROUNDWATCH_GATEWAY__GRPC_PORT"] = str(gateway.grpc_port)
            self.system.services[name] = service
            self.system.add(name, service, free_port(), **environment)
        self.judge.start()
        await asyncio.to_thread(self.system.start)

    def url_of(self, name: str) -> str:
        """Where a process reaches NATS: its own proxy."""
        return f"nats://127.0.0.1:{self.proxies[name].port}"

    async def behave(self, mode: str) -> None:
        """Tell the judge how to behave, as soon as it listens."""
        deadline = time.monotonic() + START_SECONDS
        async with httpx.AsyncClient(trust_env=False, timeout=2.0) as http:
            while True:
                try:
                    await http.post(f"http://127.0.0.1:{self.judge_port}/control", json={"mode": mode})
                    return
                except BROKEN:
                    if time.monotonic() > deadline:
                        raise
                    await asyncio.sleep(0.1)

    async def supervise(self) -> None:
        """Start again whatever ends by itself, as Kubernetes would; until cancelled."""
        while True:
            for name, child in self.children.items():
                if name not in self.down and not child.alive:
                    self.ended.append(f"{name}: {child.status}")
                    child.start()
            await asyncio.sleep(0.5)

    async def serves(self, name: str) -> None:
        """Wait until a service says that it is ready, for as long as any start may take."""
        deadline = time.monotonic() + START_SECONDS
        async with httpx.AsyncClient(trust_env=False, timeout=2.0) as http:
            while self.children[name].alive and time.monotonic() < deadline:
                with contextlib.suppress(*BROKEN):
                    if (await http.get(self.system.readiness(name))).status_code == 200:
                        return
                await asyncio.sleep(0.2)

    async def ended_in(self, name: str, seconds: float) -> bool:
        """Whether the process ends in time."""
        deadline = time.monotonic() + seconds
        while self.children[name].alive:
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(0.05)
        return True

    async def stop(self) -> None:
        """Leave nothing behind."""
        for proxy in self.proxies.values():
            await proxy.stop()
        await asyncio.to_thread(self.system.stop)
        with contextlib.suppress(AssertionError):
            self.judge.end(9, patience=10)
        for disk in self.disks.values():
            disk.unmount()
