"""Hostile requests over HTTP: each must be answered, in time, with what is promised."""

from __future__ import annotations

import asyncio
import json
import random
import time
from typing import Any
from urllib.parse import quote

import httpx
from tests.faults.campaign.hostile import floods, halves, pictures, texts
from tests.faults.campaign.hostile.findings import Findings

ANSWER_SECONDS = 60.0
SLOW_SECONDS = 20.0
PATHS = (
    "/",
    "/v1/responses",
    "/v1/questions",
    "/v1/images",
    "/v1/scores",
    "/v1/report",
    "/v1/alarms",
    "/healthz",
    "/readyz",
    "/metrics",
    "/v1/",
    "//",
    "/v1/responses/",
    "/..%2f..%2fetc/passwd",
)
KINDS = (
    "application/json",
    "application/json; charset=utf-16",
    "application/x-ndjson",
    "application/jsonl",
    "text/plain",
    "multipart/form-data",
    "multipart/form-data; boundary=",
    'multipart/form-data; boundary="' + "b" * 300 + '"',
    "multipart/form-data; boundary=b; charset=undefined",
    "application/x-www-form-urlencoded",
    "image/png",
    "application/octet-stream",
    ";;;",
    "",
)
PLAIN = ("/healthz", "/metrics", "/")


class Doors:
    """Asks over HTTP, and holds every answer against what is promised."""

    def __init__(self, port: int, findings: Findings, seed: int) -> None:
        self._findings = findings
        self._random = random.Random(f"http {seed}")
        self._number = 0
        self._http = httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}",
            timeout=httpx.Timeout(ANSWER_SECONDS, connect=10),
            limits=httpx.Limits(max_connections=16),
            trust_env=False,
        )
        self._asks = {
            self._body: 30,
            self._lines: 8,
            self._question: 5,
            self._odd_type: 8,
            self._look_up: 10,
            self._scores: 3,
            self._run: 8,
            self._compare: 8,
            self._image: 14,
            self._form: 8,
            self._any: 6,
            self._headers: 5,
            self._stranger: 4,
            self._logged: 25,
            self._flood: 1,
        }

    async def close(self) -> None:
        """Close every connection."""
        await self._http.aclose()

    async def ask(self) -> None:
        """One hostile request of a kind chosen by the seed."""
        self._number += 1
        chosen = self._random.choices(list(self._asks), list(self._asks.values()))[0]
        await chosen()

    async def _send(
        self,
        what: str,
        method: str,
        path: str,
        *,
        content: bytes = b"",
        headers: dict[str, str] | None = None,
        refuse: bool = False,
        otlp_status: bool = False,
    ) -> None:
        began = time.monotonic()
        self._findings.count(f"http: {what}")
        given = f"{method} {path[:100]} {headers or ''} {content[:80]!r} ({len(content)} bytes)"
        try:
            reply = await self._http.request(method, path, content=content, headers=headers)
        except httpx.InvalidURL:
            return
        except httpx.TimeoutException as error:
            self._findings.add("unanswered", f"{what}: {type(error).__name__} of {given}")
            return
        except httpx.TransportError as error:
            # Whoever says too much may be cut off, but not without an answer that was possible.
            if len(content) < 1_000_000:
                self._findings.add("unanswered", f"{what}: {error!r} to {given}")
            return
        self._findings.took(f"http: {what}", time.monotonic() - began)
        if time.monotonic() - began > SLOW_SECONDS:
            self._findings.add("slow", f"{what}: {time.monotonic() - began:.0f} s for {given}")
        if refuse and reply.status_code < 400:
            self._findings.add("taken", f"{what}: {reply.status_code} {reply.text[:200]} to {given}")
        self._check(what, given, reply, otlp_status=otlp_status)

    def _check(self, what: str, given: str, reply: httpx.Response, *, otlp_status: bool = False) -> None:
        self._findings.status(reply.status_code)
        if reply.status_code >= 500 and reply.status_code != 503:
            self._findings.add("answers of 500", f"{what}: {reply.status_code} {reply.text[:200]} to {given}")
        if reply.status_code == 503 and "retry-after" not in reply.headers:
            self._findings.add("not as promised", f"{what}: 503 without Retry-After to {given}")
        if reply.status_code < 400 or reply.request.method == "HEAD":
            return
        kind = reply.headers.get("content-type", "")
        if kind == "application/x-protobuf":
            return
        if kind.startswith("text/html") and "form" in reply.request.headers.get("content-type", ""):
            # Somebody who sends a form reads a page.
            return
        try:
            told = json.loads(reply.content)
            reason = told["message" if otlp_status and "message" in told else "error"]
            if not isinstance(reason, str) or "\n" in reason:
                raise ValueError
        except (ValueError, KeyError, TypeError):
            self._findings.add(
                "not as promised", f"{what}: {reply.status_code} {reply.content[:200]!r} to {given}"
            )

    async def _body(self) -> None:
        content = texts.body(self._random, self._number)
        await self._send(
            "response", "POST", "/v1/responses", content=content, headers={"content-type": "application/json"}
        )

    async def _lines(self) -> None:
        content = texts.lines(self._random, self._number)
        kind = {"content-type": "application/x-ndjson"}
        await self._send("lines", "POST", "/v1/responses", content=content, headers=kind)

    async def _question(self) -> None:
        content = texts.body(self._random, self._number).replace(b'"answer"', b'"prompt"')
        kind = {"content-type": "application/json"}
        await self._send("question", "POST", "/v1/questions", content=content, headers=kind)

    async def _odd_type(self) -> None:
        chance = self._random
        content = chance.choice((texts.body, texts.lines))(chance, self._number)
        headers = {"content-type": chance.choice(KINDS)}
        if chance.random() < 0.3:
            headers["content-encoding"] = chance.choice(("gzip", "br", "identity", "x" * 300))
        path = chance.choice(("/v1/responses", "/v1/questions", "/v1/images"))
        await self._send("odd type", "POST", path, content=content, headers=headers)

    async def _look_up(self) -> None:
        chance = self._random
        where = chance.choice(("/v1/responses/", "/v1/images/", "/v1/questions/", "/"))
        path = where + self._quoted() + (f"?tenant={self._quoted()}" if chance.random() < 0.5 else "")
        await self._send("look up", "GET", path)

    def _quoted(self) -> str:
        return quote(texts.name(self._random).encode("utf-8", "surrogatepass"), safe="./")

    async def _run(self) -> None:
        chance = self._random
        if chance.random() < 0.3:
            action = chance.choice(("", "/pause", "/cancel", "/x"))
            await self._send("run", "POST" if action else "GET", f"/v1/runs/{self._quoted()}{action}")
            return
        odd = texts.name(chance).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        wanted: dict[str, Any] = {"run": f"run-{self._number}"}
        for _ in range(chance.randint(1, 3)):
            field = chance.choice(("run", "source", "stage", "judge", "since", "sample", "ids", "protocols"))
            wanted[field] = chance.choice((odd, [odd], -1, 1e300, 2**63, None, True))
        content = json.dumps(wanted).encode()
        kind = {"content-type": "application/json"}
        await self._send("run", "POST", "/v1/runs", content=content, headers=kind)

    async def _compare(self) -> None:
        query = "&".join(f"{name}={self._quoted()}" for name in ("second", "model", "tenant", "protocol"))
        await self._send("compare", "GET", f"/v1/compare?first=live&{query}")

    async def _scores(self) -> None:
        chance = self._random
        since = chance.choice(
            ("-1", "1e3", "9" * 30, "\u0663", "", "0x1", "999999999999999999", self._quoted())
        )
        path = f"/v1/scores?since={quote(since)}&model={self._quoted()}&tenant={self._quoted()}"
        self._findings.count("http: scores")
        try:
            async with self._http.stream("GET", path) as reply:
                self._findings.status(reply.status_code)
                if reply.status_code == 200:
                    async with asyncio.timeout(20):
                        async for _ in reply.aiter_bytes():
                            return
                await reply.aread()
                self._check("scores", path[:100], reply)
        except TimeoutError:
            self._findings.add("unanswered", f"scores: {path[:100]}")
        except httpx.TransportError as error:
            self._findings.add("unanswered", f"scores: {error!r} to {path[:100]}")

    async def _image(self) -> None:
        kind, data, must = pictures.picture(self._random)
        if self._random.random() < 0.02:
            kind, data, must = "too large", bytes(11 * 1024 * 1024), "refuse"
        headers = {
            "content-type": self._random.choice(("image/png", "image/jpeg", "application/octet-stream"))
        }
        await self._send(
            f"image, {kind}", "POST", "/v1/images", content=data, headers=headers, refuse=must == "refuse"
        )

    async def _form(self) -> None:
        chance = self._random
        boundary = chance.choice(("b", "----x", "b" * 70, "b\u00e9".encode("latin-1").decode("latin-1")))
        parts = []
        for _ in range(chance.choice((0, 1, 1, 1, 2, 9, 200))):
            name = texts.name(chance).replace("\r", "").replace("\n", "")
            head = f'Content-Disposition: form-data; name="{name}"; filename="{texts.name(chance)}"'
            if chance.random() < 0.3:
                head = chance.choice(
                    ("", "Content-Disposition", "Content-Disposition: " + "x" * 20_000, head * 3)
                )
            kind = chance.choice(
                ("", "\r\nContent-Type: image/png", "\r\nContent-Type: x; charset=undefined")
            )
            data = pictures.good(chance) if chance.random() < 0.5 else chance.randbytes(200)
            parts.append((head + kind).encode("utf-8", "replace") + b"\r\n\r\n" + data)
        mark = b"--" + boundary.encode()
        content = b"".join(mark + b"\r\n" + part + b"\r\n" for part in parts) + mark + b"--\r\n"
        kind = f"multipart/form-data; boundary={boundary}"
        headers = {
            "content-type": kind
            + chance.choice(("", "; charset=undefined", "; charset=utf-7", "; boundary=c"))
        }
        await self._send(
            "form",
            "POST",
            "/v1/images",
            content=texts.spoiled(chance, content),
            headers={name: value.encode("ascii", "replace").decode() for name, value in headers.items()},
        )

    async def _any(self) -> None:
        chance = self._random
        method = chance.choice(
            ("GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "X" * 30, "POST")
        )
        path = chance.choice(PATHS)
        if (method, path) == ("GET", "/v1/scores"):
            return
        content = chance.randbytes(chance.randrange(3_000)) if chance.random() < 0.3 else b""
        await self._send("any", method, path, content=content)

    async def _flood(self) -> None:
        name, flood = await asyncio.to_thread(floods.one_of, self._random, False)
        await self._send(
            f"flood, {name}",
            "POST",
            flood.path,
            content=flood.content,
            headers=flood.headers,
            otlp_status=flood.path in ("/v1/traces", "/v1/logs"),
        )

    async def _headers(self) -> None:
        chance = self._random
        odd = {
            "authorization": chance.choice(
                ("Bearer", "Bearer " + "x" * 5_000, "Basic ::", "Basic %%%", "Digest x")
            ),
            "cookie": "a=" + "b" * 5_000,
            "x-forwarded-for": "1.2.3.4" * 50,
            "last-event-id": chance.choice(("-1", "x" * 500)),
            "accept-encoding": "gzip;q=x",
            "range": "bytes=0-18446744073709551615",
            "if-none-match": "*",
            "transfer-encoding": "gzip, chunked",
        }
        chosen = {key: odd[key] for key in chance.sample(list(odd), chance.randint(1, 3))}
        path = chance.choice(PATHS)
        if path != "/v1/scores" and "transfer-encoding" not in chosen:
            await self._send("headers", "GET", path, headers=chosen)

    async def _logged(self) -> None:
        """Halves of logged calls, of few calls, so that they meet: some whole, some that nobody can read."""
        chance = self._random
        if chance.random() < 0.4:
            headers, content = halves.event(chance)
            await self._send("logged event", "POST", "/v1/cloudevents", content=content, headers=headers)
            return
        path, headers, content = halves.request(chance)
        await self._send("logged half", "POST", path, content=content, headers=headers, otlp_status=True)

    async def _stranger(self) -> None:
        """A page of somebody else: under a name that was bound to this address, or from another site."""
        chance = self._random
        data = json.dumps({"id": f"s{self._number}", "model": "m", "answer": "x"}).encode()
        kind = {"content-type": "application/json"}
        strange: tuple[tuple[str, str, bytes, dict[str, str]], ...] = (
            ("GET", "/v1/report", b"", {"host": "evil.example"}),
            ("GET", f"/v1/responses/h{self._number}", b"", {"host": "evil.example:8787"}),
            ("POST", "/v1/responses", data, {**kind, "host": "evil.example"}),
            ("POST", "/v1/responses", data, {**kind, "origin": "http://evil.example"}),
            ("POST", "/v1/responses", data, {**kind, "sec-fetch-site": "cross-site"}),
            ("POST", "/v1/images", pictures.good(chance), {"content-type": "image/png", "origin": "null"}),
        )
        method, path, content, headers = chance.choice(strange)
        await self._send("stranger", method, path, content=content, headers=headers, refuse=True)
