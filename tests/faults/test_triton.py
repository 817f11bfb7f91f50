"""What a served model can do to its callers; each fault ends in a retry, the breaker or a clear reason."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
from tests.support import checkpoints
from tests.support.checkpoints import picture
from tests.support.triton import ONE_THREAD, serving

import groundwatch.models.repository as repository
from groundwatch.errors import TransientError, Unavailable, Unscorable, UsageError
from groundwatch.models.repository import ServedModel
from groundwatch.models.settings import TritonSettings
from groundwatch.models.triton import TritonModels
from groundwatch.runtime.local.triton_server import TritonServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ServedModel]:
    """An unruly LVLM, as a template of its own, and a verifier."""
    folder = tmp_path_factory.mktemp("unruly")
    templates = Path(shutil.copytree(repository.TEMPLATES, folder / "templates"))
    own = Path(__file__).parents[1] / "support" / "unruly" / "model.py"
    shutil.copy(own, templates / "lvlm" / "1" / "model.py")
    place = checkpoints.vision_language(folder / "vision_language")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repository, "TEMPLATES", templates)
        yield {
            kind: ServedModel(kind=kind, checkpoint=str(place), parameters=ONE_THREAD)
            for kind in ("lvlm", "verifier")
        }


@pytest.fixture
async def server(models, tmp_path: Path) -> AsyncIterator[TritonServer]:
    async with serving(tmp_path / "triton", models) as server:
        yield server


def lives(pid: int) -> bool:
    """A zombie, which only waits for whoever adopted it, does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def client(server: TritonServer, told: list[str] | None = None, **settings: object) -> TritonModels:
    kinds = [] if told is None else told
    return TritonModels(
        TritonSettings(**({"url": server.url, "timeout": 20.0, "first_wait": 0.05, "retries": 1} | settings)),
        on_call=lambda kind, *_: kinds.append(kind),
    )


async def test_what_a_model_can_do(server):
    told: list[str] = []
    asked = client(server, told)

    # Slow: the deadline, a second try, then it is handed back; the caller's slot is free again.
    hasty = client(server, told, timeout=0.5)
    with pytest.raises(TransientError, match="in time"):
        await hasty.lvlm([], "sleep", max_tokens=2)
    assert told == ["timeout", "timeout"]
    await hasty.close()
    told.clear()

    # Out of memory even alone: passes, perhaps; and whoever shared the batch is answered.
    failed, good = await asyncio.gather(
        asked.lvlm([], "memory", max_tokens=2), asked.verify(picture(), ["two"]), return_exceptions=True
    )
    assert isinstance(failed, TransientError) and "ran out of memory" in str(failed)
    assert len(good) == 1
    assert told.count("server_error") == 2
    told.clear()

    # Logits that are no numbers: the input's outcome, at once.
    with pytest.raises(Unscorable, match="not_finite"):
        await asked.lvlm([], "nan", max_tokens=2)
    assert told == ["not_finite"]
    assert (await asked.lvlm([], "two", max_tokens=2)).usage.calls == 1
    told.clear()

    # Replies that break the contract: the operator's to mend, no second try.
    for word in ("shape", "missing"):
        with pytest.raises(TransientError, match="model repository"):
            await asked.lvlm([], word, max_tokens=2)
    assert set(told) <= {"bad_reply", "server_error", "misconfigured"}
    told.clear()

    # A bug in the model's code: a fault of the server, told with its message.
    with pytest.raises(TransientError, match="index 7"):
        await asked.lvlm([], "bug", max_tokens=2)
    await asked.close()


async def test_a_model_that_dies_with_requests_in_hand_is_loaded_again(server):
    guard = asyncio.create_task(server.look_after())
    asked = client(server, retries=0, breaker_failures=1000)
    before = server.processes("lvlm")
    waiting = [asked.lvlm([], "sleep" if n else "die", max_tokens=2) for n in range(4)]
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert any(isinstance(one, TransientError) for one in found)
    assert not any(isinstance(one, Unscorable) for one in found), "no fault of theirs"
    async with asyncio.timeout(120):
        while True:
            try:
                await asked.lvlm([], "two", max_tokens=2)
                break
            except TransientError:
                await asyncio.sleep(0.2)
    assert server.processes("lvlm") and server.processes("lvlm") != before
    guard.cancel()
    await asked.close()


async def test_a_model_retired_while_it_is_looked_at_has_not_died(server, monkeypatch):
    died, looked, loaded = server._died, [], []

    async def retired_meanwhile(name: str) -> bool:
        looked.append(name)
        if name == "lvlm":
            await server.retire(name)
        return await died(name)

    monkeypatch.setattr(server, "_died", retired_meanwhile)
    monkeypatch.setattr(server, "load", loaded.append)
    guard = asyncio.create_task(server.look_after())
    async with asyncio.timeout(120):
        while looked.count("verifier") < 3:
            await asyncio.sleep(0.1)
            assert not guard.done()
    assert looked.count("lvlm") == 1 and loaded == []
    guard.cancel()


async def test_a_killed_server_comes_back_on_its_ports(server):
    guard = asyncio.create_task(server.look_after())
    told: list[str] = []
    asked = client(server, told, breaker_failures=3, breaker_pause=0.5)
    await asked.watch("verifier")
    orphans, url = server.processes(), server.url
    waiting = [asyncio.create_task(asked.lvlm([], "sleep", max_tokens=2)) for _ in range(2)]
    await asyncio.sleep(0.5)
    os.kill(server.pid, signal.SIGKILL)
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(one, TransientError) for one in found)
    held_back = 0
    async with asyncio.timeout(240):
        while True:
            try:
                assert len(await asked.verify(picture(), ["two"])) == 1
                break
            except Unavailable:
                held_back += 1
                await asyncio.sleep(0.2)
            except TransientError:
                await asyncio.sleep(0.2)
    assert server.url == url
    assert held_back and "left_alone" in told
    assert not set(server.processes()) & set(orphans)
    assert not any(map(lives, orphans))
    guard.cancel()
    await asked.close()


async def test_an_unloaded_model_and_one_that_is_replaced(server, models, tmp_path):
    asked = client(server, retries=0)
    identity = await asked.identity("verifier")
    before = await asked.verify(picture(), ["two"])
    await server.unload("verifier")
    with pytest.raises(TransientError, match=r"no available versions|not found"):
        await asked.verify(picture(), ["two"])
    await asked.watch("verifier", "lvlm")
    assert asked.problems() == [f"triton at {server.url}: model 'verifier': not loaded"]

    other = checkpoints.vision_language(tmp_path / "other", layers=3)
    await server.replace(
        "verifier", ServedModel(kind="verifier", checkpoint=str(other), parameters=ONE_THREAD)
    )
    # The same question: an answer that was cached for the checkpoint before is not given for this one.
    # Until its pause is over the client does not ask a model that was away.
    async with asyncio.timeout(60):
        while True:
            try:
                after = await asked.verify(picture(), ["two"])
                break
            except Unavailable as error:
                await asyncio.sleep(error.retry_after or 0.2)
    assert after != before
    again = client(server)
    assert (await again.identity("verifier")).weights != identity.weights
    await again.close()

    broken = checkpoints.vision_language(tmp_path / "broken")
    for nan, says in ((True, "no number"), (False, "cannot load")):
        checkpoints.spoil(broken, nan=nan)
        with pytest.raises(UsageError, match=says):
            await server.replace(
                "verifier", ServedModel(kind="verifier", checkpoint=str(broken), parameters=ONE_THREAD)
            )
    await asked.close()
