"""Who may not connect is told why in one line, and who is refused at work is not ready."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import nats.errors
import nkeys
import pytest
from tests.runtime.conftest import eventually
from tests.support.secured import Secured, secured

from groundwatch.errors import SettingsError, UsageError
from groundwatch.runtime.delivery.bus import Bus, Outgoing
from groundwatch.runtime.delivery.provisioning import missing
from groundwatch.runtime.local.servers import NatsServer
from groundwatch.runtime.security.connecting import covers, explain
from groundwatch.runtime.security.users import (
    CA_CERTIFICATE,
    SERVER_CERTIFICATE,
    SERVER_KEY,
    seed_file,
    write_auth,
)
from groundwatch.runtime.settings import NatsSettings, Settings
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.scoring.service import ScoringService
from groundwatch.topology import RESPONSES


@pytest.fixture(scope="module")
def server() -> Iterator[Secured]:
    with (
        tempfile.TemporaryDirectory(prefix="groundwatch-security-", ignore_cleanup_errors=True) as folder,
        secured(Path(folder)) as started,
    ):
        yield started


async def refusal(settings: NatsSettings, patience: float = 10.0) -> str:
    bus = Bus(settings, name="scoring")
    with pytest.raises(UsageError) as caught:
        await bus.connect(timeout=patience)
    said = str(caught.value)
    assert "\n" not in said
    return said


@pytest.mark.parametrize(
    ("key", "content", "said"),
    [
        ("nkey_seed_file", None, "no file at"),
        ("nkey_seed_file", b"", "holds no nkey seed"),
        ("nkey_seed_file", b"-----BEGIN\xff\x00", "holds no nkey seed"),
        ("nkey_seed_file", nkeys.encode_seed(bytes(32), nkeys.PREFIX_BYTE_ACCOUNT), "but not of a user"),
        ("tls_ca", None, "no file at"),
        ("tls_ca", b"not a certificate", "is no certificate in PEM"),
        ("tls_cert", None, "nats.tls_key"),
        ("credentials", None, "no file at"),
    ],
)
def test_a_file_that_is_wrong_is_named_with_its_setting(
    tmp_path: Path, key: str, content: bytes | None, said: str
) -> None:
    path = tmp_path / "file"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SettingsError, match=said) as caught:
        Bus(NatsSettings(url="nats://127.0.0.1:1", **{key: str(path)}), name="scoring")
    assert "setting 'nats." in str(caught.value) and "\n" not in str(caught.value)


def test_a_folder_in_the_place_of_a_seed(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"'nats.nkey_seed_file': cannot read \(Is a directory\)"):
        Bus(NatsSettings(nkey_seed_file=str(tmp_path)), name="scoring")


def test_two_identities_are_one_too_many(server: Secured) -> None:
    with pytest.raises(SettingsError, match=r"nats\.credentials"):
        Bus(server.settings("scoring", credentials=__file__), name="scoring")


def test_a_certificate_and_another_ones_key(server: Secured, tmp_path: Path) -> None:
    write_auth(tmp_path, hosts=["localhost"])
    pair = {"tls_cert": str(server.auth / SERVER_CERTIFICATE), "tls_key": str(tmp_path / SERVER_KEY)}
    with pytest.raises(SettingsError, match=r"nats\.tls_cert.*are no certificate and its key"):
        Bus(server.settings("scoring", **pair), name="scoring")


async def test_a_seed_that_the_server_does_not_know(server: Secured, tmp_path: Path) -> None:
    write_auth(tmp_path)
    said = await refusal(server.settings("scoring", nkey_seed_file=str(seed_file(tmp_path, "scoring"))))
    assert "does not know the user of nats.nkey_seed_file" in said and "groundwatch admin auth" in said


async def test_no_seed_at_all(server: Secured) -> None:
    assert "set nats.nkey_seed_file" in await refusal(server.settings("scoring", nkey_seed_file=""))


async def test_another_authority(server: Secured, tmp_path: Path) -> None:
    write_auth(tmp_path, hosts=["127.0.0.1"])
    said = await refusal(server.settings("scoring", tls_ca=str(tmp_path / CA_CERTIFICATE)), 2.0)
    assert f"nats.tls_ca ({tmp_path / CA_CERTIFICATE}) did not sign" in said


async def test_no_authority(server: Secured) -> None:
    assert "set nats.tls_ca" in await refusal(server.settings("scoring", tls_ca=""), 2.0)


async def test_a_server_without_tls_is_not_spoken_to_in_clear(
    server: Secured, nats_server: NatsServer
) -> None:
    said = await refusal(server.settings("scoring", url=nats_server.url, nkey_seed_file=""))
    assert "speaks no TLS" in said


async def test_who_this_is_is_said_once(server: Secured) -> None:
    with pytest.raises(SettingsError, match=r"nats\.url.*user or a token.*nkey_seed_file"):
        Bus(server.settings("scoring", url=server.url.replace("//", "//user:pw@")), name="scoring")


async def test_a_client_certificate_is_offered(server: Secured) -> None:
    pair = {"tls_cert": str(server.auth / SERVER_CERTIFICATE), "tls_key": str(server.auth / SERVER_KEY)}
    bus = Bus(server.settings("scoring", **pair), name="scoring")
    await bus.connect()
    assert bus.encrypted and bus.problems() == []
    await bus.close()


async def test_who_is_refused_at_work_is_not_ready_and_says_what(server: Secured) -> None:
    bus = Bus(server.settings("matching"), name="scoring")
    await bus.connect()
    service = ScoringService(Settings(), bus, Metrics())
    with pytest.raises(UsageError, match="NATS does not let this user subscribe to _INBOX_scoring"):
        async with bus.unless_refused():
            await missing(bus.js, "verification")
    assert any("seed of scoring" in one for one in service.problems())
    await bus.close()


async def test_an_event_on_a_subject_of_others_is_told_by_its_name(server: Secured) -> None:
    bus = Bus(server.settings("scoring"), name="scoring")
    await bus.connect()
    assert bus.problems() == []
    await bus.start_create(Outgoing(subject="gw.recorded.live.ABC", payload=b"{}"))
    await eventually(bus.problems)
    assert bus.problems()[0].startswith("NATS does not let this user publish to gw.recorded.live.abc")
    await bus.close()


@pytest.mark.slow
async def test_a_seed_is_rotated_without_a_pause(server: Secured) -> None:
    """Old and new seed work until the old one is retired; other users are not disturbed."""
    former = server.auth / "former.nk"
    former.write_bytes(seed_file(server.auth, "scoring").read_bytes())
    other = Bus(server.settings("matching"), name="matching")
    await other.connect()
    write_auth(server.auth, rotate=["scoring"])
    assert former.read_bytes() != seed_file(server.auth, "scoring").read_bytes()
    server.reload()
    new, old = server.settings("scoring"), server.settings("scoring", nkey_seed_file=str(former))
    await eventually(lambda: _connects(new))
    await eventually(lambda: _connects(old))
    write_auth(server.auth, retire=["scoring"])
    server.reload()
    await eventually(lambda: _refuses(old))
    await eventually(lambda: _connects(new))
    assert other.connected and other.reconnects == 0
    await other.close()


async def _connects(settings: NatsSettings) -> bool:
    bus = Bus(settings, name="scoring")
    try:
        await bus.connect(timeout=2)
    except UsageError:
        return False
    try:
        await bus.js.stream_info(RESPONSES)
    except (TimeoutError, nats.errors.Error):
        # Let in before the server had read its configuration, and put out now.
        return False
    finally:
        await bus.close()
    return True


async def _refuses(settings: NatsSettings) -> bool:
    return not await _connects(settings)


def test_what_is_refused_is_explained() -> None:
    asked = explain("scoring", "publish", "$js.api.consumer.msg.next.gw_judged.scoring")
    assert (
        "publish to $JS.API.CONSUMER.MSG.NEXT.GW_JUDGED.scoring, which is among the rights of scoring"
        in asked
    )
    assert "does not belong to the rights of scoring" in explain("scoring", "publish", "gw.recorded.live.k")
    assert "is none of the users" in explain("groundwatch", "publish", "gw.recorded.live.k")
    assert "subscribe to _INBOX_gateway.x" in explain("scoring", "subscription", "_inbox_gateway.x")


def test_wildcards() -> None:
    assert covers("a.*.c", "a.b.c") and covers("a.>", "a.b.c") and covers("A.b", "a.B")
    assert not covers("a.>", "a") and not covers("a.*", "a.b.c") and not covers("a.b", "a.b.c")
    assert not covers("a.b.c", "a.b")
