"""What may be fetched, from stores and files too; how much at once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import threading

import boto3
import pytest
from tests.archive.conftest import SERVER
from tests.support.image_server import BODY

from groundwatch.errors import InputError, MissingExtraError, SettingsError, TransientError
from groundwatch.gateway import fetching as module
from groundwatch.gateway.fetching import Fetcher
from groundwatch.runtime.settings.gateway import FetchSettings
from groundwatch.runtime.telemetry.metrics import Metrics

KEYS = {"access_key_id": "test", "secret_access_key": "test", "region": "us-east-1"}


@pytest.fixture(scope="module")
def s3():
    """A real S3 server with a bucket, in a process of its own."""
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True, env={**os.environ, **keys}
    )
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    yield boto3.client(
        "s3",
        endpoint_url=url,
        aws_access_key_id="test",
        aws_secret_access_key="test",
        region_name="us-east-1",
    )
    process.kill()
    process.wait()


def options(s3, **changes):
    return {"s3": {**KEYS, "endpoint": s3.meta.endpoint_url, "allow_http": True, **changes}}


async def test_without_an_entry_nothing_is_fetched(fetcher_factory):
    fetcher = fetcher_factory()
    for url in ("https://images.example.com/cat.png", "file:///etc/passwd", "", "nonsense"):
        assert fetcher.refusal(url).endswith("list what may be fetched in gateway.fetch.allow")
        with pytest.raises(InputError, match=r"gateway\.fetch\.allow"):
            await fetcher.fetch(url, "", most=10)


async def test_what_is_not_covered_is_told_with_its_setting(fetcher_factory):
    fetcher = fetcher_factory(allow=("https://images.example.com/",))
    assert fetcher.refusal("https://images.example.com/cat.png") == ""
    told = fetcher.refusal("https://other.example.com/cat.png?token=secret")
    assert told == "https://other.example.com/cat.png?token=… is not covered by gateway.fetch.allow"


@pytest.mark.parametrize("key", ["cat.png", "a b/кот, 100%.png", "a%20b.png", "x+y=z&.png", "~$'()[]!*.png"])
async def test_objects_of_s3(s3, fetcher_factory, key):
    s3.put_object(Bucket="bucket", Key=f"images/{key}", Body=BODY)
    fetcher = fetcher_factory(allow=("s3://bucket/images/",), options=options(s3))
    assert await fetcher.fetch(f"s3://bucket/images/{key}", "", most=len(BODY)) == BODY
    with pytest.raises(InputError, match="more than"):
        await fetcher.fetch(f"s3://bucket/images/{key}", "", most=len(BODY) - 1)


async def test_objects_of_s3_that_are_not_there_or_not_listed(s3, fetcher_factory):
    s3.put_object(Bucket="bucket", Key="secret/cat.png", Body=BODY)
    fetcher = fetcher_factory(allow=("s3://bucket/images/", "s3://absent/"), options=options(s3))
    with pytest.raises(InputError, match=r"s3://bucket/images/none\.png is not there"):
        await fetcher.fetch("s3://bucket/images/none.png", "", most=100)
    with pytest.raises((InputError, TransientError)):
        await fetcher.fetch("s3://absent/cat.png", "", most=100)
    for url in ("s3://bucket/secret/cat.png", "s3://bucket/images/../secret/cat.png", "s3://other/images/x"):
        assert fetcher.refusal(url)
        with pytest.raises(InputError):
            await fetcher.fetch(url, "", most=100)


async def test_a_store_that_is_away(fetcher_factory, unused_tcp_port):
    away = {"s3": {**KEYS, "endpoint": f"http://127.0.0.1:{unused_tcp_port}", "allow_http": True}}
    fetcher = fetcher_factory(allow=("s3://bucket/",), options=away)
    with pytest.raises(TransientError, match=r"s3://bucket/cat\.png"):
        await fetcher.fetch("s3://bucket/cat.png", "", most=100)


async def test_objects_of_gs(server, fetcher_factory):
    server.reply("/bucket/images%2Fcat%2Epng", ETag='"1"', Last_Modified="Mon, 01 Jan 2024 00:00:00 GMT")
    at = {"gs": {"base_url": f"http://127.0.0.1:{server.port}", "skip_signature": True, "allow_http": True}}
    fetcher = fetcher_factory(allow=("gs://bucket/images/",), options=at)
    assert await fetcher.fetch("gs://bucket/images/cat.png", "", most=100) == BODY


def test_options_that_a_store_does_not_know_are_told():
    settings = FetchSettings(allow=("s3://bucket/",), options={"s3": {"no_such": "x"}})
    with pytest.raises(SettingsError, match=r"gateway\.fetch\.options.*s3.*no_such"):
        Fetcher(settings, Metrics())


def test_without_obstore_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    Fetcher(FetchSettings(allow=("https://images.example.com/",)), Metrics())
    with pytest.raises(MissingExtraError, match=r"pip install 'groundwatch\[archive\]'"):
        Fetcher(FetchSettings(allow=("s3://bucket/",)), Metrics())


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "more").mkdir()
    (tmp_path / "secret.png").write_bytes(b"secret")
    (tmp_path / "images" / "a cat.png").write_bytes(BODY)
    (tmp_path / "more" / "dog.png").write_bytes(BODY)
    (tmp_path / "images" / "within.png").symlink_to("a cat.png")
    (tmp_path / "images" / "over.png").symlink_to(tmp_path / "more" / "dog.png")
    (tmp_path / "images" / "out.png").symlink_to(tmp_path / "secret.png")
    (tmp_path / "images" / "up").symlink_to(tmp_path)
    (tmp_path / "images" / "loop.png").symlink_to("loop.png")
    os.mkfifo(tmp_path / "images" / "pipe.png")
    return tmp_path


async def test_files_below_a_listed_folder(folder, fetcher_factory):
    fetcher = fetcher_factory(allow=(f"file://{folder}/images/", f"file://{folder}/more/"))
    for name in ("a%20cat.png", "a cat.png", "within.png", "over.png"):
        assert await fetcher.fetch(f"file://{folder}/images/{name}", "", most=100) == BODY
    with pytest.raises(InputError, match="larger than 3"):
        await fetcher.fetch(f"file://{folder}/images/within.png", "", most=3)
    for name in ("none.png", "out.png", "up/secret.png", "loop.png", "pipe.png", "up", "../secret.png"):
        with pytest.raises(InputError) as raised:
            await fetcher.fetch(f"file://{folder}/images/{name}", "", most=100)
        assert "\n" not in str(raised.value)


async def test_a_link_into_another_folder_needs_it_listed(folder, fetcher_factory):
    fetcher = fetcher_factory(allow=(f"file://{folder}/images/",))
    with pytest.raises(InputError, match="leads out of"):
        await fetcher.fetch(f"file://{folder}/images/over.png", "", most=100)


async def test_one_sender_leaves_room_for_others(server, fetcher_factory):
    waiting, both = asyncio.Event(), asyncio.Event()

    async def hold(reader, writer, path):
        if len(server.connections) == 2:
            both.set()
        await waiting.wait()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    server.answers["/held.png"] = hold
    server.reply("/a.png")
    fetcher = fetcher_factory(at_once=3, allow=(f"http://*.test:{server.port}/",))
    url = f"http://images.test:{server.port}"
    held = [asyncio.create_task(fetcher.fetch(f"{url}/held.png", "a", most=100)) for _ in range(6)]
    await both.wait()
    assert await fetcher.fetch(f"{url}/a.png", "b", most=100) == BODY
    assert len(server.connections) == 3
    waiting.set()
    assert await asyncio.gather(*held) == [b"ok"] * 6


async def test_who_waits_too_long_for_a_turn_is_told_to_come_again(server, fetcher_factory, monkeypatch):
    monkeypatch.setattr(module, "WAIT_SECONDS", 0.05)
    server.reply("/a.png")
    fetcher = fetcher_factory(at_once=1, allow=(f"http://*.test:{server.port}/",))
    url = f"http://images.test:{server.port}/a.png"
    async with fetcher.fetched(url, "a", most=100) as data:
        assert data == BODY
        with pytest.raises(TransientError, match="too many addresses wait"):
            await fetcher.fetch(url, "b", most=100)
    assert await fetcher.fetch(url, "b", most=100) == BODY


async def test_what_became_of_each_is_counted(server, fetcher_factory):
    server.reply("/a.png")
    server.reply("/busy.png", b"", "503 X")
    fetcher = fetcher_factory(allow=(f"http://*.test:{server.port}/",))
    for path in ("/a.png", "/none.png", "/busy.png"):
        with contextlib.suppress(InputError, TransientError):
            await fetcher.fetch(f"http://images.test:{server.port}{path}", "", most=100)
    fetcher.refusal("https://elsewhere.test/")
    told = {
        result: fetcher._metrics.registry.get_sample_value("groundwatch_fetches_total", {"result": result})
        for result in ("fetched", "not_allowed", "refused", "failed")
    }
    assert told == {"fetched": 1, "not_allowed": 1, "refused": 1, "failed": 1}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"allow": ("https://images.example.com",)}, None),
        ({"allow": ("https://images.example.com/a",)}, "does not end with /"),
        ({"allow": ("*.example.com",)}, "no address"),
        ({"networks": ("10.0.0.1/8",)}, "no network"),
        ({"networks": ("ten",)}, "no network"),
        ({"options": {"az": {}}}, "s3"),
        ({"seconds": 60.0}, "8"),
    ],
)
def test_settings_that_are_wrong_are_told(changes, words):
    if words is None:
        FetchSettings(**changes)
        return
    with pytest.raises(ValueError, match=words):
        FetchSettings(**changes)


async def test_names_whose_server_is_silent_hold_up_no_others(fetcher_factory, server, monkeypatch):
    over = threading.Event()
    look_up = socket.getaddrinfo

    def silent(host, *args, **options):
        if str(host).startswith("silent"):
            over.wait(20)
        return look_up("127.0.0.1" if str(host).endswith(".test") else host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    port = server.port
    fetcher = fetcher_factory(own_names=False, allow=(f"http://*.test:{port}/",), seconds=2.0, at_once=4)
    server.reply("/a.png")
    try:
        for round_ in range(3):
            urls = [f"http://silent{round_}-{at}.test:{port}/a.png" for at in range(4)]
            asked = (fetcher.fetch(url, f"tenant {at}", most=1_000) for at, url in enumerate(urls))
            ended = await asyncio.gather(*asked, return_exceptions=True)
            assert all(isinstance(one, TransientError) for one in ended)
        assert await fetcher.fetch(f"http://images.test:{port}/a.png", "another", most=1_000) == BODY
    finally:
        over.set()
