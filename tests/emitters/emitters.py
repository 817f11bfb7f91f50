"""The emitters: what to install for each, in an environment of its own, because their pins fight."""

from __future__ import annotations

import dataclasses

OTLP = ("opentelemetry-distro", "opentelemetry-exporter-otlp-proto-http")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Emitter:
    """A library: `packages` to install, the first of which gives the version; its names of environment."""

    name: str
    packages: tuple[str, ...]

    @property
    def package(self) -> str:
        return self.packages[0]


EMITTERS = {
    emitter.name: emitter
    for emitter in (
        # Its newest release imports a module that util-genai dropped in 1.0, and httpx, which the newest
        # openai no longer brings.
        Emitter(
            name="openai-v2",
            packages=(
                "opentelemetry-instrumentation-openai-v2",
                "opentelemetry-util-genai<1",
                "httpx",
                "openai",
                *OTLP,
            ),
        ),
        Emitter(
            name="genai-openai", packages=("opentelemetry-instrumentation-genai-openai", "openai", *OTLP)
        ),
        Emitter(name="openinference", packages=("openinference-instrumentation-openai", "openai", *OTLP)),
        Emitter(name="openllmetry", packages=("opentelemetry-instrumentation-openai", "openai", *OTLP)),
        Emitter(name="litellm", packages=("litellm[proxy]", *OTLP)),
        Emitter(name="langfuse", packages=("langfuse", "openai")),
        Emitter(name="openai", packages=("openai",)),
    )
}
