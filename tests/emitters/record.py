"""Records what emitters send, as tests/conversations/recorded: `python -m tests.emitters.record [NAME …]`.

A name is an emitter or a recording of it; without one all are made anew.
"""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.emitters.calls import CALLS
from tests.emitters.emitters import EMITTERS, installation
from tests.emitters.environments import Environments, kept
from tests.emitters.running import MASTER_KEY, MODELS, base_environment, litellm_proxy, run_application
from tests.emitters.sink import Sink
from tests.emitters.stand_in import StandIn

RECORDED = Path(__file__).parents[1] / "conversations" / "recorded"

CHAT = ("data", "url", "stream", "text")
BOTH = (*CHAT, "responses", "responses-stream")
CONTENT = {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true"}
LATEST = {"OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recording:
    """A setting of an emitter."""

    emitter: str
    setting: str
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    setup: str = ""
    proxy: str = ""
    calls: tuple[str, ...] = CHAT
    instrumented: bool = True

    @property
    def name(self) -> str:
        return f"{self.emitter}-{self.setting}"


def _capture(where: str) -> dict[str, str]:
    return LATEST | {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": where}


SENDING = {
    "OTEL_EXPORTER_OTLP_ENDPOINT": "SINK",
    "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
    "OTEL_SERVICE_NAME": "pictures",
    "OTEL_METRICS_EXPORTER": "none",
    "OTEL_EXPERIMENTAL_RESOURCE_DETECTORS": "otel",
    "LANGFUSE_PUBLIC_KEY": "pk-lf-groundwatch",
    "LANGFUSE_SECRET_KEY": "sk-lf-token",
    "LANGFUSE_BASE_URL": "SINK",
}
LITELLM = "import litellm\n\nlitellm.callbacks = ['otel']\n"
V2 = {"LITELLM_OTEL_V2": "true"}
IMAGES = {"MAX_BASE64_LENGTH_FOR_LOGGING": "0"}
PROXY_OTEL = MODELS + "litellm_settings: {callbacks: [otel]}\n"
PROXY = (
    MODELS
    + """litellm_settings: {callbacks: ["groundwatch"]}
callback_settings:
  groundwatch: {callback_type: generic_api, endpoint: SINK/v1/litellm, headers: {Authorization: Bearer token},
                event_types: [llm_api_success], log_format: LOG_FORMAT, max_retries: 5}
"""
)
RECORDINGS = [
    Recording(emitter="openai", setting="exchanges", calls=BOTH),
    Recording(emitter="openai-v2", setting="content", environment=CONTENT),
    Recording(emitter="openai-v2", setting="no-content"),
    Recording(emitter="openai-v2", setting="experimental-span", environment=_capture("span_only")),
    Recording(emitter="openai-v2", setting="experimental-event", environment=_capture("event_only")),
    Recording(emitter="genai-openai", setting="span", environment=_capture("span_only"), calls=BOTH),
    Recording(emitter="genai-openai", setting="event", environment=_capture("event_only"), calls=BOTH),
    Recording(
        emitter="genai-openai", setting="span-and-event", environment=_capture("span_and_event"), calls=BOTH
    ),
    Recording(emitter="genai-openai", setting="no-content", calls=BOTH),
    Recording(
        emitter="genai-openai",
        setting="upload",
        environment={
            "OTEL_INSTRUMENTATION_GENAI_COMPLETION_HOOK": "upload",
            "OTEL_INSTRUMENTATION_GENAI_UPLOAD_BASE_PATH": "file://UPLOADS",
        },
        calls=BOTH,
    ),
    Recording(emitter="openinference", setting="default", calls=BOTH),
    Recording(
        emitter="openinference",
        setting="redacted",
        environment={"OPENINFERENCE_BASE64_IMAGE_MAX_LENGTH": "100"},
        calls=BOTH,
    ),
    Recording(
        emitter="openinference",
        setting="hide-images",
        environment={"OPENINFERENCE_HIDE_INPUT_IMAGES": "true"},
        calls=BOTH,
    ),
    Recording(
        emitter="openinference",
        setting="genai-semconv",
        environment={"OPENINFERENCE_ENABLE_GENAI_SEMCONV": "true"},
        calls=BOTH,
    ),
    Recording(emitter="openllmetry", setting="default", calls=BOTH),
    Recording(
        emitter="openllmetry",
        setting="images",
        setup="from opentelemetry.instrumentation.openai import OpenAIInstrumentor\n"
        "OpenAIInstrumentor(upload_base64_image=None).instrument()\n",
        calls=BOTH,
    ),
    Recording(
        emitter="openllmetry",
        setting="events",
        environment={"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "openai"},
        setup="from opentelemetry.instrumentation.openai import OpenAIInstrumentor\n"
        "OpenAIInstrumentor(upload_base64_image=None, use_attributes=False).instrument()\n",
        calls=BOTH,
    ),
    Recording(
        emitter="langfuse", setting="default", setup="from langfuse.openai import OpenAI\n", calls=BOTH
    ),
    Recording(
        emitter="langfuse",
        setting="inline",
        setup="from langfuse.openai import OpenAI\n",
        environment={"LANGFUSE_MEDIA_UPLOAD_ENABLED": "false"},
        calls=BOTH,
    ),
    Recording(emitter="litellm", setting="otel", setup=LITELLM, calls=BOTH),
    Recording(emitter="litellm", setting="otel-content-true", setup=LITELLM, environment=CONTENT),
    Recording(
        emitter="litellm",
        setting="otel-events",
        setup=LITELLM,
        environment=CONTENT | {"LITELLM_OTEL_INTEGRATION_ENABLE_EVENTS": "true"},
    ),
    Recording(
        emitter="litellm", setting="otel-latest", setup=LITELLM, environment=_capture("SPAN_AND_EVENT")
    ),
    Recording(emitter="litellm", setting="proxy-otel", proxy=PROXY_OTEL, calls=BOTH),
    Recording(
        emitter="litellm",
        setting="proxy-otel-v2",
        proxy=PROXY_OTEL,
        environment=V2 | {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY"},
        calls=BOTH,
    ),
    Recording(
        emitter="litellm",
        setting="proxy-otel-v2-images",
        proxy=PROXY_OTEL,
        environment=V2 | IMAGES | {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY"},
        calls=BOTH,
    ),
    *(
        Recording(
            emitter="litellm",
            setting=f"proxy-{log_format}{'-images' if images else ''}",
            proxy=PROXY.replace("LOG_FORMAT", log_format),
            environment=images,
            calls=BOTH,
        )
        for log_format, images in (
            ("single", {}),
            ("single", IMAGES),
            ("json_array", IMAGES),
            ("ndjson", IMAGES),
        )
    ),
]


def record(recording: Recording, environments: Environments) -> dict[str, Any]:
    emitter = EMITTERS[recording.emitter]
    folder = environments.make(*installation(recording.emitter))
    version = subprocess.run(
        [folder / "bin" / "python", "-c", VERSION, emitter.package],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    with StandIn() as model, Sink() as sink, tempfile.TemporaryDirectory() as uploads:
        environment = base_environment(folder, model.url) | SENDING | recording.environment
        environment = {
            name: value.replace("SINK", sink.url).replace("UPLOADS", uploads)
            for name, value in environment.items()
        }
        if recording.proxy:
            config = recording.proxy.replace("SINK", sink.url)
            with litellm_proxy(folder, environment, config) as url:
                environment |= {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": MASTER_KEY}
                run_application(folder, environment, "", recording.calls, instrument=False)
                _wait_logged(sink, recording.calls)
        else:
            run_application(
                folder, environment, recording.setup, recording.calls, instrument=recording.instrumented
            )
        exchanges = [
            {"path": path, "body": {"request": json.loads(asked), "response": answered.decode()}}
            for path, asked, answered in model.exchanges
        ]
        requests = [
            {
                "path": request.path,
                "headers": {
                    name: value
                    for name, value in request.headers.items()
                    if name in ("content-type", "content-encoding", "authorization", "user-agent")
                },
                "body": request.body,
            }
            for request in sink.requests
            if not request.path.endswith("/v1/metrics")
        ]
        uploaded = {path.name: path.read_text() for path in sorted(Path(uploads).iterdir())}
    whole = {
        "emitter": recording.emitter,
        "package": emitter.package,
        "version": version,
        "recorded": time.strftime("%Y-%m-%d", time.gmtime()),
        "environment": recording.environment,
        "setup": recording.setup.splitlines() or recording.proxy.splitlines(),
        "calls": {name: dataclasses.asdict(CALLS[name]) for name in recording.calls},
        "requests": exchanges if recording.emitter == "openai" else requests,
    }
    if uploaded:
        whole["uploads"] = uploaded
    return scrubbed(json.loads(json.dumps(whole).replace(uploads, "/uploads")))


def _wait_logged(sink: Sink, calls: tuple[str, ...], limit: float = 60) -> None:
    """Wait until a proxy has logged the answers of all calls, however it groups them."""
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        text = str([request.body for request in sink.requests])
        if all(CALLS[name].answer in text for name in calls):
            return
        time.sleep(0.2)
    raise AssertionError(f"the proxy logged {len(sink.requests)} requests")


VERSION = "import sys, importlib.metadata as m; print(m.version(sys.argv[1]))"
LOCAL = re.compile(r"127\.0\.0\.1:\d+|localhost:\d+")


def scrubbed(value: Any) -> Any:
    """Without what says something of this machine."""
    if isinstance(value, str):
        return LOCAL.sub("model.example", value)
    if isinstance(value, list):
        return [scrubbed(item) for item in value if not _of_this_machine(item)]
    if isinstance(value, dict):
        return {name: scrubbed(item) for name, item in value.items()}
    return value


MACHINE = ("process.", "host.", "os.", "thread.", "code.", "server.port", "service.instance", "container.")


def _of_this_machine(item: Any) -> bool:
    return isinstance(item, dict) and str(item.get("key", "")).startswith(MACHINE)


def main() -> None:
    wanted = sys.argv[1:]
    with kept() as environments:
        for recording in RECORDINGS:
            if wanted and recording.name not in wanted and recording.emitter not in wanted:
                continue
            whole = record(recording, environments)
            target = RECORDED / f"{recording.name}.json"
            target.write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n")
            print(f"{target.name}: {[request['path'] for request in whole['requests']]}")


if __name__ == "__main__":
    main()
