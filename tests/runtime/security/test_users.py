"""What `groundwatch admin auth` writes: safe to repeat, secrets apart, misuse told in one line."""

from __future__ import annotations

import datetime
import os
import re
import stat
import subprocess
from pathlib import Path

import nkeys
import pytest
from cryptography import x509

from groundwatch.errors import UsageError
from groundwatch.runtime.local.servers import find_binary
from groundwatch.runtime.security.users import (
    AUTH_FILE,
    CA_CERTIFICATE,
    CA_KEY,
    SECRETS_FILE,
    SERVER_CERTIFICATE,
    SERVER_FILE,
    SERVER_KEY,
    VALUES_FILE,
    seed_file,
    write_auth,
)
from groundwatch.topology.rights import permissions, users


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_repeat_changes_nothing(tmp_path: Path) -> None:
    first = write_auth(tmp_path, hosts=["localhost"])
    before = contents(tmp_path)
    assert {one.change for one in first} == {"created"}
    again = write_auth(tmp_path, hosts=["localhost"])
    assert {one.change for one in again} == {"unchanged"}
    # Without hosts, the certificates that are there stay in use.
    assert {one.change for one in write_auth(tmp_path)} == {"unchanged"}
    assert contents(tmp_path) == before


def test_seeds_are_for_their_owner_and_nowhere_else(tmp_path: Path) -> None:
    umask = os.umask(0)
    try:
        write_auth(tmp_path / "new", hosts=["localhost"])
    finally:
        os.umask(umask)
    folder = tmp_path / "new"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    secrets = [seed_file(folder, user) for user in users()]
    for path in (*secrets, folder / CA_KEY, folder / SERVER_KEY):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    seeds = [path.read_bytes().strip() for path in secrets]
    assert len(set(seeds)) == len(users())
    for name in (AUTH_FILE, SERVER_FILE, VALUES_FILE, SECRETS_FILE):
        text = (folder / name).read_bytes()
        assert not any(seed in text for seed in seeds), name
        assert not re.search(rb"\bSU[A-Z2-7]{56}\b", text), name


def test_every_user_has_its_key_and_its_rights(tmp_path: Path) -> None:
    write_auth(tmp_path)
    text = (tmp_path / AUTH_FILE).read_text()
    blocks = dict(zip(users(), text.split("    # ")[1:], strict=True))
    for user, block in blocks.items():
        key = nkeys.from_seed(bytearray(seed_file(tmp_path, user).read_bytes().strip())).public_key.decode()
        rights = permissions(user)
        assert block.startswith(f"{user}\n") and f"nkey = {key}\n" in block
        named = re.findall(r'"([^"]+)"', block)
        wanted = [*rights.publish, *rights.publish_denied, *rights.subscribe]
        assert named == ["STANDARD", *wanted]


@pytest.mark.parametrize("hosts", [[], ["127.0.0.1", "nats", "*.nats.svc.cluster.local", "::1"]])
def test_the_server_takes_it(tmp_path: Path, hosts: list[str]) -> None:
    write_auth(tmp_path, hosts=hosts)
    done = subprocess.run(
        [find_binary(), "-t", "-c", str(tmp_path / SERVER_FILE)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_values_name_a_secret_for_every_service(tmp_path: Path) -> None:
    write_auth(tmp_path, hosts=["nats"])
    values, commands = (tmp_path / VALUES_FILE).read_text(), (tmp_path / SECRETS_FILE).read_text()
    for user in users():
        assert f"      {user}: groundwatch-nats-{user}\n" in values
    for name in re.findall(r"groundwatch-nats-[a-z-]+", values):
        assert f"create secret generic {name} " in commands
    assert subprocess.run(["sh", "-n", str(tmp_path / SECRETS_FILE)]).returncode == 0


def test_rotating_keeps_the_former_key_until_it_is_retired(tmp_path: Path) -> None:
    write_auth(tmp_path)

    def keys() -> list[str]:
        return re.findall(r"# scoring\n    \{\n      nkey = (\w+)", (tmp_path / AUTH_FILE).read_text())

    [old] = keys()
    others = seed_file(tmp_path, "gateway").read_bytes()
    write_auth(tmp_path, rotate=["scoring"])
    assert len(keys()) == 2 and keys()[1] == old
    write_auth(tmp_path)
    assert len(keys()) == 2
    write_auth(tmp_path, retire=["scoring"])
    assert len(keys()) == 1 and keys() != [old]
    assert seed_file(tmp_path, "gateway").read_bytes() == others


def test_certificates_name_the_servers_and_are_renewed_for_others(tmp_path: Path) -> None:
    write_auth(tmp_path, hosts=["127.0.0.1", "nats.example"])
    authority = (tmp_path / CA_CERTIFICATE).read_bytes()
    found = x509.load_pem_x509_certificate((tmp_path / SERVER_CERTIFICATE).read_bytes())
    found.verify_directly_issued_by(x509.load_pem_x509_certificate(authority))
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["nats.example"]
    assert found.not_valid_after_utc - found.not_valid_before_utc < datetime.timedelta(days=366)
    changed = {Path(one.path).name: one.change for one in write_auth(tmp_path, hosts=["other.example"])}
    assert (changed[CA_CERTIFICATE], changed[SERVER_CERTIFICATE]) == ("unchanged", "updated")
    assert (tmp_path / CA_CERTIFICATE).read_bytes() == authority


def test_misuse_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no NATS user 'nobody'; there are gateway"):
        write_auth(tmp_path, rotate=["nobody"])
    with pytest.raises(UsageError, match="scoring: retire a former seed when"):
        write_auth(tmp_path, rotate=["scoring"], retire=["scoring"])
    with pytest.raises(UsageError, match="'tls://x:4222' is no server's name or address"):
        write_auth(tmp_path, hosts=["tls://x:4222"])
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"cannot write .*file"):
        write_auth(tmp_path / "file")
    write_auth(tmp_path, hosts=["localhost"])
    (tmp_path / CA_KEY).unlink()
    with pytest.raises(UsageError, match=r"ca\.key is missing beside its other half"):
        write_auth(tmp_path, hosts=["elsewhere"])
    seed_file(tmp_path, "scoring").write_text("SUNOSEED")
    with pytest.raises(UsageError, match=r"scoring\.nk holds no nkey seed"):
        write_auth(tmp_path)


def test_a_tenants_user_stays_with_its_seed(tmp_path: Path) -> None:
    write_auth(tmp_path, tenants=["acme"])
    seed = tmp_path / "tenant-acme.nk"
    assert stat.S_IMODE(seed.stat().st_mode) == 0o600
    block = (tmp_path / AUTH_FILE).read_text().partition("# tenant-acme\n")[2]
    assert re.findall(r'"([^"]+)"', block) == ["STANDARD", "gw.intake.acme", "_INBOX_tenant-acme.>"]
    # Of no chart: tenants run their programs elsewhere.
    assert "tenant-acme" not in (tmp_path / VALUES_FILE).read_text()
    before = contents(tmp_path)
    assert {one.change for one in write_auth(tmp_path)} == {"unchanged"}
    assert contents(tmp_path) == before
    write_auth(tmp_path, rotate=["tenant-acme"])
    assert (tmp_path / AUTH_FILE).read_text().count("# tenant-acme\n") == 2
    write_auth(tmp_path, retire=["tenant-acme"])
    assert (tmp_path / AUTH_FILE).read_text().count("# tenant-acme\n") == 1
    seed.unlink()
    write_auth(tmp_path)
    assert "tenant-acme" not in (tmp_path / AUTH_FILE).read_text()


@pytest.mark.parametrize("name", ["", "a.b", "*", ">", "a b", "ä", "x" * 129, "../up"])
def test_a_tenant_that_no_subject_can_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="cannot be part of a subject"):
        write_auth(tmp_path, tenants=[name])
