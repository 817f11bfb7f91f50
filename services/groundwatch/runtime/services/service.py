"""What every service is, and what the services that consume from a stream share."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

import nats.errors
import nats.js.errors

from groundwatch.errors import EngineBug, GroundwatchError, InputError, TransientError, Unscorable, words
from groundwatch.events import REPLACEABLE, Judge, ResponseRecorded, ResponseScored, Usage
from groundwatch.models.engines import Engine
from groundwatch.models.settings import ChatSettings
from groundwatch.protocols import registry
from groundwatch.protocols.base import EvaluationProtocol
from groundwatch.protocols.base import Stage as StageName
from groundwatch.runtime.delivery import outcomes
from groundwatch.runtime.delivery.away import AwayJudges
from groundwatch.runtime.delivery.bus import Bus, Outgoing
from groundwatch.runtime.delivery.stage import Stage
from groundwatch.runtime.delivery.work import Envelope, Handler
from groundwatch.runtime.services.tasks import SupervisedTask
from groundwatch.runtime.settings import Settings, StageSettings
from groundwatch.runtime.stores.cache import JudgementCache
from groundwatch.runtime.stores.images import ImageStore
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import (
    HEADER_ORIGIN,
    HEADER_REASON,
    OUTCOMES,
    ConsumerSpec,
    consumer,
    subject_of,
)
from groundwatch.topology.partitions import consumers_in

MONITOR_SECONDS = 5.0
SILENCE_SECONDS = 30.0
"""A loop that has neither an answer nor work for so long is stuck."""


REQUESTS = 30
"""So many requests, each as long as it may be, fit into the time for one message where settings say none."""

COMPUTE_TIMEOUT = 300.0
"""Seconds for one message of a stage without an engine."""

CHEAP_BATCH = 200
CHEAP_LOOPS = 2


class Service(Protocol):
    """A part of the system that can run in a process of its own."""

    name: str

    async def start(self) -> None: ...

    async def drain(self, timeout: float) -> None:
        """Finish or hand back what is in hand within `timeout` seconds, then stop."""
        ...

    def problems(self) -> list[str]:
        """Why this service is not ready; empty when it is."""
        ...


R = TypeVar("R")


class StageService:
    """A service around one stage: its consumer, and the one for dead letters that were sent again."""

    engine: Any = None
    handler: Handler[Any]
    mend = "run groundwatch admin provision"
    """What brings back a consumer that is not there."""

    def __init__(self, name: str, settings: Settings, bus: Bus | None, metrics: Metrics) -> None:
        """Without a bus only the handler is of use: nothing is fetched, looked up or kept."""
        self.name = name
        self.settings = settings
        self._bus = bus
        self.metrics = metrics
        self.cache = JudgementCache(settings, bus, metrics)
        self._stages: list[Stage[Any]] = []
        self._monitor = SupervisedTask(f"{name}-monitor", self._watch)
        self._started = False
        self._judges = AwayJudges(name, metrics)
        self._absent: dict[str, str] = {}

    @property
    def bus(self) -> Bus:
        assert self._bus is not None
        return self._bus

    def consume(self, event: Any, handler: Handler[Any], stage: StageSettings, engine: Engine | None) -> None:
        """Say what the service is to fetch, once it is started, and who handles it."""
        self.handler, self.engine = handler, engine
        self._event, self._stage_settings = event, stage

    def _build_stages(self) -> None:
        """Bind the stage's consumers to the handler, as many at once as the engine likes."""
        stage, engine = self._stage_settings, self.engine
        batch = engine.batch if engine else CHEAP_BATCH
        waits_for_others = engine is not None and engine.batch == 1
        asked_at_once = getattr(engine, "at_once", stage.llm.concurrency if stage.llm else CHEAP_LOOPS)
        concurrency = stage.concurrency or (asked_at_once if waits_for_others else CHEAP_LOOPS)
        self._judges = AwayJudges(self.name, self.metrics, number=getattr(engine, "judges", 1))
        own = list(consumers_in(consumer(self.name), self.bus.partitions))
        # Together as many as the engine likes, and at least one for each partition.
        each = -(-concurrency // len(own))
        again = consumer(f"{self.name}-retry")
        for spec, loops in (*((one, each) for one in own), (again, 1)):
            self._stages.append(
                Stage(
                    name=self.name,
                    consumer=spec,
                    event=self._event,
                    handler=self.handler,
                    bus=self.bus,
                    metrics=self.metrics,
                    retries=self.settings.retry,
                    batch=batch,
                    concurrency=loops,
                    timeout=stage.timeout or self._timeout(stage, engine),
                    judges=self._judges,
                )
            )

    def _timeout(self, stage: StageSettings, engine: Engine | None) -> float:
        """Generous: beyond anything that slow models and their second tries take."""
        if engine is None:
            return COMPUTE_TIMEOUT
        chats = [one.llm for one in stage.sections()]
        models = [*chats, self.settings.triton, *self.settings.captioning.models.values()]
        in_turn = max(1, *(len(one.cascade) for one in (stage, *stage.protocols.values())))
        return REQUESTS * in_turn * max(model.timeout for model in models if model is not None)

    async def start(self) -> None:
        """Load what the engine needs, then begin to fetch."""
        if (warm_up := getattr(self.engine, "warm_up", None)) is not None:
            await warm_up()
        if (of_engine := getattr(self.engine, "problems", None)) is not None:
            self.metrics.models_not_ready.labels(self.name).set_function(lambda: len(list(of_engine())))
        self._build_stages()
        for stage in self._stages:
            await stage.start()
        self._monitor.start()
        self._started = True

    async def drain(self, timeout: float) -> None:
        """Finish what was fetched, or hand it back; then let go of the engine."""
        await self._monitor.stop()
        await asyncio.gather(*(stage.drain(timeout) for stage in self._stages))
        if self.engine is not None:
            await self.engine.close()

    def problems(self) -> list[str]:
        """Looks at the consumers and the loops: a socket can be up while nothing is fetched."""
        found = [*self.bus.problems(), *self._absent.values()]
        if self._started:
            found += self._working_problems()
        else:
            found.append("not started")
        return [f"{self.name}: {why}" for why in found]

    def _working_problems(self) -> Iterator[str]:
        if self._monitor.problem:
            yield self._monitor.problem
        if (of_engine := getattr(self.engine, "problems", None)) is not None:
            yield from of_engine()
        yield from self._judges.problems()
        for stage in self._stages:
            yield from stage.problems()
        now = time.monotonic()
        for stage in self._stages:
            for pull in stage.pulls:
                silent = now - pull.last_answer > SILENCE_SECONDS and stage.in_flight == 0
                if pull.problem or silent:
                    yield f"consumer {stage.consumer.name}: {pull.problem or 'no answer from the server'}"
                    break

    async def done_before(
        self, arrived: Envelope, response: ResponseRecorded, protocol: str, place: tuple[str, str] | None
    ) -> bool:
        """Whether an earlier delivery, or an earlier try at this one, came to an end for this protocol.

        `place` is the stream and subject of what follows from it, where that is no outcome. Nothing is looked
        up for what was never tried before. An outcome that stands for a dead letter ends only the event that
        became it: not the letter sent again, and nothing that follows from that.
        """
        if arrived.first:
            return False
        if place is not None and await self.bus.holds(*place):
            return True
        subject = subject_of("outcome", response.run, protocol, response.key)
        found = await self.bus.headers_of(OUTCOMES, subject)
        if found is None:
            return False
        if found.get(HEADER_REASON) not in REPLACEABLE:
            return True
        return not arrived.retried and found.get(HEADER_ORIGIN) == arrived.origin

    def publication_of(self, outcome: ResponseScored) -> Outgoing:
        """The outcome as what a result publishes; counted once the stream has it."""
        return outcomes.outgoing(outcome, counted=lambda: self.metrics.outcome(outcome))

    async def judge_all(
        self,
        protocol: EvaluationProtocol,
        call: Any,
        items: Sequence[Any],
        judge_of: Callable[[EvaluationProtocol], Judge],
        form: type[Any],
        llm: ChatSettings | None = None,
    ) -> Sequence[Any]:
        """Results of the engine, each a `form` or an error: from the cache, or asked for and counted.

        `llm` is how the engine's model is reached, where that is not what settings say for the protocol.
        """

        async def ask(left: Sequence[Any], protocol: EvaluationProtocol) -> Sequence[Any]:
            return await self.counted(lambda some: call(some, protocol), left, judge_of(protocol))

        return await self.cache.through(self.name, protocol, judge_of, items, ask, form, llm)

    async def counted(
        self,
        call: Callable[[Sequence[Any]], Awaitable[Sequence[R | GroundwatchError]]],
        items: Sequence[Any],
        judge: Judge,
    ) -> Sequence[R | GroundwatchError]:
        """An engine's results for `items`, each counted with its time and use.

        A call that breaks is made again item by item, and what breaks alone stands for its own item: neither
        the others of a batch nor other protocols of the same event are asked for twice because of it.
        """
        began = time.perf_counter()
        number = len(items)
        try:
            results = await call(items)
            if len(results) != number:
                raise InputError(f"engine {judge.engine} gave {len(results)} results for {number} inputs")
        except Exception as error:
            if number > 1:
                return [one for item in items for one in await self.counted(call, [item], judge)]
            if not isinstance(error, GroundwatchError):
                logger.error("stage.bug", stage=self.name, error=repr(error), exc_info=True)
                error = EngineBug(words(error))
            results = [error]
        said = [(_slug(result), getattr(result, "usage", None)) for result in results]
        self.metrics.judgements(self.name, judge, said, time.perf_counter() - began)
        return results

    async def load_image(self, sha256: str) -> tuple[bytes, str]:
        """The bytes and type of a stored image."""
        return await ImageStore(self.bus.js, self.bus.cold_images).load(sha256)

    def count_request(self, result: str, seconds: float, usage: Usage) -> None:
        """Count one request to a model's endpoint; an engine call can take several."""
        self.metrics.requests.labels(self.name, result).inc()
        self.metrics.request_seconds.labels(self.name).observe(seconds)

    async def _watch(self) -> None:
        while True:
            for stage in self._stages:
                await self._look_at(stage)
            await asyncio.sleep(MONITOR_SECONDS)

    async def _look_at(self, stage: Stage[Any]) -> None:
        spec = stage.consumer
        with contextlib.suppress(nats.errors.Error, TimeoutError, OSError):
            try:
                info = await self.bus.js.consumer_info(spec.stream, spec.name)
            except nats.js.errors.NotFoundError:
                self._absent[spec.name] = (
                    f"consumer {spec.name} does not exist on stream {spec.stream}: {self.mend}"
                )
                self.metrics.consumer_up.labels(spec.name).set(0)
            else:
                self._absent.pop(spec.name, None)
                self.metrics.consumer_up.labels(spec.name).set(1)
                self._show_lag(spec, (info.num_pending or 0) + (info.num_ack_pending or 0))

    def _show_lag(self, spec: ConsumerSpec, lag: int) -> None:
        self.metrics.consumer_lag.labels(self.name, spec.name).set(lag)


def find_protocol(name: str) -> EvaluationProtocol | InputError:
    """The protocol, or why the event that names it cannot be processed here."""
    try:
        return registry.get(name)
    except GroundwatchError as error:
        return InputError(str(error))


def next_stage(protocol: EvaluationProtocol, after: StageName) -> StageName:
    return protocol.route[protocol.route.index(after) + 1]


def _slug(result: object) -> str:
    match result:
        case Unscorable():
            return "unscorable"
        case TransientError():
            return "transient"
        case GroundwatchError():
            return "error"
    return "ok"
