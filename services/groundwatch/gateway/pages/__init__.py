"""The pages that people look at: self-contained files, shipped with the package."""

import base64
import hashlib
import re
from importlib import resources


class Page:
    """The live page, with a policy that lets its own script run and no other."""

    def __init__(self) -> None:
        text = resources.files(__package__ or "").joinpath("index.html").read_text("utf-8")
        self.html = text.encode()
        policy = [
            "default-src 'none'",
            "connect-src 'self'",
            "img-src 'self' data:",
            f"script-src {_hashes(text, 'script')}",
            f"style-src {_hashes(text, 'style')}",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        ]
        self.headers = {
            "Content-Security-Policy": "; ".join(policy),
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-cache",
        }


def _hashes(text: str, tag: str) -> str:
    found = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
    digests = (base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in found)
    return " ".join(f"'sha256-{digest}'" for digest in digests) or "'none'"
