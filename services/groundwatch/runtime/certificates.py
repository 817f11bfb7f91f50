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
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

CA_CERTIFICATE = "ca.crt"
CA_KEY = "ca.key"
SERVER_CERTIFICATE = "server.crt"
SERVER_KEY = "server.key"

CA_DAYS = 3_650
SERVER_DAYS = 365
RENEW_DAYS = 30
"""A server's certificate that ends within so many days is made anew."""

Change = Literal["created", "updated", "unchanged"]


def certify(folder: Path, hosts: Sequence[str]) -> list[tuple[Path, Change]]:
    """Make the authority unless it is there, and a certificate for servers of these names and addresses.

    Raises `UsageError` for a name that cannot be one, `MissingExtraError` without the package cryptography.
    """
    try:
        import cryptography  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("cryptography", "embedded") from error
    names = _names(hosts)
    done: list[tuple[Path, Change]] = []
    authority, key = folder / CA_CERTIFICATE, folder / CA_KEY
    made = not authority.exists() and not key.exists()
    if made:
        _make_authority(authority, key)
    done.append((authority, "created" if made else "unchanged"))
    certificate = folder / SERVER_CERTIFICATE
    there = certificate.exists() and (folder / SERVER_KEY).exists()
    if there and not made and _holds(certificate, authority, names):
        return [*done, (certificate, "unchanged")]
    _make_server(folder, names)
    return [*done, (certificate, "updated" if there else "created")]


def _names(hosts: Sequence[str]) -> list[x509.GeneralName]:
    from cryptography import x509

    names: list[x509.GeneralName] = []
    for host in dict.fromkeys(hosts):
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
            continue
        except ValueError:
            pass
        plain = host.removeprefix("*.").replace("-", "").replace(".", "")
        if not plain.isascii() or not plain.isalnum():
            raise UsageError(
                f"--tls: '{host}' is no server's name or address; give it without scheme and port"
            )
        names.append(x509.DNSName(host))
    return names


def _make_authority(certificate: Path, key_file: Path) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = _subject("groundwatch NATS authority")
    builder = _builder(name, name, key, CA_DAYS).add_extension(
        x509.BasicConstraints(ca=True, path_length=0), critical=True
    )
    builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
    _write_key(key_file, key)
    _write(certificate, builder, key)


def _make_server(folder: Path, names: Sequence[x509.GeneralName]) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    authority, signer = _authority(folder)
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(_subject("groundwatch NATS server"), authority.subject, key, SERVER_DAYS)
    for extension, critical in (
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (x509.SubjectAlternativeName(names), False),
        (_usage(signs_certificates=False), True),
        # Servers of a cluster are clients of each other.
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), False),
    ):
        builder = builder.add_extension(extension, critical=critical)
    _write_key(folder / SERVER_KEY, key)
    _write(folder / SERVER_CERTIFICATE, builder, signer)


def _authority(folder: Path) -> tuple[x509.Certificate, EllipticCurvePrivateKey]:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    for path in (folder / CA_CERTIFICATE, folder / CA_KEY):
        if not path.is_file():
            raise UsageError(f"{path} is missing beside its other half: restore it, or remove both")
    try:
        certificate = x509.load_pem_x509_certificate((folder / CA_CERTIFICATE).read_bytes())
        key = load_pem_private_key((folder / CA_KEY).read_bytes(), None)
    except (ValueError, TypeError) as error:
        raise UsageError(f"{folder / CA_CERTIFICATE} or its {CA_KEY} cannot be read: {error}") from error
    if not isinstance(key, EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise UsageError(f"{folder / CA_KEY} is not the key of {CA_CERTIFICATE}")
    return certificate, key


def _holds(certificate: Path, authority: Path, names: Sequence[x509.GeneralName]) -> bool:
    """Whether the certificate is of this authority, names all these servers and lasts."""
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature

    try:
        found = x509.load_pem_x509_certificate(certificate.read_bytes())
        found.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.read_bytes()))
        has = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return False
    ends = found.not_valid_after_utc - datetime.timedelta(days=RENEW_DAYS)
    return set(names) == set(has) and datetime.datetime.now(datetime.UTC) < ends


def _subject(name: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    from cryptography import x509

    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _write(path: Path, builder: x509.CertificateBuilder, signer: EllipticCurvePrivateKey) -> None:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding

    path.write_bytes(builder.sign(signer, SHA256()).public_bytes(Encoding.PEM))


def _write_key(path: Path, key: EllipticCurvePrivateKey) -> None:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
