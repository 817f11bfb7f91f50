"""Our own tritonserver: its prerequisites, its port, its folder. Its models: tests/models, tests/faults."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import sys

import httpx
import psutil
import pytest
from tests.support import fakes

from groundwatch.errors import MissingExtraError, UsageError
from groundwatch.models.repository import ServedModel, write_repository
from groundwatch.runtime.local.triton_server import TritonServer, find_distribution
from groundwatch.runtime.settings import CaptioningSettings, Settings, StageSettings
from groundwatch.runtime.settings.judges import EngineSettings
from groundwatch.system.up import named_models, with_triton


def page(url: str) -> httpx.Response:
    return httpx.get(url)


def test_without_the_package(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"groundwatch\[models\]"):
        find_distribution()


def test_on_a_python_that_has_no_numpy_below_2(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(sys, "version_info", (3, 13, 0))
    with pytest.raises(UsageError, match=r"3\.11 or 3\.12"):
        find_distribution()


def test_with_numpy_2(monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "2.1.0")
    with pytest.raises(UsageError, match="numpy below 2"):
        find_distribution()


async def test_a_checkpoint_that_is_not_there(tmp_path):
    server = TritonServer(tmp_path, {"lvlm": ServedModel(kind="lvlm", checkpoint="/there/is/none")})
    with pytest.raises(UsageError, match="no checkpoint /there/is/none"):
        await server.start()


async def test_it_is_our_own(triton, tmp_path):
    server = triton.server
    assert "nv_inference_request_success" in page(server.metrics_url).text
    assert len(server.processes()) == len(triton.models) and len(server.processes("verifier")) == 1
    second = TritonServer(server.data_dir, triton.models)
    with pytest.raises(UsageError, match="another groundwatch already serves models"):
        await second.start()
    assert triton.do(server.loaded("verifier"))


def test_it_tells_what_it_loads(triton):
    told = triton.progress
    assert {one.model for one in told if not one.loaded} == {*triton.models}
    loaded = [one for one in told if one.loaded]
    assert [one.done for one in loaded] == list(range(1, len(triton.models) + 1))
    assert {one.total for one in told} == {len(triton.models)}


@pytest.mark.slow
async def test_ports_that_others_hold(triton, tmp_path):
    taken = triton.server
    server = TritonServer(tmp_path / "own", {}, metrics_port=taken.metrics_port)
    with pytest.raises(UsageError, match="belongs to another server"):
        await server.start()
    assert server.pid is None
    assert triton.do(taken.loaded("verifier"))


async def test_it_leaves_nothing_behind(tmp_path):
    server = TritonServer(tmp_path, {})
    await server.start()
    process = psutil.Process(server.pid)
    await server.stop()
    assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    with pytest.raises(httpx.ConnectError):
        page(server.metrics_url)
    again = TritonServer(tmp_path, {}, metrics_port=server.metrics_port)
    await again.start()
    await again.stop()


def test_settings_follow_the_models():
    models = {
        "lvlm_good": ServedModel(kind="lvlm", checkpoint="a/b"),
        "lvlm_bad": ServedModel(kind="lvlm", checkpoint="a/c"),
        "verifier": ServedModel(kind="verifier", checkpoint="a/d"),
        "generator": ServedModel(kind="generator", checkpoint="a/e"),
    }
    found = with_triton(Settings(), "127.0.0.1:9", models)
    assert found.triton.url == "127.0.0.1:9" and found.triton.lvlm == "lvlm_good"
    assert found.captioning.engine == "triton"
    assert found.captioning.served == {"lvlm_good": "lvlm_good", "lvlm_bad": "lvlm_bad"}
    amber = ("amber-attribute", "amber-existence", "amber-relation")
    own = dict.fromkeys((*amber, "dash-b", "pope", "vlm2"), "reference") | {"tri-he": "calibrated"}
    assert found.verification.by_protocol() == {"faithscore": "triton", **own}, "each as its paper judges"
    assert found.generation.engine == "", "there is no image encoder"
    chosen = Settings(
        verification=StageSettings(engine="reference"), captioning=CaptioningSettings(engine=fakes.CAPTIONING)
    )
    kept = with_triton(chosen, "127.0.0.1:9", models)
    assert (kept.verification, kept.captioning) == (chosen.verification, chosen.captioning)
    named = {"tri-he": EngineSettings(engine="reference"), "pope": EngineSettings(engine="triton")}
    some = with_triton(Settings(verification=StageSettings(protocols=named)), "127.0.0.1:9", models)
    judges = dict.fromkeys((*amber, "dash-b", "tri-he", "vlm2"), "reference")
    judges |= dict.fromkeys(("faithscore", "pope"), "triton")
    assert some.verification.by_protocol() == judges


def test_models_that_are_not_there(tmp_path):
    assert named_models("") == {}
    with pytest.raises(UsageError, match="no models at"):
        named_models(str(tmp_path / "absent"))
    (tmp_path / "served.toml").write_text('[a]\nkind = "lvlm"\ncheckpoint = "./absent"\n')
    with pytest.raises(UsageError, match="no checkpoint"):
        named_models(str(tmp_path / "served.toml"))


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("small", {"verifier", "detector"}),
        ("recommended", {"verifier", "detector"}),
        ("papers", {"lvlm", "verifier", "image_encoder", "text_encoder"}),
    ],
)
def test_presets_name_checkpoints_by_hub_and_commit(tmp_path, monkeypatch, name, kinds):
    monkeypatch.chdir(tmp_path)
    models = named_models(name)
    assert {one.kind for one in models.values()} == kinds
    for one in models.values():
        assert re.fullmatch(r"[\w.-]+/[\w.-]+", one.checkpoint) and one.memory and one.licence
        assert re.fullmatch(r"[0-9a-f]{40}", str(one.parameters["revision"]))
    write_repository(tmp_path, models)
    assert all((tmp_path / served / "config.pbtxt").is_file() for served in models)
