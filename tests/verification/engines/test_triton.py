"""A verifier on Triton: all statements of a response in one request."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("tritonclient.grpc", reason="needs the extra triton")

from tests.support.kserve import REFUSES, KServe, running
from tests.support.llm_server import picture

from groundwatch.errors import GroundwatchError, RateLimited, TransientError, Unavailable, Unscorable
from groundwatch.events import Claim, ClaimsExtracted, Judge, ResponseRecorded
from groundwatch.models import triton as client
from groundwatch.models.settings import TritonSettings
from groundwatch.protocols.faithscore.protocol import FaithScore
from groundwatch.runtime.settings import StageSettings, VisualSettings
from groundwatch.verification.engines import build
from groundwatch.verification.engines.base import Verification
from groundwatch.verification.engines.looking import TritonVerificationEngine

STORE = {"ball": (picture("red ball on grass"), "image/png"), "dog": (picture("brown dog"), "image/png")}
CLAIMS = ("There is a ball.", "The ball is red.", "The ball is under the grass.", "There is a dog.")


@pytest.fixture
def server() -> Iterator[KServe]:
    with running() as started:
        yield started


async def load_image(name: str) -> tuple[bytes, str]:
    return STORE[name]


def engine(server: KServe, threshold: float = 0.5, **changes: Any) -> TritonVerificationEngine:
    wanted = {"first_wait": 0.01, "patience": 0.2, "retries": 0, "timeout": 5.0} | changes
    made = build(
        StageSettings(engine="triton"),
        load_image=load_image,
        visual=VisualSettings(threshold=threshold),
        triton=TritonSettings(url=server.url, **wanted),
    ).of(FaithScore())
    assert isinstance(made, TritonVerificationEngine)
    return made


def extracted(*claims: str, images: tuple[str, ...] = ("ball",)) -> ClaimsExtracted:
    response = ResponseRecorded(id="1", model="lvlm", answer="…", images=images)
    found = tuple(Claim(text=text, category="other") for text in claims or CLAIMS)
    return ClaimsExtracted(response=response, protocol="faithscore", judge=Judge(engine="x"), claims=found)


async def verify(server: KServe, event: ClaimsExtracted, **changes: Any) -> Verification | GroundwatchError:
    made = engine(server, **changes)
    await made.warm_up()
    (result,) = await made.verify([event], FaithScore())
    await made.close()
    return result


def decisions(result: Verification | GroundwatchError) -> list[str]:
    assert isinstance(result, Verification), result
    return [verdict.decision.value for verdict in result.verdicts]


async def test_all_statements_of_a_response_are_one_request(server: KServe) -> None:
    result = await verify(server, extracted())
    assert decisions(result) == ["supported", "supported", "refuted", "refuted"]
    assert isinstance(result, Verification)
    assert [one.probability for one in result.verdicts] == [pytest.approx(p) for p in (0.9, 0.9, 0.1, 0.1)]
    assert server.served.statements == [list(CLAIMS)]


async def test_the_verdict_changes_with_the_image(server: KServe) -> None:
    claims = ("There is a ball.", "There is a dog.")
    assert decisions(await verify(server, extracted(*claims))) == ["supported", "refuted"]
    assert decisions(await verify(server, extracted(*claims, images=("dog",)))) == ["refuted", "supported"]


async def test_the_threshold_decides(server: KServe) -> None:
    assert decisions(await verify(server, extracted(), threshold=0.95)) == ["refuted"] * 4


async def test_the_judge_is_the_checkpoint(server: KServe) -> None:
    made = engine(server)
    await made.warm_up()
    judge = made.judge(FaithScore())
    assert (judge.engine, judge.model) == ("triton", "verifier@one")
    await made.close()


async def test_another_checkpoint_under_the_same_name_is_another_judge(
    server: KServe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was to be judged by the old one is handed back, so that no verdict carries the wrong name."""
    monkeypatch.setattr(client, "FRESH_SECONDS", 0.0)
    made = engine(server)
    await made.warm_up()
    server.served.loaded["verifier"] = "two"
    before = made.judge(FaithScore())
    (result,) = await made.verify([extracted()], FaithScore())
    assert (
        isinstance(result, TransientError)
        and not isinstance(result, RateLimited)
        and "verifier@two" in str(result)
    )
    after = made.judge(FaithScore())
    (result,) = await made.verify([extracted()], FaithScore())
    assert isinstance(result, Verification)
    assert (before.model, after.model) == ("verifier@one", "verifier@two")
    await made.close()


async def test_a_verifier_that_fell_back_to_whole_prompts_is_another_judge(server: KServe) -> None:
    made = engine(server)
    await made.warm_up()
    names = []
    for whole in (None, False, True, False):
        server.served.whole = whole
        for _ in range(2):
            (result,) = await made.verify([extracted()], FaithScore())
            if isinstance(result, Verification):
                break
            assert isinstance(result, TransientError) and "verifier@one" in str(result)
        assert isinstance(result, Verification)
        names.append(made.judge(FaithScore()).model)
    assert names == ["verifier@one", "verifier@one", "verifier@one/whole", "verifier@one"]
    # Those that were asked together were all asked under the old name.
    server.served.whole = True
    together = await asyncio.gather(*(made.verify([extracted()], FaithScore()) for _ in range(4)))
    assert all(isinstance(result, Unavailable) for (result,) in together)
    await made.close()


async def test_nobody_judges_before_it_is_known_who(server: KServe) -> None:
    made = engine(server)
    (result,) = await made.verify([extracted()], FaithScore())
    assert isinstance(result, TransientError) and not isinstance(result, RateLimited)
    assert not server.served.statements
    (result,) = await made.verify([extracted()], FaithScore())
    assert isinstance(result, Verification)
    await made.close()


async def test_health_tells_of_a_model_that_is_not_there(server: KServe) -> None:
    made = engine(server)
    await made.warm_up()
    assert made.problems() == []
    await made.close()
    del server.served.loaded["verifier"]
    made = engine(server)
    await made.warm_up()
    (problem,) = made.problems()
    assert "verifier" in problem and "not loaded" in problem
    await made.close()


async def test_one_statement_that_cannot_be_judged_does_not_take_the_others_along(server: KServe) -> None:
    result = await verify(server, extracted("There is a ball.", REFUSES, "There is a dog."))
    assert decisions(result) == ["supported", "undecided", "refuted"]
    assert isinstance(result, Verification)
    assert result.verdicts[1].evidence.startswith("not judged: prompt_too_long")
    result = await verify(server, extracted(REFUSES))
    assert isinstance(result, Unscorable) and result.reason == "prompt_too_long"


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [("nan", "not_finite"), ("[unreadable_image] no image", "unreadable_image")],
)
async def test_what_cannot_be_judged_is_unscored_with_its_reason(
    server: KServe, behaviour: str, reason: str
) -> None:
    server.served.script["verifier"] = [behaviour]
    result = await verify(server, extracted())
    assert isinstance(result, Unscorable) and result.reason == reason


@pytest.mark.parametrize("behaviour", ["UNAVAILABLE", "INTERNAL", "ok:3", "short", "[out_of_memory] 80 GB"])
async def test_what_passes_is_handed_back(server: KServe, behaviour: str) -> None:
    server.served.script["verifier"] = [behaviour]
    result = await verify(server, extracted(), timeout=0.3)
    assert isinstance(result, TransientError)


async def test_a_fault_that_passes_is_tried_again(server: KServe) -> None:
    server.served.script["verifier"] = ["UNAVAILABLE", "ok"]
    assert decisions(await verify(server, extracted("There is a ball."), retries=1)) == ["supported"]


async def test_a_model_that_fails_again_and_again_is_left_alone(server: KServe) -> None:
    server.served.script["verifier"] = ["INTERNAL"]
    made = engine(server, breaker_failures=2)
    await made.warm_up()
    results = [(await made.verify([extracted()], FaithScore()))[0] for _ in range(3)]
    assert isinstance(results[2], Unavailable) and results[2].retry_after
    assert results[2].judge == "verifier"
    assert server.served.asked["verifier"] == 2
    assert any("left alone" in problem for problem in made.problems())
    await made.close()


@pytest.mark.parametrize(("images", "reason"), [((), "nothing_to_look_at"), (("gone",), "missing_image")])
async def test_no_image_no_verdict(server: KServe, images: tuple[str, ...], reason: str) -> None:
    result = await verify(server, extracted(images=images))
    assert isinstance(result, Unscorable) and result.reason == reason
    assert not server.served.statements
