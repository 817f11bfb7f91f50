"""The model that is probed: where it is, and the engine that asks it.

It is asked by the very engines of the captioning service, so that a probe and live questions meet the same
model in the same way.
"""

from urllib.parse import SplitResult, urlsplit

import msgspec
from pydantic import ValidationError

from groundwatch.addresses import shown_address
from groundwatch.captioning.engines import build
from groundwatch.captioning.engines.base import CaptioningEngine
from groundwatch.errors import SettingsError, UsageError
from groundwatch.models.openai.settings import ChatSettings, OnCall
from groundwatch.models.triton.settings import TritonSettings
from groundwatch.runtime.settings import CaptioningSettings, Settings
from groundwatch.section import in_words


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Who is asked. `url` is http(s):// for OpenAI-compatible servers, triton://host:port for Triton.

    `timeout` in seconds for one request; `at_once` requests are under way together.
    """

    url: str
    model: str
    timeout: float = 60.0
    at_once: int = 8
    max_tokens: int = 1024
    api_key_env: str = "OPENAI_API_KEY"
    retries: int = 2
    patience: float = 30.0

    def check(self) -> SplitResult:
        """The address in its parts. Raises `UsageError` for one that is none."""
        try:
            parts = urlsplit(self.url)
            host = parts.hostname
        except ValueError as error:
            raise UsageError(f"target {shown_address(self.url)}: is not an address ({error})") from error
        if parts.scheme not in ("http", "https", "triton") or not host:
            raise UsageError(
                f"target {shown_address(self.url)}: must be http(s)://… of an OpenAI-compatible server or "
                "triton://host:port"
            )
        return parts

    def engine(self, settings: Settings, *, on_call: OnCall | None = None) -> CaptioningEngine:
        """The engine that asks it. Raises `UsageError` for an address that is none."""
        parts = self.check()
        try:
            if parts.scheme == "triton":
                return self._on_triton(settings.triton, f"{parts.netloc}{parts.path}", on_call)
            return build(CaptioningSettings(models={self.model: self._chat()}), on_call=on_call)
        except ValidationError as error:
            raise SettingsError(f"target {shown_address(self.url)}: {in_words(error)}") from error

    def _chat(self) -> ChatSettings:
        return ChatSettings(
            base_url=self.url.rstrip("/"),
            model=self.model,
            api_key_env=self.api_key_env,
            timeout=self.timeout,
            concurrency=self.at_once,
            max_tokens=self.max_tokens,
            retries=self.retries,
            patience=self.patience,
        )

    def _on_triton(self, triton: TritonSettings, place: str, on_call: OnCall | None) -> CaptioningEngine:
        found = TritonSettings(
            **dict(triton)
            | {
                "url": place,
                "timeout": self.timeout,
                "concurrency": self.at_once,
                "retries": self.retries,
                "patience": self.patience,
            }
        )
        captioning = CaptioningSettings(
            engine="triton", served={self.model: self.model}, max_tokens=self.max_tokens
        )
        return build(captioning, on_call=on_call, triton=found)
