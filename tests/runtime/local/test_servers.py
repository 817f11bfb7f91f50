"""A server of our own: never somebody else's, never two on one folder, nothing forgotten."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from tests.runtime.conftest import eventually

from groundwatch.errors import UsageError
from groundwatch.runtime.delivery.bus import Bus, Outgoing
from groundwatch.runtime.delivery.provisioning import provision
from groundwatch.runtime.local.servers import NatsServer, find_binary, free_port
from groundwatch.runtime.settings import NatsSettings
from groundwatch.topology import RESPONSES

OWNER = """
import asyncio, sys
from pathlib import Path
from groundwatch.runtime.local.servers import NatsServer

async def main():
    server = NatsServer(Path(sys.argv[1]))
    await server.start()
    print(f"pid={server.pid}.", flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


async def connected(server: NatsServer) -> Bus:
    bus = Bus(NatsSettings(url=server.url), name="test")
    await bus.connect()
    return bus


async def test_keeps_what_it_holds_over_a_restart(tmp_path: Path) -> None:
    for number in range(3):
        # Another object each time, as another run of `groundwatch up`: another port, another name.
        server = NatsServer(tmp_path)
        await server.start()
        bus = await connected(server)
        await provision(bus.js)
        await bus.create(Outgoing(subject=f"gw.recorded.live.{number}", payload=b"x"))
        assert (await bus.js.stream_info(RESPONSES)).state.messages == number + 1
        await bus.close()
        await server.stop()
        assert server.pid is None


async def test_killed_it_comes_back_on_its_port_with_its_data(own_server: NatsServer) -> None:
    bus = await connected(own_server)
    await provision(bus.js)
    await bus.create(Outgoing(subject="gw.recorded.live.a", payload=b"x"))
    url = own_server.url
    own_server.kill()
    assert await own_server.wait() != 0
    assert own_server.pid is None
    await own_server.restart()
    assert own_server.url == url
    await eventually(lambda: bus.connected)
    assert (await bus.js.stream_info(RESPONSES)).state.messages == 1
    await bus.close()


async def test_two_on_one_folder_are_refused(own_server: NatsServer) -> None:
    with pytest.raises(UsageError, match=rf"already uses {own_server.data_dir}.*another folder"):
        await NatsServer(own_server.data_dir).start()
    assert own_server.pid
    await (await connected(own_server)).close()


async def test_somebody_elses_server_is_left_alone(tmp_path: Path) -> None:
    port = free_port()
    other = await asyncio.create_subprocess_exec(
        find_binary(), "-js", "-sd", str(tmp_path / "other"), "-a", "127.0.0.1", "-p", str(port),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        theirs = Bus(NatsSettings(url=f"nats://127.0.0.1:{port}"), name="test")
        await theirs.connect()
        ours = NatsServer(tmp_path / "ours", port=port)
        with pytest.raises(UsageError):
            await ours.start()
        assert ours.pid is None
        # It lives, and nothing was written into it.
        assert (await theirs.js.account_info()).streams == 0
        await theirs.close()
        # And the folder is free again.
        again = NatsServer(tmp_path / "ours")
        await again.start()
        await again.stop()
    finally:
        other.terminate()
        await other.wait()


async def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises((UsageError, OSError)):
        await NatsServer(tmp_path / "file" / "nats").start()


@pytest.mark.parametrize("loop", ("asyncio", "uvloop"))
def test_the_server_of_a_killed_owner_is_found_and_stopped(tmp_path: Path, loop: str) -> None:
    script = (
        OWNER
        if loop == "asyncio"
        else OWNER.replace("asyncio.run(main())", "import uvloop; uvloop.run(main())")
    )
    owner = subprocess.Popen((sys.executable, "-c", script, str(tmp_path)), stdout=subprocess.PIPE)
    assert owner.stdout is not None
    lines = iter(owner.stdout.readline, b"")
    orphan = next(int(line[4:-2]) for line in lines if line.startswith(b"pid="))
    try:
        # While its owner lives, nobody touches it.
        with pytest.raises(UsageError, match="already uses"):
            asyncio.run(NatsServer(tmp_path).start())
        assert psutil.pid_exists(orphan)
        owner.send_signal(signal.SIGKILL)
        owner.wait()
        assert psutil.pid_exists(orphan)

        async def take_over() -> None:
            server = NatsServer(tmp_path)
            await server.start()
            assert not psutil.pid_exists(orphan) or psutil.Process(orphan).status() == "zombie"
            await server.stop()

        asyncio.run(take_over())
    finally:
        owner.kill()
        owner.wait()
        owner.stdout.close()
        if psutil.pid_exists(orphan) and psutil.Process(orphan).name() == "nats-server":
            os.kill(orphan, signal.SIGKILL)


async def test_nobody_connects_without_the_token(own_server: NatsServer) -> None:
    place = f"127.0.0.1:{own_server.port}"
    for url in (f"nats://{place}", f"nats://guessed@{place}", f"nats://user:password@{place}"):
        with pytest.raises(UsageError) as refused:
            await Bus(NatsSettings(url=url), name="test").connect(timeout=1.0)
        assert "guessed" not in str(refused.value) and "password" not in str(refused.value)


async def test_only_its_port_is_open_and_on_loopback_only(own_server: NatsServer) -> None:
    listening = [
        found.laddr
        for found in psutil.Process(own_server.pid).net_connections("tcp")
        if found.status == psutil.CONN_LISTEN
    ]
    assert [(one.ip, one.port) for one in listening] == [("127.0.0.1", own_server.port)]


async def test_nobody_else_reads_its_folder(tmp_path: Path) -> None:
    data = tmp_path / "new" / "data"
    server = NatsServer(data / "nats")
    await server.start()
    await server.stop()
    modes = {path: path.stat().st_mode & 0o777 for path in (data.parent, data, data / "nats")}
    assert set(modes.values()) == {0o700}
    (data / "nats").chmod(0o755)
    await server.start()
    await server.stop()
    assert (data / "nats").stat().st_mode & 0o777 == 0o700, "one that an older version made"


async def test_a_folder_whose_name_means_something_to_others(tmp_path: Path) -> None:
    server = NatsServer(tmp_path / 'a "name" with $HOME, {braces} # and \\ü')
    await server.start()
    bus = await connected(server)
    await provision(bus.js)
    await bus.close()
    await server.stop()
    assert (server.data_dir / "jetstream").is_dir() and (server.data_dir / "nats-server.log").is_file()
