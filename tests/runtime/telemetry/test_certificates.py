"""When certificates end, read without a library for certificates."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from groundwatch.runtime.telemetry.certificates import end_of, show_end
from groundwatch.runtime.telemetry.metrics import Metrics

KEY = ec.generate_private_key(ec.SECP256R1())
YEARS = st.datetimes(datetime.datetime(1951, 1, 1), datetime.datetime(9998, 1, 1))


def certificate(end: datetime.datetime, name: str = "a") -> x509.Certificate:
    who = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
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


@given(end=YEARS, name=st.text("ab", min_size=1, max_size=60))
def test_the_end_is_what_the_certificate_says(end: datetime.datetime, name: str) -> None:
    made = certificate(end, name)
    assert end_of(made.public_bytes(Encoding.DER)) == made.not_valid_after_utc


@given(data=st.binary(max_size=80))
def test_what_is_no_certificate_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        end_of(data)


@given(cut=st.integers(0, 399))
def test_half_a_certificate_is_refused(cut: int) -> None:
    whole = certificate(datetime.datetime(2030, 1, 1), "a" * 60).public_bytes(Encoding.DER)
    with pytest.raises(ValueError):
        end_of(whole[:cut])


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
