"""The settings, one typed tree: every key has a default, so that `groundwatch up` needs no file."""

import random
import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import Field, ValidationInfo, field_validator, model_validator

from groundwatch.addresses import shown_address
from groundwatch.errors import Unavailable
from groundwatch.models.settings import ChatSettings, DetectorSettings, TritonSettings
from groundwatch.protocols import registry
from groundwatch.protocols.base import EvaluationProtocol
from groundwatch.runtime.settings.gateway import GatewaySettings, Hosts, Protocol
from groundwatch.runtime.settings.judges import (
    ASKING,
    CASCADE,
    EMBEDDED,
    EngineSettings,
    JudgeSettings,
    SecondOpinionSettings,
)
from groundwatch.runtime.settings.outflow import OutflowSettings
from groundwatch.section import AtLeastOne, Count, NotNegative, Port, Positive, Section, wrong
from groundwatch.statistics.alarm import Rule

STAGES = ("extraction", "verification", "matching", "generation", "scoring")
"""Those that are set alike; captioning has settings of its own."""

Cached = Literal["extraction", "verification", "matching"]
CACHED: tuple[Cached, ...] = get_args(Cached)
"""Those whose judgements can be kept. The others ask a model under test, make images, or only compute."""

EMBEDDING = ("verification", "matching")
"""Those whose embedded engines may take another embedding model."""


class NatsSettings(Section):
    """How to reach NATS. Empty `url` under `groundwatch up` means: start our own server.

    Timeouts in seconds. `replicas` counts copies of each stream in a cluster. `partitions` is how many
    streams there are of each kind of event: it stays once anything is recorded. `monitor_url` are the
    servers' monitoring ports, with commas between, at which gateways look.
    """

    url: str = ""
    credentials: str = ""
    nkey_seed_file: str = ""
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    replicas: Annotated[int, Field(ge=1, le=5)] = 1
    partitions: Annotated[int, Field(ge=1, le=64)] = 1
    publish_timeout: Positive = 10.0
    max_payload: Annotated[int, Field(ge=64 * 1024, le=64 * 1024 * 1024)] = 8 * 1024 * 1024
    monitor_url: str = ""

    @model_validator(mode="after")
    def _check(self) -> Self:
        for url in self.monitors:
            if not re.fullmatch(r"https?://([\w.-]+|\[[\da-fA-F:]+\])(:\d{1,4}|:[1-5]\d{4})?", url):
                raise wrong(
                    "monitor_url", f"'{shown_address(url)}' is no address such as http://nats.example:8222"
                )
        return self

    @property
    def monitors(self) -> list[str]:
        """The monitoring ports' addresses."""
        return [url.strip().rstrip("/") for url in self.monitor_url.split(",") if url.strip()]


class RetrySettings(Section):
    """When to try again. Delays in seconds: `first_delay` doubles up to `max_delay`, with jitter."""

    attempts: AtLeastOne = 20
    first_delay: Positive = 1.0
    max_delay: Positive = 300.0

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.max_delay < self.first_delay:
            raise wrong("max_delay", "must not be below retry.first_delay")
        return self

    def delay(self, attempt: int, error: Exception | None = None) -> float:
        """Seconds to wait after delivery number `attempt` (from 1) failed.

        With jitter between half and the whole of it, so that what failed together does not return together.
        An endpoint that named a time is taken at its word.
        """
        backoff = min(self.max_delay, self.first_delay * 2.0 ** min(attempt - 1, 30))
        jittered = backoff * random.uniform(0.5, 1.0)
        if isinstance(error, Unavailable) and error.retry_after is not None:
            return max(jittered, min(error.retry_after, self.max_delay))
        return jittered


LEAST_HELD = 5_000
HELD_BY_ONE = 400
"""Messages that a process of a cheap stage holds: two batches of 200."""


class ScaledSettings(Section):
    """How many processes of a stage there are at most, and how many messages these may hold together.

    What was handed back and is to come again counts with what is worked on; beyond `max_ack_pending` the
    server gives nothing out. 0: as many as `replicas` of them hold twice over, at least 5,000.
    """

    replicas: AtLeastOne = 1
    max_ack_pending: Count = 0

    def held_at_once(self, concurrency: int) -> int:
        """What NATS is to give out, for so many requests at once in each process."""
        return self.max_ack_pending or max(LEAST_HELD, self.replicas * max(HELD_BY_ONE, 2 * concurrency))


class StageSettings(EngineSettings, ScaledSettings):
    """One stage. `concurrency` is how many messages or batches are in flight.

    `timeout` is how many seconds one message may take: work without end is stopped, and tried again. Empty
    and 0 mean the stage's own default. `protocols` is for verification: what is otherwise for one of them.
    """

    concurrency: Count = 0
    timeout: NotNegative = 0.0
    protocols: dict[Protocol, EngineSettings] = Field(default_factory=dict)

    @property
    def at_once(self) -> int:
        """Messages in flight in one process, as far as settings say it."""
        return self.concurrency or (self.llm.concurrency if self.llm else 0)

    @model_validator(mode="after")
    def _check(self) -> Self:
        self._check_llms("", self)
        if self.engine == CASCADE and CASCADE not in self.by_protocol().values():
            raise wrong(CASCADE, "has no protocol that all of its judges can judge")
        for name, one in self.protocols.items():
            protocol = registry.get(name)
            for number, step in enumerate(one.cascade):
                if why := protocol.why_not(step.engine):
                    raise wrong(f"protocols.{name}.cascade.{number}.engine", why)
            if self.of(protocol).engine != CASCADE and (why := protocol.why_not(one.engine)):
                # Its judges may be those of the section: then it is one of them that cannot.
                steps = one.cascade or self.cascade if one.engine == CASCADE else ()
                several = (told for step in steps if (told := protocol.why_not(step.engine)))
                raise wrong(f"protocols.{name}.engine", next(several, why))
            self._check_llms(f"protocols.{name}.", one)
        return self

    def _check_llms(self, where: str, one: EngineSettings) -> None:
        why = "engine {} needs at least base_url and model here"
        if one.engine == CASCADE and not (one.cascade or self.cascade):
            raise wrong(f"{where}cascade", "engine cascade needs its judges here, in order")
        if one.engine in ASKING and not (one.llm or self.llm):
            raise wrong(f"{where}llm", why.format(one.engine))
        for number, step in enumerate(one.cascade):
            if step.engine in ASKING and not (step.llm or one.llm or self.llm):
                raise wrong(f"{where}cascade.{number}.llm", why.format(step.engine))

    def sections(self) -> Iterator[JudgeSettings]:
        yield from super().sections()
        for one in self.protocols.values():
            yield from one.sections()

    def named(self, protocol: EvaluationProtocol) -> str:
        """The engine that is named for it, or for all protocols that it can judge; a model that is named for
        all says nothing where the responses' own labels do."""
        own = self.protocols.get(protocol.name)
        if own is not None and own.engine:
            return own.engine
        return EMBEDDED if protocol.labelled and self.engine != "noop" else self.engine

    def of(self, protocol: EvaluationProtocol) -> EngineSettings:
        """What verifies a protocol's claims: its own engine where none is named that can."""
        own, engine = self.protocols.get(protocol.name, EngineSettings()), self.named(protocol)
        llm, folder = own.llm or self.llm, own.embedding_model or self.embedding_model
        steps = own.cascade or self.cascade
        if engine == CASCADE and not any(protocol.why_not(step.engine) for step in steps):
            judges = [
                step.model_copy(
                    update={
                        "engine": protocol.verifier() if step.engine == EMBEDDED else step.engine,
                        "llm": step.llm or llm,
                        "embedding_model": step.embedding_model or folder,
                    }
                )
                for step in steps
            ]
            return EngineSettings(engine=engine, cascade=tuple(judges))
        if engine not in ("noop", *protocol.verifiers):
            engine = protocol.verifier()
        return EngineSettings(engine=engine, llm=llm, embedding_model=folder)

    def by_protocol(self) -> dict[str, str]:
        """The verification engine of each protocol that has claims to verify."""
        return {name: one.engine for name, one in self._of_all().items()}

    def judges(self) -> dict[str, str]:
        """Who judges each of these protocols, a cascade's judges in their order."""
        return {name: one.shown for name, one in self._of_all().items()}

    def _of_all(self) -> dict[str, EngineSettings]:
        found = map(registry.get, registry.names())
        return {one.name: self.of(one) for one in found if not one.why_not("")}

    def with_served(self, engine: str) -> Self:
        """The same with this engine, which is served now, for those whose paper judges so."""
        names = [name for name in self.by_protocol() if registry.get(name).verifier(engine) == engine]
        own = dict.fromkeys(names, EngineSettings(engine=engine))
        return self.model_copy(update={"protocols": {**own, **self.protocols}})

    def with_engine(self, engine: str, steps: Sequence[str] = ()) -> Self:
        """The same with this engine for all protocols that it can judge; `steps` are those of a cascade."""
        asked = (steps or [one.engine for one in self.cascade]) if engine == CASCADE else [engine]
        kept = {
            name: one
            for name, one in self.protocols.items()
            if any(registry.get(name).why_not(step) for step in asked)
        }
        return self.model_copy(update={"engine": engine, "protocols": kept})


class CaptioningSettings(ScaledSettings):
    """How models under test are asked. `models` says, for each by its name, how to reach it.

    Empty and 0 mean: the engine `openai` if there are models, and as many at once as these take together.
    `timeout` is how many seconds one message may take.
    `served` gives models on Triton the names that responses carry, and `max_tokens` bounds their answers.
    """

    engine: str = ""
    concurrency: Count = 0
    timeout: NotNegative = 0.0
    models: dict[str, ChatSettings] = Field(default_factory=dict)
    served: dict[str, str] = Field(default_factory=dict)
    max_tokens: AtLeastOne = 1024

    @property
    def at_once(self) -> int:
        """Messages in flight in one process, as far as settings say it."""
        return self.concurrency or sum(one.concurrency for one in self.models.values())


class ImagesSettings(Section):
    """What generation asks for besides the generator's own address, which is `generation.llm`.

    `size` such as 512x512, empty: the server's own. `encoder_url` is an OpenAI-compatible endpoint of the
    image encoder, with `/v1`; empty: Triton's.
    """

    size: str = ""
    encoder_url: str = ""
    encoder_model: str = ""
    encoder_key_env: str = "OPENAI_API_KEY"

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.encoder_url and not self.encoder_url.startswith(("http://", "https://")):
            raise wrong("encoder_url", "must be an http(s) address")
        if self.encoder_url and not self.encoder_model:
            raise wrong("encoder_model", "must be named beside images.encoder_url")
        return self


class ExtractionSettings(StageSettings):
    """Extraction. Facts that an attentive annotator may leave out ("There is a picture.") have a probability
    to be so: the engine `reader` leaves out those above `most_optional`, unless an answer says nothing else.
    The engine `llm` writes its facts in the answer's language or in English (`facts_in`).
    """

    most_optional: Annotated[float, Field(ge=0, le=1)] = 0.99
    facts_in: Literal["answer", "english"] = "answer"


class VisualSettings(Section):
    """How the verification engines that look at images decide: supported from `threshold` of P(yes) up.

    `top_logprobs` is how many alternatives of a word the engine `visual` asks its endpoint for; 0 asks for
    the word alone. `together`: it asks about all facts of an answer in one request.
    """

    threshold: Annotated[float, Field(gt=0, lt=1)] = 0.5
    top_logprobs: Annotated[int, Field(ge=0, le=20)] = 10
    together: bool = False


class PromptsSettings(Section):
    """The user's own words: files in `folder` in place of ours, with names such as genception/describe.md."""

    folder: str = ""

    @field_validator("folder")
    @classmethod
    def _check(cls, folder: str) -> str:
        registry.own_prompts(folder)
        return folder


class TelemetrySettings(Section):
    """Where a service answers /metrics, /healthz and /readyz; and how it logs.

    `hosts` are the names under which it is reached, as those of the gateway. The first of `version_tags`
    that a response has is its model's version in the metrics. `traces` is a collector's OTLP/HTTP address,
    with or without `/v1/traces`, and `traces_share` the share (0 to 1) of responses that are traced.
    """

    host: str = "127.0.0.1"
    port: Port = 0
    hosts: Hosts = ()
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["auto", "json", "console"] = "auto"
    max_labels: AtLeastOne = 100
    version_tags: tuple[str, ...] = ("version", "release")
    traces: str = ""
    traces_share: Annotated[float, Field(ge=0, le=1)] = 1.0

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.traces and not self.traces.startswith(("http://", "https://")):
            raise wrong("traces", "must be an http(s) address")
        if self.traces.rstrip("/").endswith(":4317"):
            raise wrong("traces", "4317 is the port for OTLP over gRPC: name the one for HTTP, usually 4318")
        return self


class AlarmSettings(Section):
    """When a model's rate of facts that are not in the image raises an alarm: see `protocols.alarm.Rule`."""

    responses: Annotated[int, Field(ge=100)] = 10_000
    learn: Annotated[int, Field(ge=20)] = 200
    margin: NotNegative = 0.2
    objective: Annotated[float, Field(ge=0, lt=1)] = 0.0

    @property
    def rule(self) -> Rule:
        return Rule(responses=self.responses, learn=self.learn, margin=self.margin, objective=self.objective)


class ArchiveSettings(Section):
    """The history as a Delta Lake table. `url` is a folder or such as `s3://bucket/path`, `off` for none.

    Empty `url` under `groundwatch up` means: the folder `archive` in the data folder. `options` are those of
    delta-rs for the store.
    What comes is written after `flush_seconds`, or sooner when there are `flush_rows` of one stream. So many
    files as `merge_files` of a size become one, up to about `file_bytes`. What is archived leaves its stream
    after `hot_days`, when nothing that is as old is in work any more; its ids are known for `repeat_days`.
    """

    url: str = ""
    options: dict[str, Any] = Field(default_factory=dict)
    flush_seconds: Positive = 30.0
    flush_rows: AtLeastOne = 10_000
    hot_days: Positive = 3.0
    merge_files: Annotated[int, Field(ge=2)] = 8
    file_bytes: Annotated[int, Field(ge=64 * 1024)] = 128 * 1024 * 1024
    repeat_days: AtLeastOne = 30


class CacheSettings(Section):
    """Judgements that are kept, so that the same judge is not paid twice for the same input.

    Of which `stages`, for `ttl` seconds, and in how many bytes: the oldest go first. Each tenant has those of
    its own, unless they are `shared_across_tenants`.
    """

    enabled: bool = True
    stages: tuple[Cached, ...] = CACHED
    ttl: Annotated[float, Field(ge=1)] = 2_592_000.0
    max_bytes: Annotated[int, Field(ge=1024 * 1024)] = 256 * 1024 * 1024
    shared_across_tenants: bool = False


class Ages(Section):
    """Days that events are kept, by stream; 0: as long as the stream keeps them."""

    responses: NotNegative = 0.0
    asked: NotNegative = 0.0
    extracted: NotNegative = 0.0
    judged: NotNegative = 0.0
    outcomes: NotNegative = 0.0
    alarms: NotNegative = 0.0
    opinions: NotNegative = 0.0
    dead: NotNegative = 0.0

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.outcomes and (not self.responses or self.outcomes < self.responses):
            raise wrong(
                "outcomes",
                "an outcome stays at least as long as its response: set responses there to "
                f"{self.outcomes:g} days or less",
            )
        return self


class RetentionSettings(Ages):
    """How long data is kept where that is shorter than the streams' own 30 days; `tenants` by name.

    `images` in days: those that nothing names any more, so long after they were stored; 0: they stay.
    """

    images: NotNegative = 0.0
    tenants: dict[str, Ages] = Field(default_factory=dict)


class Settings(Section):
    """Everything that can be set."""

    data_dir: str = ""
    nats: NatsSettings = NatsSettings()
    retry: RetrySettings = RetrySettings()
    gateway: GatewaySettings = GatewaySettings()
    extraction: ExtractionSettings = ExtractionSettings()
    captioning: CaptioningSettings = CaptioningSettings()
    generation: StageSettings = StageSettings()
    images: ImagesSettings = ImagesSettings()
    verification: StageSettings = StageSettings()
    visual: VisualSettings = VisualSettings()
    detector: DetectorSettings = DetectorSettings()
    matching: StageSettings = StageSettings()
    scoring: StageSettings = StageSettings()
    prompts: PromptsSettings = PromptsSettings()
    triton: TritonSettings = TritonSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    alarm: AlarmSettings = AlarmSettings()
    second_opinion: SecondOpinionSettings = SecondOpinionSettings()
    archive: ArchiveSettings = ArchiveSettings()
    outflow: OutflowSettings = OutflowSettings()
    cache: CacheSettings = CacheSettings()
    retention: RetentionSettings = RetentionSettings()
    protocols: Section = Field(default_factory=Section)
    judges: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Judges that callers may choose for a replay, and settings for second opinions: by name the judging
    sections, over those in use."""

    @field_validator("extraction", "generation", "matching", "scoring")
    @classmethod
    def _without(cls, section: StageSettings, info: ValidationInfo) -> StageSettings:
        if section.embedding_model and info.field_name not in EMBEDDING:
            raise wrong("embedding_model", f"only for {' and '.join(EMBEDDING)}")
        if section.protocols:
            raise wrong("protocols", "only for verification: this engine is for all protocols")
        if section.cascade:
            raise wrong("cascade", "only for verification")
        return section


def held_at_once(settings: Settings) -> dict[str, int]:
    """What NATS is to give out to all processes of each stage together, before it has something back."""
    sections = {name: getattr(settings, name) for name in (*STAGES, "captioning")}
    return {name: section.held_at_once(section.at_once) for name, section in sections.items()}


# Here at the end: a protocol's settings may be made of every other section.
_protocols = Settings.model_fields["protocols"]
_protocols.annotation = _protocols.default_factory = registry.settings_model()
Settings.model_rebuild(force=True)
