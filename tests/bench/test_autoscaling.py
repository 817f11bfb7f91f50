"""The autoscaling simulator: the scaler's arithmetic, the line's books, and the server that it reads."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscale import run_scaled
from autoscaling.line import Fault, Line, Stage, StageModel, run_fixed, smallest_fleet
from autoscaling.mirror import Mirror, Monitor
from autoscaling.rules import Hpa, Keda, Policy, ScaledObject, desired, lag, lag_threshold
from autoscaling.traffic import WORKING_DAY, arrivals, steps, through
from groundwatch.errors import CheckFailed
from groundwatch.topology import CONSUMERS, consumer

MODEL = StageModel(name="verification", service=4, concurrency=8, start=10, target=60)
LAGS = st.lists(st.integers(0, 5_000), min_size=1, max_size=80)


def jsz(**consumers: tuple[int, int]) -> dict[str, Any]:
    """What the monitoring port says about consumers, each with what is pending and what is in hand."""
    return {
        "account_details": [
            {"name": "other", "stream_detail": []},
            {
                "name": "$G",
                "stream_detail": [
                    {"name": "EMPTY", "consumer_detail": None},
                    {
                        "name": "S",
                        "consumer_detail": [
                            {"name": name, "num_pending": pending, "num_ack_pending": held}
                            for name, (pending, held) in consumers.items()
                        ],
                    },
                ],
            },
        ]
    }


@given(st.integers(0, 10**9), st.integers(0, 10**6))
def test_lag_is_what_waits_and_what_is_held(pending: int, held: int) -> None:
    found = jsz(a=(7, 7), b=(pending, held))
    assert lag(found, stream="S", consumer="b") == pending + held


@pytest.mark.parametrize("missing", [{"consumer": "c"}, {"stream": "T"}, {"account": "nobody"}])
def test_a_missing_consumer_has_no_lag(missing: dict[str, str]) -> None:
    with pytest.raises(LookupError, match="no consumer"):
        lag(jsz(a=(1, 1)), **({"stream": "S", "consumer": "a", "account": "$G"} | missing))


@given(st.floats(0.1, 1e4), st.floats(0.1, 1e4), st.floats(0.01, 1))
def test_a_replica_works_off_its_threshold_within_its_share_of_the_target(
    target: float, per_replica: float, headroom: float
) -> None:
    threshold = lag_threshold(target=target, per_replica=per_replica, headroom=headroom)
    assert threshold == 1 or threshold / per_replica <= target * headroom * (1 + 1e-12)
    assert (threshold + 1) / per_replica > target * headroom * (1 - 1e-12)


@pytest.mark.parametrize(
    ("target", "per_replica", "headroom"), [(0, 1, 1), (1, 0, 1), (1, 1, 0), (1, 1, 1.1)]
)
def test_a_threshold_of_nonsense_is_refused(target: float, per_replica: float, headroom: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        lag_threshold(target=target, per_replica=per_replica, headroom=headroom)


@given(st.integers(0, 10**6), st.integers(0, 500), st.integers(1, 10**4))
def test_desired_is_the_ceiling_outside_the_tolerance(usage: int, replicas: int, threshold: int) -> None:
    wanted = desired(usage, replicas=replicas, threshold=threshold, tolerance=0.1)
    if replicas and 9 * threshold * replicas < 10 * usage < 11 * threshold * replicas:
        assert wanted == replicas
    elif not replicas or not 89 * threshold * replicas < 100 * usage < 111 * threshold * replicas:
        assert (wanted - 1) * threshold < usage <= wanted * threshold


@given(LAGS, st.integers(1, 60), st.integers(1, 40), st.integers(0, 3))
def test_the_hpa_keeps_its_rules(lags: list[int], threshold: int, first: int, least: int) -> None:
    rules = ScaledObject(lag_threshold=threshold, min_replicas=least, max_replicas=50)
    hpa, history, wanted = Hpa(rules), [first], []
    for number, usage in enumerate(lags):
        before = history[-1]
        wanted.append(desired(usage, replicas=before, threshold=threshold, tolerance=0.1))
        after = hpa.sync(15.0 * number, usage, before)
        assert max(1, least) <= after <= 50
        # Up by what doubles it or by four, whichever is more, in a period of one sync.
        assert after <= max(2 * before, before + 4)
        assert after <= max(before, *wanted[-1:], 1, least)
        if wanted[-1] > before:
            assert after == min(wanted[-1], 50, max(2 * before, before + 4))
        if after < before:
            # Never below the highest recommendation of the last five minutes: 21 syncs.
            assert after >= min(50, max(wanted[-21:]))
        history.append(after)


@given(st.integers(2, 200), st.integers(1, 99))
def test_a_policy_bounds_each_of_its_periods(first: int, percent: int) -> None:
    down = (Policy(period=60, percent=percent),)
    hpa = Hpa(ScaledObject(lag_threshold=10, max_replicas=200, stabilization_down=0, down=down))
    history = [first]
    for number in range(40):
        history.append(hpa.sync(15.0 * number, 0, history[-1]))
    for number in range(len(history) - 4):
        floor = history[number] - math.ceil(history[number] * percent / 100)
        assert min(history[number : number + 5]) >= max(1, floor)
    assert history[-1] < first


def test_zero_is_left_at_once_and_reached_after_the_cooldown() -> None:
    keda, hpa = Keda(ScaledObject(lag_threshold=10)), Hpa(ScaledObject(lag_threshold=10))
    assert hpa.sync(0, 10_000, 0) == 0, "the HPA does nothing at zero"
    assert keda.poll(0, 0, 0) == 0
    assert keda.poll(30, 1, 0) == 1
    assert keda.poll(60, 500, 7) == 7, "more than one is the HPA's affair"
    assert keda.poll(360, 0, 7) == 7
    assert keda.poll(390, 0, 7) == 0


def test_a_stage_with_a_minimum_never_reaches_zero() -> None:
    keda = Keda(ScaledObject(lag_threshold=10, min_replicas=2))
    assert keda.poll(0, 0, 0) == 2
    assert keda.poll(10_000, 0, 3) == 3


@given(
    st.lists(st.integers(0, 40), min_size=30, max_size=120),
    st.lists(st.integers(0, 9), min_size=3, max_size=8),
    st.booleans(),
)
def test_nothing_is_lost_in_the_line(counts: list[int], scales: list[int], fault: bool) -> None:
    models = [MODEL, StageModel(name="scoring", service=1, concurrency=50, start=3, target=5)]
    down = Fault(stage="verification", begin=5, end=20, down=True)
    line = Line([Stage(model, ready=1) for model in models], (down,) if fault else ())
    came = 0
    for second in range(1_200):
        if second % 10 == 0:
            for stage in line.stages:
                stage.scale(second, scales[second // 10] if second // 10 < len(scales) else 5)
        count = counts[second] if second < len(counts) else 0
        line.step(second, count)
        came += count
        assert came == line.backlog + line.delays.total()
        for stage in line.stages:
            assert stage.queued == sum(number for _, number in stage.waiting) >= 0
    assert line.backlog == 0
    assert min(line.delays, default=5) >= 5, "never faster than both service times"


def test_pods_are_paid_for_while_they_start_and_drain() -> None:
    stage = Stage(MODEL)
    stage.scale(0, 1)
    for second in range(10):
        assert stage.step(second, [(second, 1)] if second == 0 else [], None) == []
        assert stage.in_hand == 0
    stage.step(10, [], None)
    assert (stage.ready, stage.in_hand, stage.replica_seconds) == (1, 1, 11)
    stage.scale(11, 0)
    done = [cohort for second in range(11, 20) for cohort in stage.step(second, [], None)]
    assert done == [(0, 1)]
    assert stage.replica_seconds == 11 + 4


def test_the_fixed_fleet_is_the_smallest_that_holds_the_target() -> None:
    counts = arrivals(through(WORKING_DAY), peak=12, seconds=15 * 3_600, seed=3)[8 * 3_600 :]
    fleet = smallest_fleet([MODEL], counts, target=30)
    assert run_fixed([MODEL], fleet, counts).quantile(0.99) <= 30
    assert run_fixed([MODEL], [fleet[0] - 1], counts).quantile(0.99) > 30
    with pytest.raises(ValueError, match="service times alone"):
        smallest_fleet([MODEL], counts, target=3)


def test_traffic_has_the_shape_it_was_given() -> None:
    shape = through(WORKING_DAY)
    assert shape(10 * 3_600) == 1.0
    assert shape(9.5 * 3_600) == pytest.approx((0.90 + 1.00) / 2)
    assert shape(24 * 3_600) == shape(0)
    counts = arrivals(steps((0, 0.5), (4_000, 0.0)), peak=40, seconds=8_000, seed=1)
    assert sum(counts[:4_000]) == pytest.approx(80_000, rel=0.02)
    assert sum(counts[4_000:]) == 0
    assert arrivals(shape, peak=3, seconds=100, seed=1) == arrivals(shape, peak=3, seconds=100, seed=1)


@pytest.mark.usefixtures("clean_streams")
async def test_the_server_tells_the_backlog_that_was_put_there(bus: Any, nats_server: Any) -> None:
    mirror, monitor = Mirror(bus, "verification", 10), Monitor(nats_server)
    await mirror.start()
    try:
        for backlog, in_hand, finished, told in (
            (0, 0, 0, 0),
            (95, 30, 0, 10),
            (41, 41, 60, 5),
            (0, 0, 101, 0),
        ):
            await mirror.show(backlog, in_hand, finished)
            assert mirror.expected(backlog) == told
            assert await monitor.settled({"verification": told, "scoring": 0}) == {
                "verification": told,
                "scoring": 0,
            }
            held = (await bus.js.consumer_info("GW_EXTRACTED", "verification")).num_ack_pending
            assert held == mirror.expected(in_hand)
    finally:
        await monitor.close()
    assert (await bus.js.stream_info(consumer("verification").stream)).state.messages == mirror.messages


@pytest.mark.usefixtures("clean_streams")
async def test_another_backlog_than_the_one_put_there_is_an_error(
    bus: Any, nats_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autoscaling.mirror.PATIENCE", 3)
    mirror, monitor = Mirror(bus, "verification", 10), Monitor(nats_server)
    await mirror.start()
    try:
        await mirror.show(30, 0, 0)
        with pytest.raises(CheckFailed, match=r"where .'verification': 4. were put"):
            await monitor.settled({"verification": 4})
    finally:
        await monitor.close()


async def test_a_stage_follows_its_backlog_up_and_to_zero() -> None:
    rules = [ScaledObject(lag_threshold=60, max_replicas=20)]
    counts = arrivals(steps((0, 1.0), (600, 0.0)), peak=10, seconds=1_500, seed=1)
    scaled = await run_scaled([MODEL], rules, counts, events_per_message=10)
    assert scaled.monitor.reads == 100
    assert scaled.line.least["verification"] == 0
    assert 5 <= scaled.line.most["verification"] <= 20
    assert scaled.line.delays.total() == sum(counts)


ROOT = Path(__file__).parents[2]


def test_the_command_prints_one_object() -> None:
    arguments = ("autoscale", "--json", "--set", "only=1", "--set", "hours=1", "--set", "peak=20")
    done = subprocess.run(
        [sys.executable, "-m", "bench", *arguments], capture_output=True, text=True, timeout=120, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["replica_seconds_ratio"] == told["scenarios"]["day"]["replica_seconds_ratio"] > 0
    assert told["scenarios"]["day"]["server"]["reads"] == 240
    assert set(told["lag_thresholds"]) <= {spec.name for spec in CONSUMERS}
