"""Records what emitters send, as tests/conversations/recorded: `python -m tests.emitters.record [NAME …]`.

Needs GROUNDWATCH_EMITTERS, the folder of environments.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.emitters.calls import CALLS
from tests.emitters.emitters import EMITTERS
from tests.emitters.sink import Sink
from tests.emitters.stand_in import StandIn

HERE = Path(__file__).parent
RECORDED = HERE.parent / "conversations" / "recorded"

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
    calls: tuple[str, ...] = CHAT
    instrumented: bool = True

    @property
    def name(self) -> str:
        return f"{self.emitter}-{self.setting}"


def _capture(where: str) -> dict[str, str]:
    return LATEST | {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": where}


LITELLM = "import litellm\n"
RECORDINGS = [
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
]


def environment_of(folder: Path, recording: Recording, model: str, sink: str) -> dict[str, str]:
    """The variables of an emitter's application."""
    return {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "HOME": os.environ.get("HOME", "/"),
        "OPENAI_BASE_URL": model,
        "OPENAI_API_BASE": model,
        "OPENAI_API_KEY": "sk-stand-in",
        "NO_PROXY": "127.0.0.1,localhost",
        "OTEL_EXPORTER_OTLP_ENDPOINT": sink,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_SERVICE_NAME": "pictures",
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_EXPERIMENTAL_RESOURCE_DETECTORS": "otel",
        "LANGFUSE_PUBLIC_KEY": "pk-lf-groundwatch",
        "LANGFUSE_SECRET_KEY": "sk-lf-token",
        "LANGFUSE_BASE_URL": sink,
        **recording.environment,
    }


def record(recording: Recording, environments: Path) -> dict[str, Any]:
    folder = environments / recording.emitter
    version = subprocess.run(
        [folder / "bin" / "python", "-c", VERSION, EMITTERS[recording.emitter].package.partition("[")[0]],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    with StandIn() as model, Sink() as sink, tempfile.TemporaryDirectory() as place:
        setup = Path(place) / "setup.py"
        setup.write_text(recording.setup)
        python = str(folder / "bin" / "python")
        command = [python, str(HERE / "application.py"), str(setup), *recording.calls]
        if (folder / "bin" / "opentelemetry-instrument").exists() and recording.instrumented:
            command = [str(folder / "bin" / "opentelemetry-instrument"), *command]
        subprocess.run(
            command, env=environment_of(folder, recording, model.url, sink.url), check=True, timeout=120
        )
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
    whole = {
        "emitter": recording.emitter,
        "package": EMITTERS[recording.emitter].package,
        "version": version,
        "recorded": time.strftime("%Y-%m-%d", time.gmtime()),
        "environment": recording.environment,
        "setup": recording.setup.splitlines(),
        "calls": {name: dataclasses.asdict(CALLS[name]) for name in recording.calls},
        "requests": requests,
    }
    return scrubbed(whole)


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
    environments = Path(os.environ["GROUNDWATCH_EMITTERS"])
    wanted = sys.argv[1:]
    for recording in RECORDINGS:
        if wanted and recording.name not in wanted and recording.emitter not in wanted:
            continue
        whole = record(recording, environments)
        target = RECORDED / f"{recording.name}.json"
        target.write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n")
        print(f"{target.name}: {[request['path'] for request in whole['requests']]}")


if __name__ == "__main__":
    main()
