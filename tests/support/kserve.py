"""A server that speaks Triton's gRPC and serves stand-ins, which misbehave on demand.

It has no models and no scheduler: what a real Triton does is tested with a real one. `script` maps a
model's name to what each of its requests meets in turn, the last for ever: `ok[:seconds]`, `nan`, `short` (a
value too few), a gRPC status such as `UNAVAILABLE`, or a slug in brackets with text, which the serving code
answers with INVALID_ARGUMENT. `REFUSES` is a statement that is too long for the verifier.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
from tests.support.fakes import CELL, GRID, describe, embed, paint
from tests.support.llm_server import _shown, _verdict
from tritonclient.grpc import service_pb2 as messages
from tritonclient.grpc import service_pb2_grpc as services

from groundwatch.errors import Unscorable

REFUSES = "Much too long."
NAMELESS = "zeppelin"
Found = tuple[list[float], float]
"""A box and its score."""

SURE = {"supported": 0.9, "refuted": 0.1}


class Served(services.GRPCInferenceServiceServicer):
    """The models `lvlm`, `verifier`, `image_encoder`, `generator` and `detector`.

    The detector finds what `shows` has of an image: boxes and scores by what is there. In any other it finds
    a painted grid's cells by the name of their color. `NAMELESS` is too long a name for it.
    """

    def __init__(self) -> None:
        self.script: dict[str, list[str]] = {}
        self.loaded = dict.fromkeys(
            ("lvlm", "heron", "verifier", "image_encoder", "generator", "detector"), "one"
        )
        """Served names with the checkpoint behind each."""
        self.whole: bool | None = None
        """Whether the verifier says that it fell back to whole prompts; None: it says nothing."""
        self.asked: Counter[str] = Counter()
        self.statements: list[list[str]] = []
        self.texts: list[list[str]] = []
        self.shows: dict[bytes, dict[str, list[Found]]] = {}
        self.peak = 0
        self._active = 0

    async def ServerLive(self, request: Any, context: Any) -> Any:  # noqa: N802
        return messages.ServerLiveResponse(live=True)

    async def ModelReady(self, request: Any, context: Any) -> Any:  # noqa: N802
        return messages.ModelReadyResponse(ready=request.name in self.loaded)

    async def ModelConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        if request.name not in self.loaded:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"unknown model '{request.name}'")
        answer = messages.ModelConfigResponse()
        answer.config.parameters["MODEL_ID"].string_value = request.name
        answer.config.parameters["WEIGHTS_SHA256"].string_value = self.loaded[request.name]
        return answer

    async def ModelInfer(self, request: Any, context: Any) -> Any:  # noqa: N802
        name = request.model_name
        script = self.script.get(name, ["ok"])
        behaviour, _, rest = script[min(self.asked[name], len(script) - 1)].partition(":")
        self.asked[name] += 1
        self._active += 1
        self.peak = max(self.peak, self._active)
        try:
            if name not in self.loaded:
                await context.abort(grpc.StatusCode.NOT_FOUND, f"Request for unknown model: '{name}'")
            if behaviour == "ok" and rest:
                await asyncio.sleep(float(rest))
            if behaviour.startswith("["):
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, behaviour)
            if behaviour.isupper():
                await context.abort(getattr(grpc.StatusCode, behaviour), f"asked for {behaviour}")
            inputs = {
                one.name: _texts(raw) if one.datatype == "BYTES" else []
                for one, raw in zip(request.inputs, request.raw_input_contents, strict=True)
            }
            try:
                outputs = self._answer(name, inputs)
            except ValueError as error:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        finally:
            self._active -= 1
        return _response(name, outputs, behaviour)

    def _answer(self, name: str, inputs: dict[str, list[bytes]]) -> dict[str, Any]:
        tokens = np.array([[11, 3]], dtype=np.int32)
        if name == "verifier":
            texts = [one.decode() for one in inputs["STATEMENTS"]]
            self.statements.append(texts)
            if REFUSES in texts:
                raise ValueError("[prompt_too_long] 900 tokens; at most 512")
            seen = _shown(inputs["IMAGES"], "")
            found = [SURE[_verdict(text, *seen)] for text in texts]
            way = {"WAY": [b"whole" if self.whole else b"as set"]} if self.whole is not None else {}
            return {"P_YES": np.array([found], dtype=np.float32), "TOKENS": tokens, **way}
        if name == "generator":
            return {"IMAGE": [paint(inputs["PROMPT"][0].decode())]}
        try:
            if name == "detector":
                texts = [one.decode() for one in inputs["TEXTS"]]
                self.texts.append(texts)
                if NAMELESS in texts:
                    raise ValueError("[prompt_too_long] 40 tokens; this model takes 14")
                there = self.shows.get(inputs["IMAGE"][0])
                return _boxes(texts, _cells(inputs["IMAGE"][0], texts) if there is None else there)
            if name == "image_encoder":
                return {"EMBEDDING": np.array([embed(inputs["IMAGE"][0])], dtype=np.float32)}
            seen_now = " ".join(describe(image) for image in inputs.get("IMAGES", []))
        except Unscorable as error:
            raise ValueError(f"[unreadable_image] {error.detail}") from error
        said = seen_now or f"I was given {len(inputs['PROMPT'][0].split())} words and no image."
        return {"TEXT": [said.encode()], "FINISH_REASON": [b"stop"], "TOKENS": tokens}


class KServe:
    """The server, on a thread of its own."""

    def __init__(self) -> None:
        self.served = Served()
        self.url = ""
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> KServe:
        self._thread.start()
        assert self._ready.wait(20)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(self._start())
        self._ready.set()
        self._loop.run_forever()
        self._loop.run_until_complete(server.stop(0.1))
        self._loop.close()

    async def _start(self) -> Any:
        server = grpc.aio.server()
        services.add_GRPCInferenceServiceServicer_to_server(self.served, server)
        self.url = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        return server


def _cells(image: bytes, texts: list[str]) -> dict[str, list[Found]]:
    seen = describe(image)
    cells = [([int(x) - 1, int(y) - 1, int(x), int(y)], color) for y, x, color in CELL.findall(seen)]
    return {
        text: [([edge / GRID for edge in cell], 0.9) for cell, color in cells if color in text.split()]
        for text in texts
    }


def _boxes(texts: list[str], there: dict[str, list[Found]]) -> dict[str, Any]:
    found = [(at, *one) for at, text in enumerate(texts) for one in there.get(text, ())]
    return {
        "BOXES": np.array([[box for _, box, _ in found]], dtype=np.float32).reshape(1, -1, 4),
        "SCORES": np.array([[score for _, _, score in found]], dtype=np.float32),
        "TEXT_INDEX": np.array([[at for at, _, _ in found]], dtype=np.int32),
    }


def _texts(raw: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(raw):
        (length,) = struct.unpack_from("<I", raw, at)
        found.append(raw[at + 4 : at + 4 + length])
        at += 4 + length
    return found


def _response(name: str, outputs: dict[str, Any], behaviour: str) -> Any:
    response = messages.ModelInferResponse(model_name=name, model_version="1")
    for key, value in outputs.items():
        if isinstance(value, list):
            kind, shape = "BYTES", [1, len(value)]
            raw = b"".join(struct.pack("<I", len(one)) + one for one in value)
        else:
            if value.dtype == np.float32 and behaviour == "nan":
                value = value * np.nan
            if value.dtype == np.float32 and behaviour == "short":
                value = value[:, :-1]
            kind, shape = {"float32": "FP32", "int32": "INT32"}[str(value.dtype)], list(value.shape)
            raw = value.tobytes()
        response.outputs.append(
            messages.ModelInferResponse.InferOutputTensor(name=key, datatype=kind, shape=shape)
        )
        response.raw_output_contents.append(raw)
    return response


@contextlib.contextmanager
def running() -> Iterator[KServe]:
    """A server for the length of a `with` block."""
    with KServe() as server:
        yield server
