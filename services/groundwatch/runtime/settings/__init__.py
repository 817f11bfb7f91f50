"""Settings: one typed tree, from a TOML file and the environment; and those of judges over it."""

from groundwatch.models.openai.settings import ChatSettings
from groundwatch.models.triton.settings import TritonSettings
from groundwatch.runtime.settings.judges import (
    JUDGING,
    judging_sections,
    recorded_sections,
    with_file,
    with_judge,
    with_run,
)
from groundwatch.runtime.settings.nats_addresses import nats_servers
from groundwatch.runtime.settings.problems import Problems
from groundwatch.runtime.settings.reading import (
    ENVIRONMENT_PREFIX,
    TOKEN_VARIABLE,
    Reading,
    as_variables,
    load,
    read,
)
from groundwatch.runtime.settings.sections import (
    ASKING,
    STAGES,
    Ages,
    AlarmSettings,
    ArchiveSettings,
    CacheSettings,
    CaptioningSettings,
    GatewaySettings,
    GrpcSettings,
    HttpSettings,
    ImagesSettings,
    IntakeSettings,
    NatsSettings,
    RetentionSettings,
    RetrySettings,
    SamplingRule,
    Settings,
    StageSettings,
    TelemetrySettings,
    VisualSettings,
)
from groundwatch.runtime.settings.sections import take_protocols as _take_protocols

__all__ = [
    "ASKING",
    "ENVIRONMENT_PREFIX",
    "JUDGING",
    "STAGES",
    "TOKEN_VARIABLE",
    "Ages",
    "AlarmSettings",
    "ArchiveSettings",
    "CacheSettings",
    "CaptioningSettings",
    "ChatSettings",
    "GatewaySettings",
    "GrpcSettings",
    "HttpSettings",
    "ImagesSettings",
    "IntakeSettings",
    "NatsSettings",
    "Problems",
    "Reading",
    "RetentionSettings",
    "RetrySettings",
    "SamplingRule",
    "Settings",
    "StageSettings",
    "TelemetrySettings",
    "TritonSettings",
    "VisualSettings",
    "as_variables",
    "judging_sections",
    "load",
    "nats_servers",
    "read",
    "recorded_sections",
    "with_file",
    "with_judge",
    "with_run",
]

_take_protocols()
