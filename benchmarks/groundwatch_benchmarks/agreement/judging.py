"""Answers judged as settings say: what the commands that measure judges share."""

from collections.abc import Sequence
from pathlib import Path

from groundwatch.errors import UsageError
from groundwatch.events import ResponseRecorded, ResponseScored
from groundwatch.extraction.engines.base import ExtractionEngine
from groundwatch.judging.files import ImageFolder, no_images
from groundwatch.protocols.base import Stage
from groundwatch.protocols.method import Progress
from groundwatch.replay.pipeline import Pipeline
from groundwatch.runtime.settings import Settings

EMBEDDING_MODEL = "Folder of a sentence-transformers model in place of the embedded one."
JUDGE = "Who judges, such as triton or visual. By default as in settings."
JUDGED_IMAGES = "A folder of the images, by file name or its stem, for a judge that looks."


async def judged(
    responses: Sequence[ResponseRecorded],
    protocol: str,
    settings: Settings,
    images: Path | None,
    extraction: ExtractionEngine | None,
    progress: Progress,
) -> list[ResponseScored]:
    """One outcome for each response, by the verifier of the settings; `UsageError` where that is away.

    Without `extraction` the settings' engine finds the claims.
    """
    loader = no_images if images is None else ImageFolder(images, settings.gateway.intake).load
    engines = {} if extraction is None else {Stage.EXTRACTION: extraction}
    pipeline = Pipeline(settings, engines=engines, load_image=loader)
    found: list[ResponseScored] = []
    try:
        await pipeline.judges(protocol, Stage.EXTRACTION)
        if problems := pipeline.problems():
            raise UsageError("; ".join(problems))
        async for outcome in pipeline.outcomes(protocol, responses):
            found.append(outcome)
            progress(f"judging with {protocol}", len(found), len(responses))
    finally:
        await pipeline.close()
    return found
