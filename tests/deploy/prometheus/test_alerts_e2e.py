"""The real Prometheus and Alertmanager against the running system: silent while all is well, then not.

The rules are the shipped ones with all times divided by `SCALE`, as `deploy/prometheus/rules.py` writes them:
an hour lasts half a minute. Traffic is the recorded demo's: good answers over and over, then the bad half.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from itertools import count, cycle, islice
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.deploy.prometheus.conftest import RULES, need

from groundwatch.runtime.local.servers import free_port
from groundwatch.runtime.settings import AlarmSettings, Settings
from groundwatch.runtime.settings.gateway import GatewaySettings
from groundwatch.system.up import whole_system

SCALE = 120
HOUR = 3_600 / SCALE
RATE = 10
"""Answers a second: 300 in the hour, as a small service has."""

MODELS = {"heron-7b", "osprey-13b"}
ABOUT_MODELS = {
    "GroundwatchHallucinationRateAboveObjective",
    "GroundwatchModelWorseThanLastWeek",
    "GroundwatchVersionWorseThanSibling",
    "GroundwatchModelAlarmRaised",
}
RIGHT = "GroundwatchHallucinationRateAboveObjective"


class Webhook:
    """An HTTP server that keeps the alerts that Alertmanager sends it."""

    def __init__(self) -> None:
        self.alerts: list[dict[str, Any]] = []
        keep = self.alerts

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                keep.extend(json.loads(body)["alerts"])
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"

    def __enter__(self) -> Webhook:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()

    def firing(self) -> list[dict[str, str]]:
        """Labels of all alerts that it was told of as firing."""
        return [alert["labels"] for alert in self.alerts if alert["status"] == "firing"]


@contextlib.contextmanager
def program(name: str, log: Path, *arguments: str) -> Iterator[None]:
    """A child process that is ended with the block."""
    with log.open("w") as out:
        child = subprocess.Popen([need(name), *arguments], stdout=out, stderr=subprocess.STDOUT)
        try:
            yield
        finally:
            child.terminate()
            child.wait(30)


@contextlib.contextmanager
def monitoring(
    folder: Path, gateway: str, webhook: str, *compressed: str, labels: dict[str, str] | None = None
) -> Iterator[str]:
    """Prometheus with the compressed rules, and Alertmanager; where Prometheus is.

    `labels` are those of the target, as service discovery would give it some.
    """
    rules = folder / "fast.rules.yaml"
    rules.write_bytes(
        subprocess.run(
            [sys.executable, str(RULES.with_name("rules.py")), *(compressed or ("--scale", str(SCALE)))],
            check=True,
            capture_output=True,
        ).stdout
    )
    at, alerting = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    (folder / "alertmanager.yml").write_text(
        json.dumps(
            {
                "route": {
                    "receiver": "hook",
                    "group_by": ["alertname", "model"],
                    "group_wait": "100ms",
                    "group_interval": "500ms",
                },
                "receivers": [{"name": "hook", "webhook_configs": [{"url": webhook}]}],
            }
        )
    )
    (folder / "prometheus.yml").write_text(
        json.dumps(
            {
                "global": {
                    "scrape_interval": "500ms",
                    "scrape_timeout": "500ms",
                    "evaluation_interval": "500ms",
                },
                "rule_files": [str(rules)],
                "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alerting]}]}]},
                "scrape_configs": [
                    {
                        "job_name": "groundwatch",
                        "static_configs": [
                            {"targets": [gateway.removeprefix("http://")], "labels": labels or {}}
                        ],
                    }
                ],
            }
        )
    )
    with (
        program(
            "prometheus-alertmanager",
            folder / "alertmanager.log",
            f"--config.file={folder / 'alertmanager.yml'}",
            f"--storage.path={folder / 'alertmanager'}",
            f"--web.listen-address={alerting}",
            "--cluster.listen-address=",
        ),
        program(
            "prometheus",
            folder / "prometheus.log",
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'tsdb'}",
            f"--web.listen-address={at}",
        ),
    ):
        yield f"http://{at}"


class Traffic:
    """Sends answers of the recorded demo, as an application would."""

    def __init__(self, gateway: str) -> None:
        text = resources.files("groundwatch.demo").joinpath("answers.jsonl").read_text()
        answers = [json.loads(line) for line in text.splitlines()]
        half = len(answers) // 2
        self.good = answers[:half]
        self.bad = answers[half:]
        self._numbers = count()
        self._gateway = gateway

    async def send(self, answers: list[dict[str, Any]], seconds: float) -> AsyncIterator[int]:
        """`RATE` a second for so long, over and over, each under an id of its own."""
        began = time.monotonic()
        async with httpx.AsyncClient(base_url=self._gateway, timeout=60) as http:
            for number, answer in enumerate(islice(cycle(answers), round(seconds * RATE))):
                await asyncio.sleep(max(0.0, began + number / RATE - time.monotonic()))
                reply = await http.post("/v1/responses", json=answer | {"id": f"e2e-{next(self._numbers)}"})
                assert reply.status_code == 202, reply.text
                yield number


async def query(http: httpx.AsyncClient, expression: str) -> dict[str, float]:
    """Values by model."""
    reply = await http.get("/api/v1/query", params={"query": expression})
    return {one["metric"].get("model", ""): float(one["value"][1]) for one in reply.json()["data"]["result"]}


async def until_judged(http: httpx.AsyncClient, sent: int) -> None:
    """Wait until Prometheus has seen outcomes of nearly all that was sent."""
    for _ in range(600):
        found = await query(http, "sum(groundwatch_outcomes_total)")
        if found.get("", 0) >= sent - 2:
            return
        await asyncio.sleep(0.1)
    pytest.fail(f"{found} of {sent} answers were judged")


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_good_hour_is_silent_and_the_bad_half_wakes_somebody(tmp_path: Path) -> None:
    settings = Settings(gateway=GatewaySettings(port=0), alarm=AlarmSettings(objective=0.05))
    with Webhook() as webhook:
        async with (
            whole_system(settings, tmp_path) as system,
            contextlib.AsyncExitStack() as stack,
        ):
            prometheus = stack.enter_context(monitoring(tmp_path, system.gateway_url, webhook.url))
            http = await stack.enter_async_context(httpx.AsyncClient(base_url=prometheus, timeout=30))
            traffic = Traffic(system.gateway_url)

            async for _ in traffic.send(traffic.good, HOUR):
                pass
            await until_judged(http, round(HOUR * RATE))
            # The silence means something only while the rules see the traffic.
            seen = await query(
                http, 'model:groundwatch_fact_moments:increase{moment="responses", window="1h"}'
            )
            assert set(seen) == MODELS
            assert min(seen.values()) >= 50
            rules = (await http.get("/api/v1/rules")).json()["data"]["groups"]
            assert {rule["health"] for group in rules for rule in group["rules"]} == {"ok"}
            assert webhook.firing() == []

            fired: list[dict[str, str]] = []
            async for _ in traffic.send(traffic.bad, HOUR):
                fired = [labels for labels in webhook.firing() if labels["alertname"] == RIGHT]
                if fired:
                    break
            for _ in range(300):
                if fired:
                    break
                await asyncio.sleep(0.1)
                fired = [labels for labels in webhook.firing() if labels["alertname"] == RIGHT]
            assert fired, [labels["alertname"] for labels in webhook.firing()]
            assert fired[0]["model"] == "osprey-13b"
            assert fired[0]["severity"] == "critical"
            about = [labels for labels in webhook.firing() if labels["alertname"] in ABOUT_MODELS]
            assert {labels["model"] for labels in about} == {"osprey-13b"}
            assert about == webhook.firing()
            (told,) = [
                alert["annotations"]
                for alert in webhook.alerts
                if alert["labels"] == fired[0] and alert["status"] == "firing"
            ][:1]
            assert "the objective is 5%" in told["summary"]
            assert told["runbook_url"] == f"docs/runbooks/{RIGHT}.md"
