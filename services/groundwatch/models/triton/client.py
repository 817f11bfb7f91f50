"""The models that Triton serves, asked over gRPC: one client for all of them.

Faults end as those of an OpenAI-compatible endpoint do: what the input causes makes it unscored, what
passes is tried again within bounds and then handed back, what the operator must mend is handed back too.
A model that keeps failing is left alone for a while.
"""

import asyncio
import hashlib
import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Any, TypeVar

from groundwatch.addresses import shown_address
from groundwatch.errors import MissingExtraError, TransientError, Unscorable
from groundwatch.events import Usage
from groundwatch.models.asking.breaker import Breaker
from groundwatch.models.asking.calls import Calls
from groundwatch.models.asking.retry_policy import CallKind, Fault, RetryPolicy
from groundwatch.models.openai.settings import OnCall
from groundwatch.models.replies import Text, encodable
from groundwatch.models.triton.replies import (
    BadReply,
    ModelIdentity,
    array,
    bad_reply,
    blob,
    fault_of,
    no_reply,
    numbers,
    probabilities,
)
from groundwatch.models.triton.settings import TritonSettings

T = TypeVar("T")

TEXTS_AT_ONCE = 32
"""No more than a model's `max_batch_size` in the repository."""

WATCH_SECONDS = 5.0
_PNG = b"\x89PNG\r\n\x1a\n"
_ASKED = ("PROMPT_TEMPLATE", "SYSTEM_PROMPT", "YES", "NO")
"""Parameters of a served model that change what it is asked."""


class TritonModels:
    """The served models; one client for each loop, for any number of tasks.

    Every call raises `Unscorable` (unreadable_image, prompt_too_long, not_finite, empty_reply,
    judge_rejected_request), `RateLimited`, `Unavailable` while the model is away, or `TransientError`.
    """

    def __init__(self, settings: TritonSettings, *, on_call: OnCall | None = None) -> None:
        try:
            self._numpy: Any = importlib.import_module("numpy")
            self._grpc: Any = importlib.import_module("tritonclient.grpc.aio")
        except ImportError as error:
            raise MissingExtraError("tritonclient", "triton") from error
        self.settings = settings
        self._on_call = on_call
        self._connected: Any = None
        self._slots = asyncio.Semaphore(settings.concurrency)
        self._calls: dict[str, Calls] = {}
        self._identities: dict[str, ModelIdentity] = {}
        self._watched: dict[str, str] = {}
        self._watcher: asyncio.Task[None] | None = None

    async def lvlm(
        self,
        images: Sequence[bytes],
        prompt: str,
        *,
        max_tokens: int = 256,
        temperature: float = 0.0,
        seed: int = 0,
        model: str = "",
    ) -> Text:
        """The answer of an LVLM (that of settings, or `model`) to `prompt` about `images`, greedy at 0."""
        inputs = {
            "PROMPT": [prompt],
            "MAX_TOKENS": self._numbers([max_tokens], "int32"),
            "TEMPERATURE": self._numbers([temperature], "float32"),
            "SEED": self._numbers([seed], "int64"),
        }
        if images:
            inputs["IMAGES"] = list(images)
        return await self._call(model or self.settings.lvlm, inputs, _read_text)

    async def verify(
        self, image: bytes | Sequence[bytes], statements: Sequence[str], *, model: str = ""
    ) -> list[float]:
        """For each statement the probability that it holds for the image or images, in one request."""
        if not statements:
            return []
        inputs = {
            "IMAGES": [image] if isinstance(image, bytes) else list(image),
            "STATEMENTS": list(statements),
        }
        return await self._call(
            model or self.settings.verifier,
            inputs,
            lambda result: (probabilities(result, "P_YES", length=len(statements)), _usage(result)),
        )

    async def encode_image(self, image: bytes, *, model: str = "") -> list[float]:
        """The image's vector, as its encoder sees it."""
        return await self._call(model or self.settings.image_encoder, {"IMAGE": [image]}, _read_vector)

    async def encode_text(self, texts: Sequence[str], *, model: str = "") -> list[list[float]]:
        """A vector for each text, all of one length."""
        name = model or self.settings.text_encoder
        found = await asyncio.gather(
            *(self._call(name, {"TEXT": [text]}, _read_vector) for text in texts[:TEXTS_AT_ONCE])
        )
        if len(texts) > TEXTS_AT_ONCE:
            found += await self.encode_text(texts[TEXTS_AT_ONCE:], model=name)
        return found

    async def generate_image(self, prompt: str, *, seed: int = 0, steps: int = 0, model: str = "") -> bytes:
        """The PNG that the generator makes of `prompt`; `steps` 0: as many as the served model is set to."""
        inputs = {
            "PROMPT": [prompt],
            "SEED": self._numbers([seed], "int64"),
            "STEPS": self._numbers([steps], "int32"),
        }
        return await self._call(model or self.settings.generator, inputs, _read_png)

    async def identity(self, model: str) -> ModelIdentity:
        """Which checkpoint answers under the served name `model`, as its repository states it.

        Asked once and kept until `forget`. Raises `Unavailable` when Triton does not say: no event is to
        blame for that.
        """
        if model not in self._identities:
            calls = self._calls_to(model)
            calls.answered()
            try:
                answer = await self._ask_server("get_model_config", model)
            except TransientError as error:
                raise calls.away(error) from error
            found = {key: value.string_value for key, value in answer.config.parameters.items()}
            asked = "\n".join(f"{key}={found[key]}" for key in _ASKED if found.get(key))
            digest = found.get("WEIGHTS_SHA256", "")
            checkpoint = found.get("MODEL_ID", "") or model
            self._identities[model] = ModelIdentity(
                name=model,
                # Where its folder lies is a machine's own affair; the digest tells which checkpoint it is.
                model_id=PurePath(checkpoint).name if digest else checkpoint,
                weights=digest or found.get("REVISION", ""),
                dtype=found.get("DTYPE", ""),
                prompt=hashlib.sha256(asked.encode()).hexdigest()[:12] if asked else "",
            )
        return self._identities[model]

    def forget(self, model: str) -> None:
        """Ask again who answers under this name: it may have been loaded anew."""
        self._identities.pop(model, None)

    async def ready(self, model: str = "") -> bool:
        """Whether Triton answers and, when one is named, the model is loaded."""
        try:
            if model:
                return bool(await self._ask_server("is_model_ready", model))
            # Not its readiness: a server is unready as soon as any one of its models is.
            return bool(await self._ask_server("is_server_live"))
        except TransientError:
            return False

    async def watch(self, *models: str) -> None:
        """Look every few seconds whether `models` are loaded, for `problems`."""
        self._watched |= dict.fromkeys(models, "not looked at yet")
        await self._look()
        if self._watcher is None:
            self._watcher = asyncio.create_task(self._watch(), name="triton-watch")

    def problems(self) -> list[str]:
        """What keeps the watched models from answering; empty when nothing does."""
        found = [f"model '{name}': {why}" for name, why in self._watched.items() if why]
        found += [
            f"model '{name}' is left alone after faults: {calls.breaker.why}"
            for name, calls in self._calls.items()
            if calls.breaker.is_open and not self._watched.get(name)
        ]
        return [f"triton at {shown_address(self.settings.url)}: {what}" for what in found]

    async def close(self) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
            self._watcher = None
        if self._connected is not None:
            await self._connected.close()
            self._connected = None

    async def _call(self, model: str, inputs: Mapping[str, Any], read: Callable[[Any], tuple[T, Usage]]) -> T:
        settings = self.settings
        policy = RetryPolicy(
            retries=settings.retries, seconds=settings.patience, first_wait=settings.first_wait
        )
        tensors = [self._tensor(name, values) for name, values in inputs.items()]
        (found, usage), seconds = await self._calls_to(model).persist(
            lambda: self._request(model, tensors, read), policy
        )
        self._record(CallKind.OK, seconds, usage)
        return found

    def _calls_to(self, model: str) -> Calls:
        if model not in self._calls:
            breaker = Breaker(failures=self.settings.breaker_failures, pause=self.settings.breaker_pause)
            self._calls[model] = Calls(model, slots=self._slots, breaker=breaker, record=self._record)
        return self._calls[model]

    async def _request(
        self, model: str, tensors: list[Any], read: Callable[[Any], tuple[T, Usage]]
    ) -> tuple[T, Usage] | Fault:
        from tritonclient.utils import InferenceServerException

        seconds = self.settings.timeout
        try:
            # Triton's own deadline, in microseconds, takes it out of the queue when we no longer wait.
            async with asyncio.timeout(seconds + 1.0):
                result = await self._client().infer(
                    model, tensors, client_timeout=seconds, timeout=int(seconds * 1_000_000)
                )
        except (InferenceServerException, TimeoutError) as error:
            return fault_of(error, whom=self._whom(model))
        if not result.get_response().outputs:
            return no_reply(whom=self._whom(model))
        try:
            return read(result)
        except Unscorable as error:
            return Fault(kind=CallKind(error.reason), error=error)
        except (BadReply, InferenceServerException, ValueError, IndexError) as error:
            return bad_reply(error, whom=self._whom(model))

    async def _ask_server(self, what: str, *arguments: str) -> Any:
        from tritonclient.utils import InferenceServerException

        seconds = min(self.settings.timeout, WATCH_SECONDS)
        try:
            async with asyncio.timeout(seconds + 1.0):
                return await getattr(self._client(), what)(*arguments, client_timeout=seconds)
        except (InferenceServerException, TimeoutError) as error:
            fault = fault_of(error, whom=self._whom(*arguments))
            raise TransientError(str(fault.error)) from error

    def _client(self) -> Any:
        if self._connected is None:
            settings = self.settings
            self._connected = self._grpc.InferenceServerClient(
                settings.url, ssl=settings.tls, root_certificates=settings.tls_ca or None
            )
        return self._connected

    def _numbers(self, values: Sequence[float], dtype: str) -> Any:
        return self._numpy.array([values], dtype=dtype)

    def _tensor(self, name: str, values: Any) -> Any:
        """A tensor with a batch dimension of 1; texts and bytes become Triton's BYTES."""
        if isinstance(values, list):
            flat = [encodable(one).encode() if isinstance(one, str) else one for one in values]
            values = self._numpy.empty((1, len(flat)), dtype=object)
            values[0, :] = flat
        kind = {"int32": "INT32", "int64": "INT64", "float32": "FP32"}.get(str(values.dtype), "BYTES")
        tensor = self._grpc.InferInput(name, list(values.shape), kind)
        tensor.set_data_from_numpy(values)
        return tensor

    def _record(self, kind: CallKind, seconds: float, usage: Usage) -> None:
        if self._on_call is not None:
            self._on_call(kind.value, seconds, usage)

    def _whom(self, model: str = "") -> str:
        return (
            f"model '{model}' at {shown_address(self.settings.url)}"
            if model
            else f"Triton at {shown_address(self.settings.url)}"
        )

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            try:
                await self._look()
            except Exception as error:
                # Whatever it is, looking goes on: what was last seen must not stand for ever.
                self._watched = dict.fromkeys(self._watched, f"cannot be looked at: {error!r}")

    async def _look(self) -> None:
        for name in self._watched:
            loaded = await self.ready(name)
            self._watched[name] = "" if loaded else "not loaded" if await self.ready() else "no answer"


def _usage(result: Any) -> Usage:
    asked, told = array(result, "TOKENS", dtype="i", length=2).tolist()
    return Usage(calls=1, input_tokens=max(0, asked), output_tokens=max(0, told))


def _read_text(result: Any) -> tuple[Text, Usage]:
    usage = _usage(result)
    text = blob(result, "TEXT").decode("utf-8", "replace")
    if not text.strip():
        raise Unscorable(CallKind.EMPTY_REPLY)
    cut_off = blob(result, "FINISH_REASON") == b"length"
    return Text(text=text, usage=usage, cut_off=cut_off), usage


def _read_vector(result: Any) -> tuple[list[float], Usage]:
    return numbers(result, "EMBEDDING"), Usage(calls=1)


def _read_png(result: Any) -> tuple[bytes, Usage]:
    data = blob(result, "IMAGE")
    if not data.startswith(_PNG):
        raise BadReply("output IMAGE is no PNG")
    return data, Usage(calls=1)
