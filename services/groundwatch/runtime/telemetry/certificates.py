"""When certificates end, so that somebody renews them before they do.

What counts is what a process has loaded: a file that was exchanged since is used by the next process only.
"""

from pathlib import Path

from groundwatch.runtime.telemetry.metrics import Metrics


def show_end(metrics: Metrics, setting: str, path: str) -> None:
    """Show when the first certificate of the file ends; nothing where it holds none."""
    # Imported only when wanted: most processes show none.
    from cryptography.x509 import load_pem_x509_certificates

    try:
        certificates = load_pem_x509_certificates(Path(path).read_bytes())
    except ValueError:
        return
    end = min(certificate.not_valid_after_utc for certificate in certificates)
    metrics.certificate_end.labels(setting).set(end.timestamp())
