"""Whatever a gateway does, the application goes on; what is lost is counted, and what is kept is sent."""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from typing import Any

import pytest
from PIL import Image

from groundwatch.client import Recorder, transport
from groundwatch.client.worker import OVERHEAD, Buffer
from groundwatch.runtime.local.servers import free_port

LONG = 60


def wait(holds: Any) -> None:
    deadline = time.monotonic() + LONG
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses and patience of a test's length."""
    monkeypatch.setattr(transport, "FIRST_PAUSE", 0.02)
    monkeypatch.setattr(transport, "LONGEST_PAUSE", 0.1)
    monkeypatch.setattr(transport, "ANSWER_SECONDS", 0.5)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is sent before `flush` asks, so that the first batch has all that was recorded until then."""
    monkeypatch.setattr("groundwatch.client.recorder.INTERVAL", LONG)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "fault", ["500", "502", "503:0", "503", "429:0", "408", "404", "302", "close", "junk", "hang", "slow:0.3"]
)
def test_what_was_recorded_is_sent_when_the_gateway_recovers(
    fault: str, bad_gateway: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("groundwatch.client.transport.BUSY_SECONDS", 0.1)
    gateway = bad_gateway(fault, fault, "ok")
    recorder = Recorder(gateway.url)
    names = [recorder.record(model="m", answer=f"{number}") for number in range(30)]
    wait(lambda: recorder.flush(1))
    assert sorted(set(gateway.ids)) == sorted(names)
    assert recorder.lost == {}
    assert recorder.buffer.held == 0
    recorder.close()


def test_retry_after_is_obeyed_also_where_somebody_waits(bad_gateway: Any) -> None:
    gateway = bad_gateway("429:1", "ok")
    recorder = Recorder(gateway.url)
    recorder.record(model="m", answer="x")
    wait(lambda: gateway.requests)
    assert not recorder.flush(0.2)
    wait(lambda: recorder.flush(1))
    first, second = (at for at, _ in gateway.requests)
    assert second - first >= 1
    recorder.close()


def test_flush_is_bounded_and_says_whether_all_is_sent(bad_gateway: Any) -> None:
    recorder = Recorder(bad_gateway("hang").url)
    assert recorder.flush(0.0)
    recorder.record(model="m", answer="x")
    assert not recorder.flush(0.1)
    recorder.close(0.0)


@pytest.mark.usefixtures("quick", "patient")
@pytest.mark.parametrize("at_once", [True, False])
def test_a_response_that_the_gateway_dies_of_is_given_up_and_the_others_pass(
    at_once: bool, bad_gateway: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A busy machine is no outage here: that is not the response's fault, and would be no attempt.
    monkeypatch.setattr(transport, "ANSWER_SECONDS", LONG)
    gateway = bad_gateway(*["500"] * transport.MOST_ATTEMPTS, "500", "ok")
    recorder = Recorder(gateway.url)
    names = [recorder.record(model="m", answer="0")]
    if not at_once:
        # It was tried alone before there were others.
        wait(lambda: gateway.requests)
    names += [recorder.record(model="m", answer=f"{number}") for number in range(1, 5)]
    wait(lambda: recorder.flush(1))
    assert gateway.ids == names[1:]
    assert recorder.lost == {"gave_up": 1}
    assert {lines for _, lines in gateway.requests[1:6]} == {1}
    recorder.close()


@pytest.mark.usefixtures("quick", "patient")
def test_a_body_too_large_for_a_proxy_is_sent_in_parts(bad_gateway: Any) -> None:
    gateway = bad_gateway("413", "ok", "413", "413", "413", "ok")
    recorder = Recorder(gateway.url)
    names = [recorder.record(model="m", answer=f"{number}") for number in range(4)]
    wait(lambda: recorder.flush(1))
    assert len(gateway.ids) + recorder.lost.get("too_large", 0) == len(names)
    assert gateway.requests[1][1] == 2
    recorder.close()


def test_what_waits_is_bounded_by_bytes_and_the_rest_is_counted_and_told(bad_gateway: Any) -> None:
    gateway = bad_gateway("hang", "ok")
    bound = 1_000_000
    recorder = Recorder(gateway.url, sender="shop", max_bytes=bound)
    image = bytes(100_000)
    threads = [
        threading.Thread(
            target=lambda: [recorder.record(model="m", answer="x", images=[image]) for _ in range(20)]
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert recorder.buffer.held <= bound
    most = bound // (len(image) + OVERHEAD)
    assert recorder.lost == {"full": 80 - most}
    gateway.freed.set()
    wait(lambda: recorder.flush(1))
    assert recorder.buffer.held == 0
    assert gateway.losses[-1]["sender"] == "shop" and gateway.losses[-1]["lost"] == {"full": 80 - most}
    recorder.close()


def test_nobody_is_there() -> None:
    recorder = Recorder(f"http://127.0.0.1:{free_port()}", max_bytes=10_000)
    for _ in range(100):
        assert recorder.record(model="m", answer="x" * 1000)
    assert recorder.buffer.held <= 10_000
    assert recorder.lost["full"] > 50
    recorder.close(0.5)


class Hostile:
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("no")

    def __len__(self) -> int:
        raise RuntimeError("no")

    def __iter__(self) -> Any:
        raise RuntimeError("no")

    def __str__(self) -> str:
        raise RuntimeError("no")

    def __bool__(self) -> bool:
        raise RuntimeError("no")


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"answer": None}, "unreadable"),
        ({"answer": b"x"}, "unreadable"),
        ({"model": ""}, "unreadable"),
        ({"model": None}, "unreadable"),
        ({"model": Hostile()}, "unreadable"),
        ({"prompt": ["x"]}, "unreadable"),
        ({"id": Hostile()}, "unreadable"),
        ({"images": 7}, "unreadable"),
        ({"images": Hostile()}, "unreadable"),
        ({"images": [Hostile()]}, "unreadable"),
        ({"tags": 7}, "unreadable"),
        ({"tags": {"a": Hostile()}}, "unreadable"),
        ({"reference": ENDLESS}, "unreadable"),
        ({"reference": {"a": Hostile()}}, "unreadable"),
        ({"protocols": 7}, "unreadable"),
    ],
    ids=range(15),
)
def test_what_is_no_response_is_counted_and_raises_nothing(
    given: dict[str, Any], reason: str, bad_gateway: Any
) -> None:
    gateway = bad_gateway("ok")
    recorder = Recorder(gateway.url)
    recorder.record(**({"model": "m", "answer": "x"} | given))
    good = recorder.record(model="m", answer="half a pair \ud83d and more")
    wait(lambda: recorder.flush(1))
    assert gateway.ids == [good]
    assert recorder.lost == {reason: 1}
    assert recorder.buffer.held == 0
    recorder.close()


def test_pictures_may_change_after_they_were_recorded(bad_gateway: Any) -> None:
    gateway = bad_gateway("slow:0.3", "ok")
    recorder = Recorder(gateway.url)
    recorder.record(model="m", answer="first, so that the others wait")
    picture, data = Image.new("CMYK", (8, 8)), bytearray(b"bytes of an image")
    recorder.record(model="m", answer="x", images=[picture, data, memoryview(data)])
    picture.close()
    data[:] = b"others"
    wait(lambda: recorder.flush(1))
    assert len(gateway.ids) == 2 and recorder.lost == {}
    recorder.close()


def test_a_destructor_may_record(bad_gateway: Any) -> None:
    """Also one that the collector calls while its thread is in the recorder already."""
    gateway = bad_gateway("ok")
    recorder = Recorder(gateway.url)

    class Last:
        def __init__(self) -> None:
            self.own = self

        def __del__(self) -> None:
            recorder.record(model="m", answer="the last")

    before = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for _ in range(200):
            Last()
            recorder.record(model="m", answer="x")
    finally:
        gc.set_threshold(*before)
    gc.collect()
    wait(lambda: recorder.flush(1))
    assert len(set(gateway.ids)) == 400 and recorder.buffer.held == 0
    recorder.close()


def test_the_lock_of_the_buffer_may_be_taken_twice() -> None:
    buffer = Buffer(10_000)
    with buffer._lock:
        assert buffer.put(10, lambda: None, ())
        buffer.lose("full")
    assert (buffer.waiting, buffer.lost()) == (1, {"full": 1})


def test_what_is_let_go_of_leaves_no_thread(bad_gateway: Any) -> None:
    gateway = bad_gateway("ok")
    recorder = Recorder(gateway.url)
    recorder.record(model="m", answer="x")
    while not recorder.flush(1):
        pass
    assert recorder._worker is not None
    thread = recorder._worker._thread
    del recorder
    gc.collect()
    thread.join(LONG)
    assert not thread.is_alive()


@pytest.mark.parametrize("address", ["", "gateway", "ftp://gateway", "http://", "127.0.0.1:8787"])
def test_what_is_no_address_is_told_at_once(address: str) -> None:
    with pytest.raises(ValueError, match="is no address of a gateway"):
        Recorder(address)


def run(program: str, *arguments: str) -> tuple[subprocess.CompletedProcess[str], float]:
    code = textwrap.dedent(program)
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=LONG
    )
    ended = float(done.stdout.split()[-1]) if done.stdout else 0.0
    return done, time.time() - ended


EXIT = """
    import sys, time
    from groundwatch.client import Recorder
    recorders = [Recorder(sys.argv[1], sender="exit") for _ in range(3)]
    for recorder in recorders:
        for number in range(200):
            recorder.record(model="m", answer="x")
    print(time.time())
"""
SLACK = 5.0
"""Of a busy machine: what it takes to end a process beside the two seconds."""


@pytest.mark.parametrize("script", ["hang", "500", "429:60", "slow:1"])
def test_at_exit_it_waits_two_seconds_at_most(script: str, bad_gateway: Any) -> None:
    done, seconds = run(EXIT, bad_gateway(script).url)
    assert done.returncode == 0, done.stderr
    assert seconds < 2 + SLACK
    assert "Traceback" not in done.stderr and "Exception" not in done.stderr


def test_at_exit_all_is_sent_or_counted(bad_gateway: Any) -> None:
    gateway = bad_gateway("ok")
    done, _ = run(EXIT, gateway.url)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(set(gateway.ids)) == 600
    slow = bad_gateway("slow:1.6")
    done, _ = run(EXIT, slow.url)
    told = sum(report["lost"].get("exit", 0) + len(report.get("unconfirmed", ())) for report in slow.losses)
    # Of a machine that is too busy for a report in time, the log tells.
    told += sum(map(int, re.findall(r"(?<=exit )\d+|\d+(?= responses were)", done.stderr) or [0]))
    assert told > 0 and len(set(slow.ids)) + told >= 600


FORK = """
    import os, sys, time
    from groundwatch.client import Recorder
    recorder = Recorder(sys.argv[1])
    for number in range(10):
        recorder.record(model="m", answer="x", id=f"parent-{number}")
    assert sys.argv[2] == "cold" or recorder.flush(20)
    children = []
    for child in range(3):
        pid = os.fork()
        if pid == 0:
            for number in range(10):
                recorder.record(model="m", answer="x", id=f"child-{child}-{number}")
            assert recorder.lost == {}
            if sys.argv[2] == "exit":
                sys.exit(0)
            assert recorder.flush(20)
            os._exit(0)
        children.append(pid)
    recorder.record(model="m", answer="x", id="parent-last")
    for pid in children:
        assert os.waitpid(pid, 0)[1] == 0
    print(time.time())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.parametrize("how", ["warm", "cold", "exit"])
def test_a_process_that_is_forked_records_for_itself(how: str, bad_gateway: Any) -> None:
    gateway = bad_gateway("ok")
    done, _ = run(FORK, gateway.url, how)
    assert done.returncode == 0, done.stderr
    expected = [f"child-{child}-{number}" for child in range(3) for number in range(10)]
    expected += [*(f"parent-{number}" for number in range(10)), "parent-last"]
    assert sorted(gateway.ids) == sorted(expected)


PROCESSES = """
    import multiprocessing, sys, time
    from groundwatch.client import Recorder
    recorder = Recorder(sys.argv[1])
    def work(number):
        recorder.record(model="m", answer="x", id=f"child-{number}")
    if __name__ == "__main__":
        context = multiprocessing.get_context("fork")
        processes = [context.Process(target=work, args=(number,)) for number in range(3)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        recorder.record(model="m", answer="x", id="parent")
        print(time.time())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_children_of_multiprocessing_send_before_they_end(bad_gateway: Any) -> None:
    gateway = bad_gateway("ok")
    done, _ = run(PROCESSES, gateway.url)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(gateway.ids) == ["child-0", "child-1", "child-2", "parent"]


def test_an_application_that_is_told_to_end_ends(bad_gateway: Any) -> None:
    program = textwrap.dedent(EXIT) + "\ntime.sleep(60)\n"
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", program, bad_gateway("hang").url], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    assert process.wait(LONG) == -signal.SIGTERM


LIGHT = """
    import sys
    before = set(sys.modules)
    import groundwatch.client
    print(*sorted({name.partition(".")[0] for name in set(sys.modules) - before}), 0)
"""
HEAVY = {"httpx", "openai", "litellm", "asyncio", "nats", "pydantic", "starlette", "PIL", "numpy", "ssl"}


def test_importing_it_is_light() -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(LIGHT)],
        capture_output=True,
        text=True,
        timeout=LONG,
        check=True,
    )
    assert HEAVY.isdisjoint(done.stdout.split()), done.stdout
