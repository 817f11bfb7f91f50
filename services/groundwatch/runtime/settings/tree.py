"""Settings, validated once: every key has a default, so that `groundwatch up` needs no file.

They are read by `settings_reading`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from groundwatch.errors import SettingsError
from groundwatch.models.openai.settings import ChatSettings
from groundwatch.models.triton.settings import TritonSettings
from groundwatch.runtime.security.same_origin import is_host_pattern
from groundwatch.runtime.settings.http import HttpSettings, check_http
from groundwatch.runtime.settings.retention import RetentionSettings, check_retention
from groundwatch.statistics.alarm import Rule

STAGES = ("extraction", "verification", "matching", "generation", "scoring")
"""Those that are set alike; captioning has settings of its own."""

CACHED = ("extraction", "verification", "matching")
"""Those whose judgements can be kept. The others ask a model under test, make images, or only compute."""

EMBEDDING = ("verification", "matching")
"""Those whose embedded engines may take another embedding model."""


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all settings: a misspelled key is an error, not a default."""


class NatsSettings(Section, frozen=True, kw_only=True):
    """How to reach NATS. Empty `url` under `groundwatch up` means: start our own server.

    Timeouts in seconds. `replicas` counts copies of each stream in a cluster.
    """

    url: str = ""
    credentials: str = ""
    nkey_seed_file: str = ""
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    replicas: int = 1
    publish_timeout: float = 10.0
    max_payload: int = 8 * 1024 * 1024


class RetrySettings(Section, frozen=True, kw_only=True):
    """When to try again. Delays in seconds: `first_delay` doubles up to `max_delay`, with jitter."""

    attempts: int = 20
    first_delay: float = 1.0
    max_delay: float = 300.0


class StageSettings(Section, frozen=True, kw_only=True):
    """One stage. `engine` by name; `concurrency` is how many messages or batches are in flight.

    `timeout` is how many seconds one message may take: work without end is stopped, and tried again. Empty
    and 0 mean the stage's own default. `llm` says how to reach the model of the engine `llm`, of
    verification's engine `visual` and of generation's engine `openai`.
    """

    engine: str = ""
    concurrency: int = 0
    timeout: float = 0.0
    llm: ChatSettings | None = None
    embedding_model: str = ""
    """Folder of a sentence-transformers model in place of the embedded one: for verification and matching."""


class CaptioningSettings(Section, frozen=True, kw_only=True):
    """How models under test are asked. `models` says, for each by its name, how to reach it.

    Empty and 0 mean: the engine `openai` if there are models, and as many at once as these take together.
    `timeout` is how many seconds one message may take.
    `served` gives models on Triton the names that responses carry, and `max_tokens` bounds their answers.
    """

    engine: str = ""
    concurrency: int = 0
    timeout: float = 0.0
    models: dict[str, ChatSettings] = {}
    served: dict[str, str] = {}
    max_tokens: int = 1024


class ImagesSettings(Section, frozen=True, kw_only=True):
    """What generation asks for besides the generator's own address, which is `generation.llm`.

    `size` such as 512x512, empty: the server's own. `encoder_url` is an OpenAI-compatible endpoint of the
    image encoder, with `/v1`; empty: Triton's.
    """

    size: str = ""
    encoder_url: str = ""
    encoder_model: str = ""
    encoder_key_env: str = "OPENAI_API_KEY"


class VisualSettings(Section, frozen=True, kw_only=True):
    """How the verification engines that look at images decide: supported from `threshold` of P(yes) up.

    `top_logprobs` is how many alternatives of a word the engine `visual` asks its endpoint for; 0 asks for
    the word alone.
    """

    threshold: float = 0.5
    top_logprobs: int = 10


class SamplingRule(Section, frozen=True, kw_only=True):
    """Which share (0 to 1) of matching responses is judged. Empty fields match everything."""

    rate: float
    tenant: str = ""
    model: str = ""
    protocol: str = ""
    salt: str = ""


class IntakeSettings(Section, frozen=True, kw_only=True):
    """What the gateway accepts. Sizes in bytes, `answer` and `prompt` in characters.

    `max_image_seconds` is of the processor, for decoding one image.
    """

    max_answer: int = 200_000
    max_prompt: int = 50_000
    max_line: int = 20 * 1024 * 1024
    max_image_bytes: int = 10 * 1024 * 1024
    max_image_pixels: int = 40_000_000
    max_image_seconds: float = 10.0
    max_images: int = 16
    max_reference_items: int = 2_000
    max_backlog: int = 1_000_000
    in_flight: int = 256


class GrpcSettings(Section, frozen=True, kw_only=True):
    """The gRPC door beside HTTP; files by their paths.

    `comparisons` and `calls` are how many are under way at once: of calls those that bring responses, since
    each may have us hold `gateway.intake.max_line` bytes.
    `replays` is how many processes for replays that were begun here this gateway runs at once, and
    `replay_nkey_seed_file` says who these are to NATS.
    """

    tls_cert: str = ""
    tls_key: str = ""
    watchers: int = 500
    deadline: float = 60.0
    comparisons: int = 2
    calls: int = 64
    replays: int = 1
    replay_nkey_seed_file: str = ""


class GatewaySettings(Section, frozen=True, kw_only=True):
    """Where the gateway listens. Port 0 takes a free one; with `grpc_port` -1 there is no gRPC.

    `hosts` are the names under which it is reached over HTTP, `*.example.com` for all below one; those of
    this machine and addresses in digits need not be there, and `*` is every name.
    `tokens_file`, for both doors, has a line `TENANT TOKEN` for each token, with `*` for the tenant of one
    that is good for all; empty: nobody is asked who they are.
    """

    host: str = "127.0.0.1"
    port: int = 8787
    grpc_port: int = -1
    hosts: tuple[str, ...] = ()
    tokens_file: str = ""
    http: HttpSettings = HttpSettings()
    grpc: GrpcSettings = GrpcSettings()
    protocols: tuple[str, ...] = ("faithscore",)
    intake: IntakeSettings = IntakeSettings()
    sampling: tuple[SamplingRule, ...] = ()


class TelemetrySettings(Section, frozen=True, kw_only=True):
    """Where a service answers /metrics, /healthz and /readyz; and how it logs.

    `hosts` are the names under which it is reached, as those of the gateway. The first of `version_tags`
    that a response has is its model's version in the metrics.
    """

    host: str = "127.0.0.1"
    port: int = 0
    hosts: tuple[str, ...] = ()
    log_level: str = "info"
    log_format: str = "auto"
    max_labels: int = 100
    version_tags: tuple[str, ...] = ("version", "release")


class AlarmSettings(Section, frozen=True, kw_only=True):
    """When a model's rate of facts that are not in the image raises an alarm: see `protocols.alarm.Rule`."""

    responses: int = 10_000
    learn: int = 200
    margin: float = 0.2
    objective: float = 0.0

    @property
    def rule(self) -> Rule:
        """As the arithmetic takes it."""
        return Rule(responses=self.responses, learn=self.learn, margin=self.margin, objective=self.objective)


class ArchiveSettings(Section, frozen=True, kw_only=True):
    """The history in Parquet. `url` is a folder or what fsspec takes (`s3://bucket/path`), `off` for none.

    Empty `url` under `groundwatch up` means: the folder `archive` in the data folder. `options` go to fsspec.
    Outcomes are written after `flush_seconds`, or sooner when there are `flush_rows`. So many files as
    `merge_files` of a size become one, up to about `file_bytes`.
    """

    url: str = ""
    options: dict[str, Any] = {}
    flush_seconds: float = 30.0
    flush_rows: int = 10_000
    merge_files: int = 8
    file_bytes: int = 128 * 1024 * 1024


class CacheSettings(Section, frozen=True, kw_only=True):
    """Judgements that are kept, so that the same judge is not paid twice for the same input.

    Of which `stages`, for `ttl` seconds, and in how many bytes: the oldest go first. Each tenant has those of
    its own, unless they are `shared_across_tenants`.
    """

    enabled: bool = True
    stages: tuple[str, ...] = CACHED
    ttl: float = 2_592_000.0
    max_bytes: int = 256 * 1024 * 1024
    shared_across_tenants: bool = False


class FaithScoreSettings(Section, frozen=True, kw_only=True):
    """Weights of equation 1 for each category; 1 where absent, as in the paper."""

    weights: dict[str, float] = {}


class Settings(Section, frozen=True, kw_only=True):
    """Everything that can be set."""

    data_dir: str = ""
    nats: NatsSettings = NatsSettings()
    retry: RetrySettings = RetrySettings()
    gateway: GatewaySettings = GatewaySettings()
    extraction: StageSettings = StageSettings()
    captioning: CaptioningSettings = CaptioningSettings()
    generation: StageSettings = StageSettings()
    images: ImagesSettings = ImagesSettings()
    verification: StageSettings = StageSettings()
    visual: VisualSettings = VisualSettings()
    matching: StageSettings = StageSettings()
    scoring: StageSettings = StageSettings()
    triton: TritonSettings = TritonSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    alarm: AlarmSettings = AlarmSettings()
    archive: ArchiveSettings = ArchiveSettings()
    cache: CacheSettings = CacheSettings()
    retention: RetentionSettings = RetentionSettings()
    faithscore: FaithScoreSettings = FaithScoreSettings()
    judges: dict[str, dict[str, Any]] = {}
    """Judges that callers may choose for a replay: by name the judging sections, over those in use."""


def check(settings: Settings) -> None:
    """Bounds that types cannot say. Raises `SettingsError` with the key that is wrong."""
    checks = (
        ("nats.replicas", 1 <= settings.nats.replicas <= 5, "must be 1 to 5"),
        ("nats.publish_timeout", settings.nats.publish_timeout > 0, "must be above 0 seconds"),
        ("retry.attempts", settings.retry.attempts >= 1, "must be at least 1"),
        ("retry.first_delay", settings.retry.first_delay > 0, "must be above 0 seconds"),
        (
            "retry.max_delay",
            settings.retry.max_delay >= settings.retry.first_delay,
            "must not be below retry.first_delay",
        ),
        ("nats.max_payload", 65_536 <= settings.nats.max_payload <= 67_108_864, "must be 64 KiB to 64 MiB"),
        ("visual.threshold", 0 < settings.visual.threshold < 1, "must be between 0 and 1"),
        ("visual.top_logprobs", 0 <= settings.visual.top_logprobs <= 20, "must be 0 to 20"),
        ("gateway.port", 0 <= settings.gateway.port < 65536, "must be 0 to 65535"),
        ("gateway.grpc_port", -1 <= settings.gateway.grpc_port < 65536, "must be 0 to 65535, or -1 for none"),
        ("gateway.grpc.watchers", settings.gateway.grpc.watchers >= 0, "must not be negative"),
        ("gateway.grpc.deadline", settings.gateway.grpc.deadline > 0, "must be above 0 seconds"),
        ("gateway.grpc.comparisons", settings.gateway.grpc.comparisons >= 1, "must be at least 1"),
        ("gateway.grpc.calls", settings.gateway.grpc.calls >= 1, "must be at least 1"),
        ("gateway.grpc.replays", settings.gateway.grpc.replays >= 0, "must not be negative"),
        (
            "gateway.grpc.tls_key",
            bool(settings.gateway.grpc.tls_cert) == bool(settings.gateway.grpc.tls_key),
            "a certificate (gateway.grpc.tls_cert) and its key go together",
        ),
        ("telemetry.port", 0 <= settings.telemetry.port < 65536, "must be 0 to 65535"),
        ("telemetry.max_labels", settings.telemetry.max_labels >= 1, "must be at least 1"),
        (
            "telemetry.log_level",
            settings.telemetry.log_level in ("debug", "info", "warning", "error"),
            "must be debug, info, warning or error",
        ),
        (
            "telemetry.log_format",
            settings.telemetry.log_format in ("auto", "json", "console"),
            "must be auto, json or console",
        ),
        ("alarm.responses", settings.alarm.responses >= 100, "must be at least 100"),
        ("alarm.learn", settings.alarm.learn >= 20, "must be at least 20"),
        ("archive.flush_seconds", settings.archive.flush_seconds > 0, "must be above 0 seconds"),
        ("archive.flush_rows", settings.archive.flush_rows >= 1, "must be at least 1"),
        ("archive.merge_files", settings.archive.merge_files >= 2, "must be at least 2"),
        ("archive.file_bytes", settings.archive.file_bytes >= 65_536, "must be at least 64 KiB"),
        ("cache.ttl", settings.cache.ttl >= 1, "must be at least 1 second"),
        ("cache.max_bytes", settings.cache.max_bytes >= 1024 * 1024, "must be at least 1 MiB"),
        ("cache.stages", set(settings.cache.stages) <= {*CACHED}, f"can be {', '.join(CACHED)}"),
        ("alarm.margin", 0 <= settings.alarm.margin < float("inf"), "must not be negative"),
        ("alarm.objective", 0 <= settings.alarm.objective < 1, "must be 0 (learn it) or below 1"),
        (
            "faithscore.weights",
            all(weight >= 0 for weight in settings.faithscore.weights.values()),
            "must not be negative",
        ),
        *(
            (f"gateway.intake.{name}", value >= 1, "must be at least 1")
            for name, value in msgspec.structs.asdict(settings.gateway.intake).items()
            if name != "max_images"
        ),
        ("gateway.intake.max_images", settings.gateway.intake.max_images >= 0, "must not be negative"),
    )
    for key, holds, message in checks:
        if not holds:
            raise SettingsError(f"setting '{key}': {message}")
    check_retention(settings.retention)
    intake = settings.gateway.intake
    check_http(settings.gateway.http, intake.max_line, intake.max_image_bytes)
    for server, hosts in (("gateway", settings.gateway.hosts), ("telemetry", settings.telemetry.hosts)):
        for name in hosts:
            if not is_host_pattern(name):
                raise SettingsError(
                    f"setting '{server}.hosts': '{name}' is no name of a host: write gateway.example.com, "
                    "*.example.com or *, without a port"
                )
    for index, rule in enumerate(settings.gateway.sampling):
        if not 0 <= rule.rate <= 1:
            raise SettingsError(f"setting 'gateway.sampling[{index}].rate': must be from 0 to 1")
    if settings.captioning.max_tokens < 1:
        raise SettingsError("setting 'captioning.max_tokens': must be at least 1")
    if settings.images.encoder_url:
        if not settings.images.encoder_url.startswith(("http://", "https://")):
            raise SettingsError("setting 'images.encoder_url': must be an http(s) address")
        if not settings.images.encoder_model:
            raise SettingsError("setting 'images.encoder_model': must be named beside images.encoder_url")
    if settings.captioning.timeout < 0:
        raise SettingsError("setting 'captioning.timeout': must not be negative")
    if settings.captioning.concurrency < 0:
        raise SettingsError("setting 'captioning.concurrency': must not be negative")
    for stage in STAGES:
        section: StageSettings = getattr(settings, stage)
        if section.concurrency < 0:
            raise SettingsError(f"setting '{stage}.concurrency': must not be negative")
        if section.timeout < 0:
            raise SettingsError(f"setting '{stage}.timeout': must not be negative")
        if section.embedding_model and stage not in EMBEDDING:
            raise SettingsError(f"setting '{stage}.embedding_model': only for {' and '.join(EMBEDDING)}")
        if section.engine in ("llm", "visual", "openai") and section.llm is None:
            raise SettingsError(
                f"setting '{stage}.llm': engine {section.engine} needs at least base_url and model here"
            )
