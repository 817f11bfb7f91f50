"""The demo as it runs: the live one, and one of answers written beforehand, so that no model is needed.

In the live demo served models answer about images, a verifier looks, and half way a worse one is rolled out.
No answer has a reference. The world of the images is one whose truth is known, so what the monitor says can
be held against it at the end; the monitor itself is not told.
"""

import asyncio
import contextlib
import importlib.util
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from importlib import resources
from pathlib import Path
from typing import TypeAlias

import httpx

from groundwatch.demo.application import Application, Sent, asked_about, served_name
from groundwatch.demo.findings import Findings, LiveFindings, Rollout, Watched, alarms_of
from groundwatch.demo.shared import ALARM, Screen, metrics_of, settled, tasks
from groundwatch.errors import MissingExtraError, TransientError, UsageError
from groundwatch.events import LIVE
from groundwatch.models.repository import ServedModel, missing_checkpoints
from groundwatch.models.settings import DetectorSettings, TritonSettings
from groundwatch.models.triton import TritonModels
from groundwatch.reporting.alarms import tell
from groundwatch.reporting.live import LiveView
from groundwatch.runtime.delivery.outcomes import read_outcomes
from groundwatch.runtime.local.triton_server import TritonServer, find_distribution
from groundwatch.runtime.settings import CaptioningSettings, Settings, StageSettings
from groundwatch.runtime.settings.gateway import GatewaySettings
from groundwatch.runtime.settings.judges import CascadeStep, EngineSettings
from groundwatch.system.up import MINIATURE, System, whole_system
from groundwatch.terminal import Group, RenderableType, Text, styled

Over: TypeAlias = Callable[[Findings, System], Awaitable[None]]
"""What is done at the end of a demo, before it goes down."""

ANSWERS = 360
FEWEST = 8

TURNING = "osprey"
"""The product whose new version is worse."""

PATIENCE = 300.0
"""Seconds without any outcome after which something is wrong."""

JUDGES = EngineSettings(
    engine="cascade", cascade=(CascadeStep(engine="detector"), CascadeStep(engine="triton"))
)
"""The detector shows where; what it leaves open is for the verifier."""

LOAD_AT = 0.25
"""The share of all answers after which the new version is loaded, beside the traffic."""

_GOOD, _WORSE, _VERIFIER, _DETECTOR = "lvlm_good", "lvlm_biased", "verifier", "detector"


def _served(kind: str, checkpoint: str) -> ServedModel:
    # One thread each: the processes of several small models would else fight for the cores.
    return ServedModel(kind=kind, checkpoint=str(MINIATURE / checkpoint), parameters={"threads": 1})


def other_judge() -> str:
    """A manifest that serves the worse model as a verifier: it describes images, and can say yes and no."""
    return (
        "# Another judge for what the demo recorded\n"
        f"[{served_name(TURNING, '2')}]\n"
        'kind = "verifier"\n'
        f"checkpoint = {json.dumps(str(MINIATURE / _WORSE))}\n"
        'parameters = { threads = 1, prompt_template = "{statement}" }\n'
    )


def models_needed() -> dict[str, ServedModel]:
    """What is served from the beginning. Raises `UsageError` naming what is missing."""
    models = {
        served_name("heron", "1"): _served("lvlm", _GOOD),
        served_name(TURNING, "1"): _served("lvlm", _GOOD),
        "verifier": _served("verifier", _VERIFIER),
        "detector": _served("detector", _DETECTOR),
    }
    find_distribution()
    if importlib.util.find_spec("tritonclient") is None:
        raise MissingExtraError("tritonclient", "models")
    if absent := missing_checkpoints({**models, "next": _served("lvlm", _WORSE)}):
        raise UsageError(f"there is no checkpoint {absent[0]}")
    return models


class DemoView(LiveView):
    """The live table, with what happened beneath it."""

    def __init__(self) -> None:
        super().__init__("groundwatch demo", ALARM.rule)
        self._notes: list[Text] = []
        self.answered = 0

    def note(self, words: str, style: str = "bold") -> None:
        """Add a line that stays."""
        self._notes.append(styled((f"{time.strftime('%H:%M:%S')}  {words}", style)))

    def line(self) -> str:
        """All of it in one line, for logs."""
        last = f" · {self._notes[-1].plain}" if self._notes else ""
        alarm = f" · ⚠ {tell(self.alarms[-1])}" if self.alarms else ""
        return f"{self.answered:,} answers, {super().line()}{last}{alarm}"

    def __rich__(self) -> RenderableType:
        return Group(super().__rich__(), Text(), *self._notes) if self._notes else super().__rich__()


async def run_live(
    folder: Path, models: Mapping[str, ServedModel], number: int, screen: Screen, over: Over
) -> LiveFindings:
    """Run it all once, over `number` answers; `over` is called while it is still up."""
    began = time.monotonic()
    # The monitor itself asks the detector and the verifier; the answering models are the application's.
    gateway = GatewaySettings()
    settings = Settings(
        gateway=gateway,
        captioning=CaptioningSettings(engine="openai"),
        verification=StageSettings(protocols=dict.fromkeys(gateway.protocols, JUDGES)),
        detector=DetectorSettings(attributes=("size",)),
        alarm=ALARM,
    )
    async with contextlib.AsyncExitStack() as stack:
        words = (
            "groundwatch demo: starting NATS, all services, and Triton on this machine with "
            f"{', '.join(models)};"
        )
        with screen.loading(words) as on_progress:
            system = await stack.enter_async_context(
                whole_system(settings, folder, models, on_progress, any_port=True)
            )
        assert system.triton is not None
        ready = time.monotonic()
        screen.say(f"watch it here: {system.gateway_url}/")
        screen.say(
            f"asking {', '.join(name for name in models if models[name].kind == 'lvlm')} about {number} "
            "images; each answer goes there with its image, and no reference"
        )
        watched = Watched()
        client = TritonModels(TritonSettings(url=system.triton.url, timeout=120, patience=120))
        stack.push_async_callback(client.close)
        application = Application(client, system.gateway_url)
        stack.push_async_callback(application.close)
        view = DemoView()
        async with screen.live(view), tasks() as group:
            traffic = group.create_task(_traffic(application, system.triton, number, view))
            group.create_task(_watch(system, number, view, watched))
        ended = time.monotonic()
        ledger = await settled(system)
        metrics = await metrics_of(system.gateway_url)
        alarms = await alarms_of(system.gateway_url, watched)
        seconds = {"start": ready - began, "traffic": ended - ready, "total": time.monotonic() - began}
        found = LiveFindings(
            watched=watched,
            sent=application.sent,
            ledger=ledger,
            metrics=metrics,
            alarms=alarms,
            seconds=seconds,
            rollout=traffic.result(),
            other_judge=other_judge(),
        )
        await over(found, system)
    return found


async def _traffic(application: Application, triton: TritonServer, number: int, view: DemoView) -> Rollout:
    """Half of the questions, the rollout, and the other half; the new version loads beside the first."""
    early = asyncio.Event()

    def told(sent: Sent) -> None:
        view.answered += 1
        if view.answered >= number * LOAD_AT:
            early.set()

    questions = asked_about(number)
    async with tasks() as group:
        loading = group.create_task(_load_next(triton, early, view))
        await application.serve(iter(questions[: number // 2]), told)
        await loading
        application.deployed[TURNING] = "2"
        rollout = Rollout(
            model=TURNING,
            version="2",
            time=time.time(),
            response=1 + sum(one.product == TURNING for one in application.sent.values()),
        )
        view.note(f"rollout: {served_name(TURNING, '2')} answers for {TURNING} from here on")
        await triton.retire(served_name(TURNING, "1"))
        await application.serve(iter(questions[number // 2 :]), told)
    return rollout


async def _load_next(triton: TritonServer, early: asyncio.Event, view: DemoView) -> None:
    await early.wait()
    name = served_name(TURNING, "2")
    view.note(f"Triton loads {name} beside the models that answer", style="dim")
    await triton.replace(name, _served("lvlm", _WORSE))


async def _watch(system: System, number: int, view: DemoView, watched: Watched) -> None:
    """Every outcome into the table and the reports, until all are there."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(PATIENCE) as limit:
            async for outcome in read_outcomes(system.bus, LIVE, follow=True):
                limit.reschedule(loop.time() + PATIENCE)
                view.add(outcome)
                watched.add(outcome)
                if view.seen == number:
                    return
    except TimeoutError:
        raise TransientError(
            f"no outcome for {PATIENCE:.0f} s: {view.seen} of {number} answers are judged"
        ) from None


SAMPLE = "answers.jsonl"
RECORDED_PATIENCE = 120.0
"""Seconds after the last answer until every outcome must be there."""


async def play(folder: Path, rate: float, screen: Screen, over: Over) -> Findings:
    """Stream the bundled answers, `rate` a second, through everything that `groundwatch up` starts.

    `over` is called while it is still up.
    """
    sample = resources.files("groundwatch.demo").joinpath(SAMPLE).read_bytes()
    answers = [line for line in sample.splitlines() if line]
    screen.say("groundwatch demo: starting NATS and all services on this machine…")
    settings = Settings(alarm=ALARM)
    began = time.monotonic()
    async with whole_system(settings, folder, any_port=True) as system:
        screen.say(f"watch it here: {system.gateway_url}/")
        screen.say(f"sending {len(answers)} recorded answers of two models there")
        view = LiveView("groundwatch demo", ALARM.rule)
        watched = Watched()
        async with screen.live(view):
            sending = asyncio.create_task(_send(system.gateway_url, answers, rate))
            async with asyncio.timeout(len(answers) / rate + RECORDED_PATIENCE):
                async for outcome in read_outcomes(system.bus, LIVE, follow=True):
                    view.add(outcome)
                    watched.add(outcome)
                    if view.seen == len(answers):
                        break
            await sending
        ledger = await settled(system)
        found = Findings(
            watched=watched,
            ledger=ledger,
            seconds={"total": time.monotonic() - began},
            metrics=await metrics_of(system.gateway_url),
            alarms=view.alarms,
        )
        await over(found, system)
    return found


async def _send(gateway: str, answers: list[bytes], rate: float) -> None:
    """As an application would: one request for each answer, evenly paced."""
    began = time.monotonic()
    async with httpx.AsyncClient(base_url=gateway, timeout=30) as http:
        for number, answer in enumerate(answers):
            await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
            reply = await http.post(
                "/v1/responses", content=answer, headers={"content-type": "application/json"}
            )
            if reply.status_code not in (200, 202):
                raise UsageError(f"the gateway refused answer {number + 1} of the sample: {reply.text[:300]}")
