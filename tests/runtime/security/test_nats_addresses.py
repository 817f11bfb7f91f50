"""Several servers in `nats.url`, and addresses shown without what is secret in them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.runtime.conftest import eventually

from groundwatch.addresses import shown_address
from groundwatch.errors import SettingsError, UsageError
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.local.servers import NatsServer, free_port
from groundwatch.runtime.security.connecting import nats_servers
from groundwatch.runtime.settings import NatsSettings


def test_a_list_of_servers() -> None:
    assert nats_servers("nats://a:4222, nats://u:p@b:4222,c:1,") == [
        "nats://a:4222",
        "nats://u:p@b:4222",
        "c:1",
    ]
    assert nats_servers("") == []


@pytest.mark.parametrize(
    "url",
    (
        "http://a:4222",
        "nats://",
        "nats://a:0",
        "nats://a:port",
        "nats://a:4222,ws://b:80",
        "nats://a:4222,http://u:secret@b:1",
        "nats://user:sec,ret@host:1",
    ),
)
def test_what_is_no_list_of_servers(url: str) -> None:
    with pytest.raises(SettingsError, match=r"nats\.url") as caught:
        nats_servers(url)
    assert "sec" not in str(caught.value)
    with pytest.raises(SettingsError, match=r"nats\.url"):
        Bus(NatsSettings(url=url), name="test")


@pytest.mark.parametrize(
    ("urls", "shown"),
    (
        ("", ""),
        ("nats://a:4222", "nats://a:4222"),
        ("nats://token@a:4222", "nats://…@a:4222"),
        ("nats://u:p@a:1,tls://u:p@b:2", "nats://…@a:1,tls://…@b:2"),
        ("u:p@a:1", "…@a:1"),
        ("nats://u:p,q/r@s@a:1, nats://b", "nats://…@a:1,nats://b"),
        ("nats://a:1,u:p@b:2", "nats://…@b:2"),
    ),
)
def test_no_secret_is_shown(urls: str, shown: str) -> None:
    assert shown_address(urls) == shown


async def test_the_next_server_when_one_is_gone(tmp_path: Path) -> None:
    first, second = NatsServer(tmp_path / "first"), NatsServer(tmp_path / "second")
    await first.start()
    await second.start()
    nobody = f"nats://127.0.0.1:{free_port()}"
    bus = Bus(NatsSettings(url=f"{nobody}, {first.url},{second.url}"), name="test")
    try:
        await bus.connect()
        at = bus.client.connected_url.port
        assert at in (first.port, second.port)
        await (first if at == first.port else second).stop()
        await eventually(lambda: bus.connected and bus.client.connected_url.port != at)
    finally:
        await bus.close()
        await first.stop()
        await second.stop()


async def test_nobody_answers_at_any_of_them() -> None:
    urls = ",".join(f"nats://name:secret@127.0.0.1:{free_port()}" for _ in range(2))
    with pytest.raises(
        UsageError, match=r"no NATS server answers at nats://…@127\.0\.0\.1:\d+,nats://…@"
    ) as it:
        await Bus(NatsSettings(url=urls), name="test").connect(timeout=0.5)
    assert "secret" not in str(it.value)
