"""When certificates end."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from groundwatch.runtime.telemetry.metrics import Metrics, show_end

KEY = ec.generate_private_key(ec.SECP256R1())


def certificate(end: datetime.datetime) -> x509.Certificate:
    who = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a")])
    return (
        x509.CertificateBuilder()
        .subject_name(who)
        .issuer_name(who)
        .public_key(KEY.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.datetime(1950, 1, 1))
        .not_valid_after(end)
        .sign(KEY, SHA256())
    )


def test_of_a_chain_the_first_to_end_counts(tmp_path: Path) -> None:
    early, late = datetime.datetime(2031, 5, 4, 3, 2, 1), datetime.datetime(2040, 1, 1)
    file = tmp_path / "chain.pem"
    file.write_bytes(b"".join(certificate(end).public_bytes(Encoding.PEM) for end in (late, early)))
    metrics = Metrics()
    show_end(metrics, "nats.tls_cert", str(file))
    (found,) = metrics.certificate_end.collect()[0].samples
    assert found.labels == {"certificate": "nats.tls_cert"}
    assert found.value == early.replace(tzinfo=datetime.UTC).timestamp()


def test_a_real_authoritys_certificate(tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("gateway.example")
    file = tmp_path / "server.crt"
    file.write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))
    metrics = Metrics()
    show_end(metrics, "gateway.grpc.tls_cert", str(file))
    ends = x509.load_pem_x509_certificate(file.read_bytes()).not_valid_after_utc
    assert metrics.certificate_end.collect()[0].samples[0].value == ends.timestamp()


@pytest.mark.parametrize(
    "text",
    ["", "-----BEGIN CERTIFICATE-----\nbm9uZQ==\n-----END CERTIFICATE-----\n", "\xff nothing"],
)
def test_a_file_without_a_certificate_shows_none(tmp_path: Path, text: str) -> None:
    file = tmp_path / "server.crt"
    file.write_text(text, "latin-1")
    metrics = Metrics()
    show_end(metrics, "nats.tls_cert", str(file))
    assert not metrics.certificate_end.collect()[0].samples


def test_a_key_and_words_around_certificates_are_passed_over(tmp_path: Path) -> None:
    end = datetime.datetime(2031, 5, 4, tzinfo=datetime.UTC)
    key = KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    file = tmp_path / "both.pem"
    file.write_bytes(key + "Für gateway.example\n".encode() + certificate(end).public_bytes(Encoding.PEM))
    metrics = Metrics()
    show_end(metrics, "nats.tls_cert", str(file))
    assert metrics.certificate_end.collect()[0].samples[0].value == end.timestamp()
