"""Users, seeds and the server's configuration as files: what `groundwatch admin auth DIR` writes.

A seed is a secret and stands in a file of its own that only its owner can read; everything else holds
public keys and names. Certificates are of an authority of our own, for development and for clusters without
one.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import shlex
import stat
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
import nkeys
from jinja2 import Environment, PackageLoader, StrictUndefined

from groundwatch.errors import InvalidName, MissingExtraError, UsageError
from groundwatch.runtime.security.private_files import write_private
from groundwatch.topology.rights import Permissions, permissions, tenant_permissions, tenant_user, users

if TYPE_CHECKING:
    import trustme

AUTH_FILE = "auth.conf"
SERVER_FILE = "server.conf"
VALUES_FILE = "values-auth.yaml"
SECRETS_FILE = "secrets.sh"

CA_CERTIFICATE = "ca.crt"
CA_KEY = "ca.key"
SERVER_CERTIFICATE = "server.crt"
SERVER_KEY = "server.key"

SERVER_DAYS = 365
RENEW_DAYS = 30
"""A server's certificate that ends within so many days is made anew."""

Change = Literal["created", "updated", "unchanged"]


class Wrote(msgspec.Struct, frozen=True):
    """What became of one file."""

    path: str
    change: Change


def seed_file(folder: Path, user: str) -> Path:
    return folder / f"{user}.nk"


def write_auth(
    folder: Path,
    *,
    rotate: Collection[str] = (),
    retire: Collection[str] = (),
    hosts: Sequence[str] = (),
    tenants: Collection[str] = (),
    partitions: int = 1,
) -> list[Wrote]:
    """Write seeds, the server's configuration, chart values and the commands that make the Secrets.

    Safe to repeat: seeds that are there stay. Those of `rotate` are made anew, and the server goes on taking
    the former ones until they are in `retire`. `hosts` are the names and addresses of the servers, for
    certificates of an authority of our own. `tenants` get a user each, which stays for as long as its seed
    is in the folder. Services have rights in all `partitions`. Raises `UsageError` naming what is wrong.
    """
    of_tenants = _tenants(folder, tenants)
    rights = {**{user: permissions(user, partitions) for user in users()}, **of_tenants}
    for name in (*rotate, *retire):
        if name not in rights:
            raise UsageError(f"no NATS user '{name}'; there are {', '.join(rights)}")
    if both := set(rotate) & set(retire):
        raise UsageError(
            f"{', '.join(sorted(both))}: retire a former seed when its services have the new one"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(stat.S_IRWXU)
        keys: dict[str, list[str]] = {}
        wrote = []
        for user in rights:
            wrote += _seed(folder, user, rotate=user in rotate, retire=user in retire)
            keys[user] = [_public_key(seed_file(folder, user)), *_former(folder, user)]
        if hosts:
            wrote += certify(folder, hosts)
        here = folder.resolve()
        known = {
            "users": [(user, key, rights[user]) for user, public in keys.items() for key in public],
            "services": users(),
            "tls": (folder / SERVER_CERTIFICATE).is_file(),
            "here": str(here),
            "quoted": shlex.quote(str(here)),
        }
        templates = Environment(
            loader=PackageLoader("groundwatch.runtime.security"),
            undefined=StrictUndefined,
            trim_blocks=True,
            keep_trailing_newline=True,
        )
        for name in (AUTH_FILE, SERVER_FILE, VALUES_FILE, SECRETS_FILE):
            text = templates.get_template(f"{name}.jinja").render(known)
            wrote.append(_put(folder / name, text, mode=0o700 if name == SECRETS_FILE else 0o644))
    except OSError as error:
        raise UsageError(f"cannot write {error.filename or folder}: {error.strerror}") from error
    return wrote


def _tenants(folder: Path, wanted: Collection[str]) -> dict[str, Permissions]:
    """The rights of tenants' users: those that are wanted, and those whose seeds are here."""
    here = [path.stem.removeprefix("tenant-") for path in sorted(folder.glob("tenant-*.nk"))]
    found: dict[str, Permissions] = {}
    for tenant in (*wanted, *here):
        try:
            found[tenant_user(tenant)] = tenant_permissions(tenant)
        except InvalidName as error:
            raise UsageError(f"{error}; over HTTP a tenant may have any name", "tenant") from error
    return found


def _seed(folder: Path, user: str, *, rotate: bool, retire: bool) -> list[Wrote]:
    path, former = seed_file(folder, user), folder / f"{user}.former"
    wrote = []
    if retire and former.exists():
        former.unlink()
        wrote.append(Wrote(str(former), "updated"))
    there = path.exists()
    if there and rotate:
        keys = [_public_key(path), *_former(folder, user)]
        wrote.append(_put(former, "\n".join(keys) + "\n"))
    if there and not rotate:
        path.chmod(0o600)
        return [*wrote, Wrote(str(path), "unchanged")]
    seed: bytes = nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER)
    _put(path, seed.decode() + "\n", mode=0o600)
    return [*wrote, Wrote(str(path), "updated" if there else "created")]


def _former(folder: Path, user: str) -> list[str]:
    path = folder / f"{user}.former"
    return path.read_text().split() if path.exists() else []


def _public_key(path: Path) -> str:
    """Of the seed in this file. Raises `UsageError` when it holds none."""
    try:
        key: bytes = nkeys.from_seed(bytearray(path.read_bytes().strip())).public_key
    except (nkeys.NkeysError, ValueError, TypeError) as error:
        raise UsageError(f"{path} holds no nkey seed: remove it, and a new one is made") from error
    return key.decode()


def _put(path: Path, text: str, *, mode: int = 0o644) -> Wrote:
    """Write a file in one piece, never readable by more than `mode` says."""
    there = path.exists()
    if there and path.read_text() == text and stat.S_IMODE(path.stat().st_mode) == mode:
        return Wrote(str(path), "unchanged")
    write_private(path, text.encode(), mode=mode)
    return Wrote(str(path), "updated" if there else "created")


def certify(folder: Path, hosts: Sequence[str]) -> list[Wrote]:
    """Make the authority unless it is there, and a certificate for servers of these names and addresses.

    Raises `UsageError` for a name that cannot be one, `MissingExtraError` without the package trustme.
    """
    try:
        import trustme
    except ImportError as error:
        raise MissingExtraError("trustme", "embedded") from error
    hosts = list(dict.fromkeys(map(_checked, hosts)))
    certificate, key = folder / CA_CERTIFICATE, folder / CA_KEY
    made = not certificate.exists() and not key.exists()
    if made:
        authority = trustme.CA(
            path_length=0, organization_name="groundwatch", organization_unit_name="NATS authority"
        )
        write_private(key, authority.private_key_pem.bytes())
        certificate.write_bytes(authority.cert_pem.bytes())
    else:
        authority = _authority(certificate, key)
    done = [Wrote(str(certificate), "created" if made else "unchanged")]
    server = folder / SERVER_CERTIFICATE
    there = server.exists() and (folder / SERVER_KEY).exists()
    if there and not made and _holds(server, certificate, hosts):
        return [*done, Wrote(str(server), "unchanged")]
    now = datetime.datetime.now(datetime.UTC)
    issued = authority.issue_cert(
        *hosts,
        organization_name="groundwatch",
        organization_unit_name="NATS server",
        # Clocks differ a little between machines.
        not_before=now - datetime.timedelta(minutes=5),
        not_after=now + datetime.timedelta(days=SERVER_DAYS),
    )
    write_private(folder / SERVER_KEY, issued.private_key_pem.bytes())
    server.write_bytes(issued.cert_chain_pems[0].bytes())
    return [*done, Wrote(str(server), "updated" if there else "created")]


def _checked(host: str) -> str:
    """The name or address of a server. Raises `UsageError` for anything else."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        plain = host.removeprefix("*.").replace("-", "").replace(".", "")
        if plain.isascii() and plain.isalnum():
            return host
    raise UsageError(f"'{host}' is no server's name or address; give it without scheme and port", "tls")


def _authority(certificate: Path, key: Path) -> trustme.CA:
    """The one that is there. Raises `UsageError` when half of it is missing, or is another's."""
    import trustme
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    for path in (certificate, key):
        if not path.is_file():
            raise UsageError(f"{path} is missing beside its other half: restore it, or remove both")
    try:
        public = x509.load_pem_x509_certificate(certificate.read_bytes()).public_key()
        own = load_pem_private_key(key.read_bytes(), None).public_key() == public
        authority = trustme.CA.from_pem(certificate.read_bytes(), key.read_bytes())
    except (ValueError, TypeError, x509.ExtensionNotFound) as error:
        raise UsageError(f"{certificate} or its {CA_KEY} cannot be read: {error}") from error
    if not own:
        raise UsageError(f"{key} is not the key of {CA_CERTIFICATE}")
    return authority


def _holds(certificate: Path, authority: Path, hosts: Sequence[str]) -> bool:
    """Whether the certificate is of this authority, names all these servers and lasts."""
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature

    try:
        found = x509.load_pem_x509_certificate(certificate.read_bytes())
        found.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.read_bytes()))
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return False
    ends = found.not_valid_after_utc - datetime.timedelta(days=RENEW_DAYS)
    return {str(name.value) for name in names} == set(hosts) and datetime.datetime.now(datetime.UTC) < ends
