"""A callback for the library LiteLLM: `litellm.callbacks = [GroundwatchLogger(recorder)]`.

Nothing else here imports LiteLLM, and without it this module is of no use. The proxy needs no code at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from groundwatch.client.openai import call_line, copied
from groundwatch.client.recorder import Recorder

if TYPE_CHECKING:
    CustomLogger = object
else:
    try:
        from litellm.integrations.custom_logger import CustomLogger
    except ImportError:
        CustomLogger = object

KEPT = (
    "id",
    "litellm_call_id",
    "trace_id",
    "session_id",
    "call_type",
    "status",
    "model",
    "model_group",
    "model_id",
    "custom_llm_provider",
    "messages",
    "response",
    "request_tags",
    "end_user",
    "endTime",
    "metadata",
)
"""What of LiteLLM's record is kept."""


class GroundwatchLogger(CustomLogger):
    """Records every answer that LiteLLM gets, with its images as they were sent."""

    def __init__(self, recorder: Recorder, *, tags: Mapping[str, str] | None = None) -> None:
        """`tags` go with every response."""
        super().__init__()
        self._recorder = recorder
        self._tags = dict(tags or {})

    def log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        self._record(kwargs)

    async def async_log_success_event(
        self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        self._record(kwargs)

    def _record(self, given: Any) -> None:
        recorder = self._recorder
        try:
            logged = given["standard_logging_object"]
            record = {key: logged[key] for key in KEPT if key in logged}
            # Its own messages have their images cut short.
            if messages := given.get("messages"):
                record["messages"] = messages
            kept, size = copied(record)
            recorder.take(size, call_line, (recorder, kept, self._tags, recorder.new_id()))
        except Exception:
            recorder.lose("unreadable")
