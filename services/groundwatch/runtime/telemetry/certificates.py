"""When certificates end, so that somebody renews them before they do.

What counts is what a process has loaded: a file that was exchanged since is used by the next process only.
"""

import re
import ssl
from datetime import UTC, datetime
from pathlib import Path

from groundwatch.runtime.telemetry.metrics import Metrics

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
SEQUENCE, UTC_TIME, VERSION = 0x30, 0x17, 0xA0


def show_end(metrics: Metrics, setting: str, path: str) -> None:
    """Show when the first certificate of the file ends; nothing where it holds none."""
    ends = [end_of(ssl.PEM_cert_to_DER_cert(one)) for one in _PEM.findall(Path(path).read_text("latin-1"))]
    if ends:
        metrics.certificate_end.labels(setting).set(min(ends).timestamp())


def end_of(der: bytes) -> datetime:
    """`notAfter` of a certificate (RFC 5280, section 4.1). Raises `ValueError` where it is none."""
    certificate, _ = _value(der, 0, SEQUENCE)
    fields, _ = _value(certificate, 0, SEQUENCE)
    at = 0
    if fields[:1] == bytes([VERSION]):
        _, at = _value(fields, at)
    for _ in ("serial number", "signature", "issuer"):
        _, at = _value(fields, at)
    validity, _ = _value(fields, at, SEQUENCE)
    _, at = _value(validity, 0)
    told, _ = _value(validity, at)
    text = told.decode("ascii")
    if validity[at] == UTC_TIME:
        # Years of two digits are from 1950 to 2049.
        text = f"{19 if int(text[:2]) >= 50 else 20}{text}"
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _value(der: bytes, at: int, tag: int | None = None) -> tuple[bytes, int]:
    """The value of the DER element at a place, and where the next one begins."""
    if at + 2 > len(der) or (tag is not None and der[at] != tag):
        raise ValueError("not a certificate")
    size, begins = der[at + 1], at + 2
    if size & 0x80:
        begins += size & 0x7F
        size = int.from_bytes(der[at + 2 : begins], "big")
    if begins + size > len(der):
        raise ValueError("not a certificate")
    return der[begins : begins + size], begins + size
