"""What a person on call is promised, tried: NATS, a gateway, a stage, Triton, a disk and a certificate fail.

Every service is a process of its own on this machine, as in a cluster. Each drill breaks one thing, looks at
what senders and `/readyz` are told meanwhile, mends it, and counts the ledger. `ok` is true when all of them
held; a drill that this machine cannot play says why in `skipped`. About a minute.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.faults.harness import NATS, System
from tests.faults.processes import Child

from groundwatch.errors import CheckFailed, GroundwatchError
from groundwatch.runtime.local.servers import free_port

SECONDS = 60.0
"""Until what is promised must be seen."""

NEAR = 2 * 86_400.0
ROOM, FULL = "8g", "1m"


class Drills:
    """One system, and each drill as a method: it returns what was seen, and raises `CheckFailed`."""

    def __init__(self, system: System, disk: Path | None) -> None:
        self._system = system
        self._disk = disk
        self._sent = 0

    def nats(self) -> dict[str, Any]:
        """Away: gateways stay ready and say when to come again; back: everything goes on by itself."""
        self._taken()
        self._system.kill(NATS)
        try:
            reply = self._post()
            told = f"a sender was told {reply.status_code} {reply.text[:100]}"
            _demand(reply.status_code == 503 and "retry-after" in reply.headers, told)
            notes = self._wait_for_note("gateway", "NATS")
        finally:
            self._system.children[NATS].start()
        since = time.monotonic()
        self._until_taken()
        return {"notes": notes, "seconds_until_taken": time.monotonic() - since}

    def gateway(self) -> dict[str, Any]:
        """Killed with answers in the air: what was acknowledged is judged, what comes twice counts once."""
        ids = [self._taken() for _ in range(5)]
        self._system.kill("gateway")
        with contextlib.suppress(httpx.TransportError):
            raise CheckFailed(f"a gateway that is dead answered {self._post()}")
        since = time.monotonic()
        self._system.children["gateway"].start()
        self._system.wait_ready("gateway")
        repeated = [self._post(one).json().get("status") for one in ids]
        _demand(set(repeated) == {"duplicate"}, f"repeats are {repeated}")
        return {"seconds_until_ready": time.monotonic() - since}

    def stage(self) -> dict[str, Any]:
        """Killed: its events wait in the stream; started again, it judges them."""
        self._settled()
        self._system.kill("scoring")
        for _ in range(5):
            self._taken()
        self._until(lambda: self._system.audit().in_flight == 5, "five wait for scoring")
        self._system.children["scoring"].start()
        return {"waited": 5}

    def triton(self) -> dict[str, Any]:
        """Dead: the stage that asks it says so by its true cause, and takes up no event in vain."""
        port = free_port()
        settings = {
            "GROUNDWATCH_VERIFICATION__ENGINE": "triton",
            "GROUNDWATCH_TRITON__URL": f"127.0.0.1:{free_port()}",
            "GROUNDWATCH_TELEMETRY__PORT": str(port),
        }
        command = (sys.executable, "-m", "groundwatch", "serve", "verification")
        log = self._system.folder / "triton.log"
        stage = Child("triton", command, self._system.environment | settings, log)
        stage.start()
        try:
            return {"problems": self._wait_for_note(f"http://127.0.0.1:{port}/readyz", "triton", ready=False)}
        finally:
            stage.end()

    def disk(self) -> dict[str, Any]:
        """Full: senders get 503 and nothing is dropped; with room and a restart it goes on."""
        if self._disk is None:
            return {"skipped": "no file system of its own may be mounted here"}
        _resize(self._disk, FULL)
        self._until(lambda: self._post().status_code == 503, "a sender is refused")
        notes = self._wait_for_note("gateway", "store")
        _resize(self._disk, ROOM)
        self._system.kill_and_restart(NATS)
        self._until_taken()
        return {"notes": notes}

    def certificate(self) -> dict[str, Any]:
        """Near its end it is in the metrics, for the alert; renewed and loaded anew it is not."""
        files = [self._system.folder / name for name in ("grpc.crt", "grpc.key")]
        settings = dict(zip(("TLS_CERT", "TLS_KEY"), map(str, files), strict=True))
        variables = {f"GROUNDWATCH_GATEWAY__GRPC__{name}": value for name, value in settings.items()}
        left = []
        self._system.add("door", "gateway", port := free_port(), **variables)
        door = self._system.children["door"]
        for days in (1, 90):
            _write_certificate(*files, days=days)
            door.start(GROUNDWATCH_GATEWAY__GRPC_PORT="0", GROUNDWATCH_GATEWAY__PORT=str(free_port()))
            self._system.wait_ready("door")
            text = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=10).text
            end = re.findall(
                r'^groundwatch_certificate_end_time_seconds\{.*grpc\.tls_cert"\} (\S+)', text, re.M
            )
            _demand(len(end) == 1, "the certificate is not in the metrics")
            left.append(float(end[0]) - time.time())
            door.end()
        _demand(left[0] < NEAR < left[1], f"the certificates end in {left} s")
        return {"seconds_left": left}

    def books(self) -> None:
        """Everything that was acknowledged has its outcome, once."""
        ledger = self._settled()
        _demand(ledger.balanced and ledger.lost == 0, f"the ledger does not balance: {ledger}")

    def _post(self, id: str = "") -> httpx.Response:
        self._sent += not id
        body = {"id": id or f"drill-{self._sent}", "model": "heron-7b", "answer": "There is a dog."}
        address = f"http://127.0.0.1:{self._system.gateway_port}/v1/responses"
        return httpx.post(address, json=body, timeout=SECONDS)

    def _taken(self) -> str:
        reply = self._post()
        _demand(reply.status_code == 202, f"a sender was told {reply.status_code} {reply.text[:200]}")
        return f"drill-{self._sent}"

    def _until_taken(self) -> None:
        self._until(lambda: self._post().status_code == 202, "a response is taken")

    def _settled(self) -> Any:
        self._until(lambda: not self._system.audit().in_flight, "nothing is in flight")
        return self._system.audit()

    def _wait_for_note(self, place: str, word: str, *, ready: bool = True) -> list[str]:
        """What `/readyz` tells, once one of its notes, or problems where it is not `ready`, has the word."""
        address = place if place.startswith("http") else self._system.readiness(place)
        found: list[str] = []

        def noted() -> bool:
            with contextlib.suppress(httpx.TransportError):
                reply = httpx.get(address, timeout=10)
                told = reply.json().get("notes" if ready else "problems", ())
                found[:] = [str(one) for one in told if word in str(one)]
                return bool(found) and (reply.status_code == 200) is ready
            return False

        self._until(noted, f"{place} answers and has a note of {word}")
        return found

    @staticmethod
    def _until(holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + SECONDS
        while not holds():
            _demand(time.monotonic() < deadline, f"not seen within {SECONDS:.0f} s: {what}")
            time.sleep(0.1)


def _demand(holds: bool, why: str) -> None:
    if not holds:
        raise CheckFailed(why)


def _write_certificate(certificate: Path, key: Path, *, days: int) -> None:
    import trustme

    end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)
    issued = trustme.CA().issue_cert("localhost", not_after=end)
    certificate.write_bytes(issued.cert_chain_pems[0].bytes())
    key.write_bytes(issued.private_key_pem.bytes())


def _resize(disk: Path, size: str) -> None:
    subprocess.run(("mount", "-o", f"remount,size={size}", str(disk)), check=True)


@contextlib.contextmanager
def _own_disk(place: Path) -> Iterator[Path | None]:
    place.mkdir()
    mounting = ("mount", "-t", "tmpfs", "-o", f"size={ROOM}", "tmpfs", str(place))
    try:
        mounted = subprocess.run(mounting, capture_output=True).returncode == 0
    except FileNotFoundError:
        mounted = False
    try:
        yield place if mounted else None
    finally:
        if mounted:
            subprocess.run(("umount", "--lazy", str(place)), check=True)


def play() -> dict[str, Any]:
    """Every drill, one after the other, on one system."""
    found: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="groundwatch-drills-")))
        disk = stack.enter_context(_own_disk(folder / "disk"))
        system = System(folder, stores=folder / "disk")
        stack.callback(system.stop)
        system.start()
        drills = Drills(system, disk)
        for name in ("nats", "gateway", "stage", "triton", "disk", "certificate"):
            since = time.monotonic()
            try:
                told = getattr(drills, name)()
                drills.books()
                found[name] = {"ok": True, **told, "seconds": time.monotonic() - since}
            except (GroundwatchError, AssertionError, httpx.HTTPError) as error:
                found[name] = {"ok": False, "why": str(error)[:500] or type(error).__name__}
    return {**found, "ok": all(one["ok"] for one in found.values())}


async def measure() -> dict[str, Any]:
    """The drills, in a thread: they wait."""
    return await asyncio.to_thread(play)
