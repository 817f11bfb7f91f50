"""Triton's Python backend around the serving classes: tensors in, tensors out, errors by their kind.

The only module that knows Triton. A folder of the model repository names one of these classes as its
`TritonPythonModel`.
"""

import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image

from groundwatch.models.replies import Detection
from groundwatch.models.serving.detector import DetectionRequest, Detector
from groundwatch.models.serving.failures import Exhausted, Refused
from groundwatch.models.serving.images import GenerationRequest, Generator, ImageEncoder, TextEncoder, png
from groundwatch.models.serving.lvlm import Answer, Lvlm, Question
from groundwatch.models.serving.parameters import Parameters, read
from groundwatch.models.serving.verifier import EntailmentRequest, EntailmentResult, Verifier, load_verifier

Tensors = Mapping[str, Any]


def parameters_of(arguments: Mapping[str, str]) -> Parameters:
    """Parameters from what Triton gives `initialize`; on a GPU instance its device, unless one is named."""
    config = json.loads(arguments["model_config"])
    strings = {key: value["string_value"] for key, value in config.get("parameters", {}).items()}
    if arguments.get("model_instance_kind") == "GPU" and strings.get("DEVICE", "") in ("", "auto"):
        strings["DEVICE"] = f"cuda:{arguments.get('model_instance_device_id', '0')}"
    return read(strings)


class ServedModel:
    """What all served models have in common.

    `load` makes the serving class, `run` asks it: a result or an error for each question. `read` takes a
    question from a request's tensors, their batch dimension taken off, or raises `Refused`; `write` gives a
    result as arrays, without that dimension.
    """

    load: Callable[[Parameters], Any]
    run: Callable[[Any, Sequence[Any]], Sequence[Any]]

    def read(self, tensors: Tensors) -> Any:
        raise NotImplementedError

    def write(self, result: Any) -> dict[str, Any]:
        raise NotImplementedError

    def initialize(self, arguments: Mapping[str, str]) -> None:
        self._triton: Any = importlib.import_module("triton_python_backend_utils")
        self._served = self.load(parameters_of(arguments))
        self._served.warm_up(png(Image.new("RGB", (64, 64), (128, 128, 128))))

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Called by Triton with the requests that its dynamic batcher put together."""
        results: dict[int, Any] = {}
        asked: dict[int, Any] = {}
        for number, request in enumerate(requests):
            try:
                if request.is_cancelled():
                    raise InterruptedError("cancelled")
                asked[number] = self.read(_tensors(request))
            except Exception as error:
                results[number] = error
        if asked:
            results |= zip(asked, self.run(self._served, list(asked.values())), strict=True)
        found = (results[number] for number in range(len(requests)))
        return [self._failure(one) if isinstance(one, Exception) else self._response(one) for one in found]

    def _response(self, result: Any) -> Any:
        triton = self._triton
        return triton.InferenceResponse(
            output_tensors=[
                triton.Tensor(name, np.expand_dims(array, 0)) for name, array in self.write(result).items()
            ]
        )

    def _failure(self, error: Exception) -> Any:
        kinds = self._triton.TritonError
        match error:
            case Refused():
                code = kinds.INVALID_ARG
            case Exhausted():
                code = kinds.UNAVAILABLE
            case InterruptedError():
                code = kinds.CANCELLED
            case _:
                code = kinds.INTERNAL
                error = RuntimeError(f"{type(error).__name__}: {error}")
        return self._triton.InferenceResponse(error=kinds(str(error), code))


class LvlmModel(ServedModel):
    """`lvlm`: answers a prompt about images."""

    load = Lvlm
    run = staticmethod(Lvlm.answer)

    def read(self, tensors: Tensors) -> Question:
        return Question(
            prompt=_text(_one(tensors, "PROMPT")),
            images=tuple(tensors.get("IMAGES", ())),
            max_tokens=int(_one(tensors, "MAX_TOKENS", 256)),
            temperature=float(_one(tensors, "TEMPERATURE", 0.0)),
            seed=int(_one(tensors, "SEED", 0)),
        )

    def write(self, result: Answer) -> dict[str, Any]:
        return {
            "TEXT": _blob(result.text.encode()),
            "FINISH_REASON": _blob(result.finish.encode()),
            "TOKENS": np.array([result.input_tokens, result.output_tokens], dtype=np.int32),
        }


class VerifierModel(ServedModel):
    """`verifier`: the probability of statements about images."""

    load = staticmethod(load_verifier)
    run = staticmethod(Verifier.judge)

    def initialize(self, arguments: Mapping[str, str]) -> None:
        super().initialize(arguments)
        # Both are kept: what is collected is gone from Triton's metrics.
        self._family = self._triton.MetricFamily(
            name="verifier_whole_prompts",
            description="1 where each statement is asked in a prompt of its own, which costs a multiple",
            kind=self._triton.MetricFamily.GAUGE,
        )
        self._gauge = self._family.Metric(labels={"model": arguments["model_name"]})
        self._gauge.set(float(self._served.whole))

    def read(self, tensors: Tensors) -> EntailmentRequest:
        return EntailmentRequest(
            images=tuple(tensors["IMAGES"]), statements=tuple(map(_text, tensors["STATEMENTS"]))
        )

    def write(self, result: EntailmentResult) -> dict[str, Any]:
        return {
            "P_YES": np.array(result.probabilities, dtype=np.float32),
            "TOKENS": np.array([result.tokens, len(result.probabilities)], dtype=np.int32),
            "WAY": _blob(b"whole" if self._served.fell_back else b"as set"),
        }


class _EncoderModel(ServedModel):
    def write(self, result: tuple[float, ...]) -> dict[str, Any]:
        return {"EMBEDDING": np.array(result, dtype=np.float32)}


class ImageEncoderModel(_EncoderModel):
    """`image_encoder`: an image's vector."""

    load = ImageEncoder
    run = staticmethod(ImageEncoder.encode)

    def read(self, tensors: Tensors) -> bytes:
        return bytes(_one(tensors, "IMAGE"))


class TextEncoderModel(_EncoderModel):
    """`text_encoder`: a text's vector."""

    load = TextEncoder
    run = staticmethod(TextEncoder.encode)

    def read(self, tensors: Tensors) -> str:
        return _text(_one(tensors, "TEXT"))


class GeneratorModel(ServedModel):
    """`generator`: an image of a text."""

    load = Generator
    run = staticmethod(Generator.draw)

    def read(self, tensors: Tensors) -> GenerationRequest:
        return GenerationRequest(
            prompt=_text(_one(tensors, "PROMPT")),
            seed=int(_one(tensors, "SEED", 0)),
            steps=int(_one(tensors, "STEPS", 0)),
        )

    def write(self, result: bytes) -> dict[str, Any]:
        return {"IMAGE": _blob(result)}


class DetectorModel(ServedModel):
    """`detector`: where an image shows what phrases name."""

    load = Detector
    run = staticmethod(Detector.detect)

    def read(self, tensors: Tensors) -> DetectionRequest:
        return DetectionRequest(
            image=bytes(_one(tensors, "IMAGE")), texts=tuple(map(_text, tensors["TEXTS"]))
        )

    def write(self, result: Sequence[Detection]) -> dict[str, Any]:
        return {
            "BOXES": np.array([one.box for one in result], dtype=np.float32).reshape(-1, 4),
            "SCORES": np.array([one.score for one in result], dtype=np.float32),
            "TEXT_INDEX": np.array([one.text for one in result], dtype=np.int32),
        }


def _tensors(request: Any) -> Tensors:
    found = {}
    for tensor in request.inputs():
        values = tensor.as_numpy()
        if values.ndim != 2 or values.shape[0] != 1:
            raise Refused(
                "judge_rejected_request",
                f"input {tensor.name()} has shape {list(values.shape)}: send one question, [1, n]",
            )
        found[tensor.name()] = values[0]
    return found


def _one(tensors: Tensors, name: str, default: Any = None) -> Any:
    values = tensors.get(name)
    if values is None and default is not None:
        return default
    if values is None or len(values) != 1:
        raise Refused("judge_rejected_request", f"input {name} must hold one value")
    return values[0]


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _blob(value: bytes) -> Any:
    found = np.empty(1, dtype=object)
    found[0] = value
    return found
