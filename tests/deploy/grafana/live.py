"""A running system under a real Prometheus, with the recorded demo's traffic, for the dashboards.

`python -m tests.deploy.grafana.live --seconds 600` runs it for longer, to look at in Grafana.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import io
import itertools
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import trustme
from PIL import Image
from prometheus_client import CollectorRegistry, Gauge, start_http_server
from tests.deploy.grafana.reviewing import make_queue, review
from tests.support.llm_server import LlmServer, picture
from tests.support.llm_server import running as llm_server

from groundwatch.demo.shared import settled
from groundwatch.gateway.budgets import Budget, put
from groundwatch.ledger.ledger import AuditMetrics, audit
from groundwatch.models.settings import ChatSettings
from groundwatch.replay import service as serving
from groundwatch.replay.running import begin, pause
from groundwatch.replay.runs import Runs
from groundwatch.replay.service import ReplayService
from groundwatch.replay.spec import Spec
from groundwatch.runtime.local.servers import NatsServer
from groundwatch.runtime.settings import (
    AlarmSettings,
    ArchiveSettings,
    ExtractionSettings,
    NatsSettings,
    Settings,
    StageSettings,
)
from groundwatch.runtime.settings.gateway import GatewaySettings, GrpcSettings, SamplingRule
from groundwatch.runtime.settings.judges import CascadeStep
from groundwatch.system.up import System, whole_system
from groundwatch.topology import subject_of
from groundwatch_benchmarks.probing import suites
from groundwatch_benchmarks.probing.probe import Canary, Plan
from groundwatch_benchmarks.probing.suites import Target

SCRAPE = 1.0
PLACE = {"cluster": "here", "namespace": "demo"}
TENANTS = ("museum", "shop", "shop", "archive", "archive", "archive")
UNSAMPLED = "mirror"
"""A tenant whose answers the gateway's sampling declines."""

BUDGETED = "thrifty"
"""A tenant with a budget that it passes at once."""

PEOPLE = (("supported", "supported", 80), ("refuted", "refuted", 15), ("refuted", "supported", 5))
ALARM = AlarmSettings(objective=0.12)
COLOURS = ("red", "green", "blue", "black", "white")
ODDITIES = 12
THINGS = ("dog", "cat", "ball", "chair", "tree", "car", "boat")


class Watched(msgspec.Struct, frozen=True, kw_only=True):
    """Where Prometheus answers, and since when it scrapes a system that works."""

    prometheus: str
    gateway: str
    start: float


def prometheus_binary() -> str | None:
    """The real Prometheus, if this machine has one."""
    return shutil.which("prometheus")


@contextlib.contextmanager
def prometheus(folder: Path, targets: Sequence[str]) -> Iterator[str]:
    """A Prometheus that scrapes these addresses every second; gives its URL."""
    port = _free_port()
    config = {
        "global": {"scrape_interval": f"{SCRAPE:g}s"},
        "scrape_configs": [
            {"job_name": "groundwatch", "static_configs": [{"targets": list(targets), "labels": PLACE}]}
        ],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))
    arguments = [
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        child = subprocess.Popen([prometheus_binary() or "prometheus", *arguments], stdout=log, stderr=log)
    try:
        url = f"http://127.0.0.1:{port}"
        _wait(lambda: httpx.get(f"{url}/-/ready").status_code == 200, f"{folder / 'prometheus.log'}")
        yield url
    finally:
        child.terminate()
        child.wait(20)


@contextlib.asynccontextmanager
async def watched(folder: Path, seconds: float, rounds: int = 1, thin: int = 1) -> AsyncIterator[Watched]:
    """Everything, with all of its traffic sent within `seconds` and settled.

    Two systems: one with the embedded judges and every `thin`-th of the recorded demo's answers, `rounds`
    times over, one whose judge is a language model's endpoint that wants money; and two canaries. Two people
    review what the first system judged.
    """
    # Slow to import where others work too: no service waits for its engine meanwhile.
    for slow in ("sentence_transformers", "openai"):
        await asyncio.to_thread(importlib.import_module, slow)
    async with contextlib.AsyncExitStack() as stack:
        llm = stack.enter_context(llm_server())
        server = await stack.enter_async_context(_nats(folder / "nats"))
        demo = await stack.enter_async_context(whole_system(_demo(folder, server), folder / "demo"))
        paid = await stack.enter_async_context(whole_system(_paid(llm), folder / "paid"))
        # Before the traffic; what a budget of one response a minute does not let through is declined.
        await put(demo.bus.js, "remarks", Budget(tenant=BUDGETED, responses_per_minute=1))
        await make_queue(demo.bus)
        canaries = [_canary(llm, folder, model) for model in ("looks", "looks:0.2")]
        ports = []
        auditor = AuditMetrics()
        auditor.show(await audit(demo.bus.js, "live"), 1.0)
        for registry in (*(canary.metrics.registry for canary in canaries), auditor.registry, _people()):
            server, thread = start_http_server(0, addr="127.0.0.1", registry=registry)
            stack.callback(thread.join, 5)
            stack.callback(server.shutdown)
            ports.append(server.server_port)
        targets = [url.removeprefix("http://") for url in (demo.gateway_url, paid.gateway_url)]
        url = stack.enter_context(prometheus(folder, [*targets, *(f"127.0.0.1:{port}" for port in ports)]))
        start = time.time()
        await asyncio.sleep(2 * SCRAPE)
        await asyncio.gather(
            _send(demo.gateway_url, demo_answers(rounds, thin), seconds),
            _simple(paid, seconds, rounds),
            _oddities(demo, seconds),
            *(_run_canary(canary, seconds) for canary in canaries),
        )
        for system in (demo, paid):
            await settled(system)
        await review(demo.bus)
        await _replays(paid, stack, seconds)
        await asyncio.sleep(3 * SCRAPE)
        yield Watched(prometheus=url, gateway=demo.gateway_url, start=start)


async def _replays(system: System, stack: contextlib.AsyncExitStack, seconds: float) -> None:
    """A replay with the same judge, which the cache answers, one that is paused, and one at its pace.

    The replay service works at them as in a process of its own, and is scraped with the gateway.
    """
    await asyncio.sleep(2 * SCRAPE)
    # This process does other work too, which must not go last.
    serving.prefer_others = lambda: None
    service = ReplayService(system.settings, system.bus, system.metrics)
    again, stands, slow = (
        Spec(run=name, speed=speed) for name, speed in (("again", 0.0), ("stands", 0.0), ("slow", 0.5))
    )
    await begin(system.bus, system.settings, stands)
    await pause(await Runs.open(system.bus.js), "stands")
    for spec in (again, slow):
        await begin(system.bus, system.settings, spec)
    await service.start()
    stack.push_async_callback(service.drain, 10.0)
    deadline = time.monotonic() + 120
    while (await (await Runs.open(system.bus.js)).get("again")).status != "done":
        assert time.monotonic() < deadline
        await asyncio.sleep(0.2)
    await asyncio.sleep(max(12.0, seconds / 10))


def _people() -> CollectorRegistry:
    """What `groundwatch validate verdicts --metrics-file` writes, as node_exporter shows it."""
    registry = CollectorRegistry()
    verdicts = Gauge("groundwatch_people_verdicts", "…", ("protocol", "people", "judge"), registry=registry)
    for people, judge, number in PEOPLE:
        verdicts.labels("faithscore", people, judge).set(number)
    return registry


@contextlib.asynccontextmanager
async def _nats(folder: Path) -> AsyncIterator[NatsServer]:
    """A server with a limit of its memory, which tells of itself."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("GOMEMLIMIT", "512MiB")
        server = NatsServer(folder, monitored=True)
        await server.start()
    try:
        yield server
    finally:
        await server.stop()


def _demo(folder: Path, server: NatsServer) -> Settings:
    rules = (SamplingRule(rate=0.0, tenant=UNSAMPLED),)
    issued = trustme.CA().issue_cert("localhost")
    certificate, key = folder / "grpc.crt", folder / "grpc.key"
    certificate.write_bytes(issued.cert_chain_pems[0].bytes())
    key.write_bytes(issued.private_key_pem.bytes())
    grpc = GrpcSettings(tls_cert=str(certificate), tls_key=str(key))
    return Settings(
        nats=NatsSettings(url=server.url, monitor_url=f"http://127.0.0.1:{server.monitor_port}"),
        gateway=GatewaySettings(port=0, grpc_port=0, grpc=grpc, sampling=rules),
        alarm=ALARM,
        archive=ArchiveSettings(url=str(folder / "archive"), flush_seconds=1.0),
    )


def _paid(llm: LlmServer) -> Settings:
    stage = StageSettings(
        engine="llm",
        llm=ChatSettings(base_url=llm.base_url, model="ok:0.03", input_price=0.15, output_price=0.6),
    )
    steps = CascadeStep(engine="reference"), CascadeStep(engine="llm")
    row = StageSettings(engine="cascade", llm=stage.llm, cascade=steps)
    return Settings(
        gateway=GatewaySettings(port=0),
        extraction=ExtractionSettings(**dict(stage)),
        verification=row,
        alarm=ALARM,
    )


def demo_answers(rounds: int, thin: int) -> list[dict[str, Any]]:
    """The recorded demo's answers, first those from before the second model turns bad, `rounds` times each.

    The tag `version` says when: the new version is what turns it.
    """
    lines = resources.files("groundwatch.demo").joinpath("answers.jsonl").read_bytes().splitlines()
    answers = [json.loads(line) for line in lines]
    tenants = itertools.cycle(TENANTS)
    made = []
    for half, part in enumerate((answers[: len(answers) // 2], answers[len(answers) // 2 :])):
        for turn in range(rounds):
            for answer in part[::thin]:
                version = "2.0" if half and answer["model"].startswith("osprey") else "1.0"
                tags = answer.get("tags", {}) | {"version": version}
                name = f"{answer['id']}-{half}-{turn}"
                made.append({**answer, "id": name, "tenant": next(tenants), "tags": tags})
    return made


async def _simple(system: System, seconds: float, rounds: int) -> None:
    """Plain answers of a third model, one in eight of them about something that is not there."""
    answers = []
    for number in range(40 * rounds):
        thing, colour = THINGS[number % len(THINGS)], COLOURS[number % len(COLOURS)]
        said = THINGS[(number + 3) % len(THINGS)] if number % 8 == 5 else thing
        answers.append(
            {
                "id": f"simple-{number}",
                "model": "kestrel-3b",
                "tenant": "depot",
                "answer": f"There is a {colour} {said}.",
                "reference": {"objects": [thing, colour], "complete": True},
            }
        )
    await _send(system.gateway_url, answers, seconds)


async def _oddities(system: System, seconds: float) -> None:
    """What goes wrong now and then: a dead letter, unscored and declined answers, refused ones; images."""
    remark = {
        "model": "heron-7b",
        "tenant": "museum",
        "answer": "It was probably a lovely day for all.",
    }
    unsampled = {"model": "heron-7b", "tenant": UNSAMPLED, "answer": "There is a dog."}
    thrifty = {"model": "heron-7b", "tenant": BUDGETED, "answer": "There is a dog."}
    async with httpx.AsyncClient(base_url=system.gateway_url, timeout=60) as http:
        for number in range(ODDITIES):
            answers = [
                {"id": f"{name}-{number}", **answer}
                for name, answer in (("remark", remark), ("unsampled", unsampled), ("thrifty", thrifty))
            ]
            await _send(system.gateway_url, answers, seconds / ODDITIES)
            picture_of_it = io.BytesIO()
            Image.new("RGB", (64, 48), COLOURS[number % 3]).save(picture_of_it, "PNG")
            kind = {"content-type": "image/png"}
            stored = await http.post("/v1/images", content=picture_of_it.getvalue(), headers=kind)
            assert stored.status_code == 200, stored.text
            if number % 3 == 1:
                kind = {"content-type": "application/json"}
                refused = await http.post("/v1/responses", content=b"{", headers=kind)
                assert refused.status_code >= 400, refused.text
            if number == ODDITIES // 2:
                await system.bus.js.publish(subject_of("recorded", "live", "0" * 32), b"not an event")


async def _send(gateway: str, answers: Sequence[dict[str, Any]], seconds: float) -> None:
    began = time.monotonic()
    async with httpx.AsyncClient(base_url=gateway, timeout=60) as http:
        for number, answer in enumerate(answers):
            await asyncio.sleep(max(0.0, began + number * seconds / len(answers) - time.monotonic()))
            for _ in range(10):
                # All of them share this process, which may stand still for long.
                if (reply := await http.post("/v1/responses", json=answer)).status_code != 503:
                    break
                await asyncio.sleep(float(reply.headers["retry-after"]))
            assert reply.status_code in (200, 202), reply.text


def _canary(llm: LlmServer, folder: Path, model: str) -> Canary:
    """A canary that asks this model POPE's questions about four images, two of which show a dog."""
    benchmark = folder / "benchmark"
    (benchmark / "images").mkdir(parents=True, exist_ok=True)
    lines = []
    for number, words in enumerate(("dog", "cat", "dog tree", "tree"), start=1):
        (benchmark / "images" / f"{number}.png").write_bytes(picture(words))
        label = "yes" if "dog" in words else "no"
        line = {"question_id": number, "image": f"{number}.png", "label": label}
        lines.append(json.dumps(line | {"text": "Is there a dog in the image?"}))
    (benchmark / "coco_pope_random.json").write_text("\n".join(lines))
    target = Target(url=llm.base_url, model=model, retries=0, patience=0.1)
    rounds = folder / f"rounds-{len(model)}"
    plan = Plan(target=target, folder=rounds, source="here", limit=4)
    return Canary(suites.benchmark("pope", benchmark), plan, Settings(), fresh=False, submit="")


async def _run_canary(canary: Canary, seconds: float) -> None:
    stopped = asyncio.Event()
    every = max(2.0, seconds / 20)
    await canary.run(every, max(2, int(seconds / every)), stopped, lambda told: None)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def _wait(holds: Any, what: str) -> None:
    for _ in range(300):
        with contextlib.suppress(httpx.HTTPError):
            if holds():
                return
        time.sleep(0.1)
    raise RuntimeError(f"did not become ready: see {what}")


async def _main(seconds: float, rounds: int) -> None:
    with tempfile.TemporaryDirectory(prefix="groundwatch-dashboards-") as folder:
        async with watched(Path(folder), seconds, rounds) as found:
            sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
            sys.stdout.flush()
            await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    reading = argparse.ArgumentParser(description=__doc__)
    reading.add_argument("--seconds", type=float, default=600.0, help="how long the traffic lasts")
    reading.add_argument("--rounds", type=int, default=4, help="how often the demo's answers are sent")
    told = reading.parse_args()
    asyncio.run(_main(told.seconds, told.rounds))
