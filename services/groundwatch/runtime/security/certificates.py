"""An authority of our own and a server's certificate, for development and for clusters without one."""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from groundwatch.errors import MissingExtraError, UsageError

if TYPE_CHECKING:
    import trustme

CA_CERTIFICATE = "ca.crt"
CA_KEY = "ca.key"
SERVER_CERTIFICATE = "server.crt"
SERVER_KEY = "server.key"

SERVER_DAYS = 365
RENEW_DAYS = 30
"""A server's certificate that ends within so many days is made anew."""

Change = Literal["created", "updated", "unchanged"]


def certify(folder: Path, hosts: Sequence[str]) -> list[tuple[Path, Change]]:
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
        _write_key(key, authority.private_key_pem.bytes())
        certificate.write_bytes(authority.cert_pem.bytes())
    else:
        authority = _authority(certificate, key)
    done: list[tuple[Path, Change]] = [(certificate, "created" if made else "unchanged")]
    server = folder / SERVER_CERTIFICATE
    there = server.exists() and (folder / SERVER_KEY).exists()
    if there and not made and _holds(server, certificate, hosts):
        return [*done, (server, "unchanged")]
    now = datetime.datetime.now(datetime.UTC)
    issued = authority.issue_cert(
        *hosts,
        organization_name="groundwatch",
        organization_unit_name="NATS server",
        # Clocks differ a little between machines.
        not_before=now - datetime.timedelta(minutes=5),
        not_after=now + datetime.timedelta(days=SERVER_DAYS),
    )
    _write_key(folder / SERVER_KEY, issued.private_key_pem.bytes())
    server.write_bytes(issued.cert_chain_pems[0].bytes())
    return [*done, (server, "updated" if there else "created")]


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


def _write_key(path: Path, key: bytes) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(key)
