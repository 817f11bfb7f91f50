"""The emitters: the section of docs/connect.md that each is about, and what that tells one to install."""

from __future__ import annotations

import dataclasses

from tests.emitters import page
from tests.emitters.calls import BEDROCK, CLAUDE, GEMINI, MODEL


@dataclasses.dataclass(frozen=True, kw_only=True)
class Emitter:
    """A library. `package` gives the version; `more` is installed besides what the page names; `asks` is the
    function of `asking`, or of `application.mjs` where npm installs it, that its application asks by, where
    that is not the OpenAI client; `model` is asked. Those with the same `place` share an environment."""

    package: str
    section: str = ""
    more: tuple[str, ...] = ()
    asks: str = ""
    model: str = MODEL
    place: str = ""
    npm: bool = False

    @property
    def packages(self) -> tuple[str, ...]:
        return (*(page.packages(self.section) if self.section else ()), *self.more)


EMITTERS = {
    "openai-v2": Emitter(
        package="opentelemetry-instrumentation-openai-v2", section="OpenTelemetry openai-v2"
    ),
    "genai-openai": Emitter(
        package="opentelemetry-instrumentation-genai-openai",
        section="OpenTelemetry",
        more=("opentelemetry-util-genai[upload]", "opentelemetry-exporter-otlp-proto-grpc"),
    ),
    "openinference": Emitter(package="openinference-instrumentation-openai", section="OpenInference"),
    "openllmetry": Emitter(package="opentelemetry-instrumentation-openai", section="OpenLLMetry"),
    "litellm": Emitter(package="litellm", section="LiteLLM with OpenTelemetry", more=("litellm[proxy]",)),
    "langfuse": Emitter(package="langfuse", section="Langfuse SDK"),
    "phoenix": Emitter(package="arize-phoenix-otel", section="Phoenix"),
    "logfire": Emitter(package="logfire", section="Logfire"),
    "mlflow": Emitter(package="mlflow", section="MLflow"),
    "traceloop": Emitter(package="traceloop-sdk", section="Traceloop SDK"),
    "openai-client": Emitter(package="openai", section="OpenAI client"),
    "litellm-library": Emitter(package="litellm", section="LiteLLM library"),
    "langchain": Emitter(
        package="openinference-instrumentation-langchain", section="LangChain", asks="langchain"
    ),
    "dspy": Emitter(package="dspy", section="DSPy", asks="dspy"),
    "openai-agents": Emitter(package="openai-agents", section="OpenAI Agents", asks="agents"),
    "llamaindex": Emitter(
        package="openinference-instrumentation-llama-index", section="LlamaIndex", asks="llama_index"
    ),
    "langsmith": Emitter(package="langsmith", section="LangSmith", asks="langchain"),
    "pydantic-ai": Emitter(package="pydantic-ai", section="Pydantic AI", asks="pydantic_ai"),
    "anthropic": Emitter(
        package="openinference-instrumentation-anthropic",
        section="Anthropic",
        asks="anthropic",
        model=CLAUDE,
        place="vendors",
    ),
    "google-genai": Emitter(
        package="openinference-instrumentation-google-genai",
        section="Google GenAI",
        asks="google",
        model=GEMINI,
        place="vendors",
    ),
    "bedrock": Emitter(
        package="openinference-instrumentation-bedrock",
        section="Amazon Bedrock",
        asks="bedrock",
        model=BEDROCK,
        place="vendors",
    ),
    "strands": Emitter(package="strands-agents", section="Strands Agents", asks="strands", model=BEDROCK),
    "agent-framework": Emitter(package="agent-framework", section="Agent Framework", asks="agent_framework"),
    "semantic-kernel": Emitter(package="semantic-kernel", section="Semantic Kernel", asks="semantic_kernel"),
    "ai-sdk": Emitter(package="ai", section="AI SDK", asks="ai", place="node", npm=True),
    "openinference-js": Emitter(
        package="@arizeai/openinference-instrumentation-openai",
        section="OpenInference for JavaScript",
        asks="openai",
        place="node",
        npm=True,
    ),
    "openai": Emitter(package="openai", more=("openai",)),
}


def installation(name: str) -> tuple[str, tuple[str, ...], bool]:
    """What `Environments.make` makes for an emitter, with those that share its place."""
    place = EMITTERS[name].place or name
    several = [one for key, one in EMITTERS.items() if (one.place or key) == place]
    packages = tuple(dict.fromkeys(package for one in several for package in one.packages))
    return place, packages, EMITTERS[name].npm
