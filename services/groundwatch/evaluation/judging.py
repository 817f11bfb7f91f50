"""A file judged with the engines of the running system, without a server."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from groundwatch.errors import UsageError
from groundwatch.evaluation.inputs import ImageFolder, Responses, no_images
from groundwatch.events import ResponseRecorded, ResponseScored
from groundwatch.protocols import registry
from groundwatch.protocols.base import EvaluationProtocol
from groundwatch.records import Limits
from groundwatch.replay.pipeline import Pipeline, judging_stage
from groundwatch.runtime.settings import Settings


def with_engines(settings: Settings, engine: str, judge: str) -> Settings:
    """Settings in which `engine` finds claims and `judge` judges them, where these are named."""
    if engine:
        extraction = settings.extraction.model_copy(update={"engine": engine})
        settings = settings.model_copy(update={"extraction": extraction})
    if judge:
        settings = settings.model_copy(
            update={
                "verification": settings.verification.model_copy(update={"engine": judge}),
                "matching": settings.matching.model_copy(update={"engine": judge}),
            }
        )
    return settings


def read_responses(
    protocol: str, file: Path, annotation: Path | None, limits: Limits
) -> Sequence[ResponseRecorded] | Responses:
    """What the file holds, with a benchmark's annotation where there is one."""
    if annotation is None:
        return Responses(file, limits)
    annotate = registry.method(protocol).annotate
    if annotate is None:
        raise UsageError(f"{protocol} takes no annotation of a benchmark", "annotation")
    return annotate(file, annotation, lambda path: Responses(path, limits))


async def judge_file(
    protocol: EvaluationProtocol,
    responses: Sequence[ResponseRecorded] | Responses,
    settings: Settings,
    images: Path | None,
    out: Path | None,
    take: Callable[[ResponseScored], None],
    progress: Callable[[int, int], None],
) -> None:
    """Give each outcome to `take`, and to the file `out`, a line each."""
    judging_stage(protocol)
    loader = no_images if images is None else ImageFolder(images, settings.gateway.intake).load
    pipeline = Pipeline(settings, load_image=loader)
    encoder = msgspec.json.Encoder()
    try:
        with ExitStack() as stack:
            try:
                sink = stack.enter_context(out.open("wb")) if out else None
            except OSError as error:
                raise UsageError(f"{out}: cannot be written ({error.strerror or error})") from error
            done = 0
            async for outcome in pipeline.outcomes(protocol.name, responses):
                take(outcome)
                if sink is not None:
                    sink.write(encoder.encode(outcome) + b"\n")
                done += 1
                progress(done, len(responses))
    finally:
        await pipeline.close()
