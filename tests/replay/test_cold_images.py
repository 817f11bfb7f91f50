"""Replays and exports of responses whose images have left the object store."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.replay.conftest import Replays, outcomes, record, response, settings_of
from tests.support.llm_server import picture, running

from groundwatch.archive.images import ImageCooling, archived_images
from groundwatch.models.settings import ChatSettings
from groundwatch.replay.exports import export
from groundwatch.replay.runs import judgement
from groundwatch.replay.spec import Spec
from groundwatch.runtime.settings import ArchiveSettings, CacheSettings, StageSettings
from groundwatch.runtime.settings.gateway import IntakeSettings
from groundwatch.runtime.stores import images
from groundwatch.runtime.stores.images import ImageStore, check_image
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import RESPONSES


async def test_cold_images_are_judged_as_hot_ones(
    replays: Replays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "GRACE_SECONDS", 0.0)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    bus, place = replays.bus, ArchiveSettings(url=str(tmp_path / "archive"), hot_days=1e-9)
    bus.cold_images = archived_images(place)
    seen = [
        check_image(picture(what), IntakeSettings()) for what in ("a dog beside a blue ball", "a brown cat")
    ]
    for one in seen:
        await ImageStore(bus.js).put(one)
    await record(bus, *(response(f"r{at}", images=(one.sha256,)) for at, one in enumerate(seen)))
    extraction = await bus.js.pull_subscribe_bind("extraction", stream=RESPONSES)
    for _ in seen:
        (message,) = await extraction.fetch(1, timeout=60)
        await message.ack_sync()
    with running() as server:
        chat = ChatSettings(base_url=server.base_url, model="ok", retries=0)
        looking = settings_of(bus, extraction="reader").model_copy(
            update={
                "verification": StageSettings(engine="visual", llm=chat),
                # So that each run looks for itself.
                "cache": CacheSettings(enabled=False),
            }
        )
        await replays.done("hot", looking)
        assert (await ImageCooling(bus, place, Metrics()).cool()).removed == len(seen)
        assert [await ImageStore(bus.js).stored(one.sha256) for one in seen] == [None, None]
        await replays.done("cold", looking)
        hot, cold = await outcomes(bus, "hot"), await outcomes(bus, "cold")
        scores = {name: one.score for name, one in hot.items()}
        assert len(set(scores.values())) == 2, "what the images show decides"
        assert {name: judgement(one) for name, one in cold.items()} == {
            name: judgement(one) for name, one in hot.items()
        }
        manifest = await export(
            bus.history, Spec(run="export"), tmp_path / "exported", cold_images=bus.cold_images
        )
        assert (manifest.images, manifest.missing_images) == (2, 0)
        # Without the archive's images, each says which one is missing.
        bus.cold_images = None
        await replays.done("none", looking)
        assert {one.reason for one in (await outcomes(bus, "none")).values()} == {"missing_image"}
