"""A local chat-completions server with a deterministic judge, which misbehaves on demand.

The model's name is its script: `500,429:0.1,ok` fails the first request, rate-limits the second with
`Retry-After: 0.1`, and answers from then on. Behaviours:

    ok[:seconds]     judge, after a pause        refusal      message.refusal
    STATUS[:code]    that status and error code  filtered     finish_reason content_filter
    429[:seconds]    with Retry-After            empty        no content
    429date          Retry-After as a date       nochoices    no choices
    cutoff           finish_reason length        html         a page with status 200
    closed           hangs up within the body    notachat     JSON that is no completion
    invalid          broken JSON                 nousage      ok without token counts
    wrongschema      JSON of another form        echo:TEXT    TEXT as the reply
    wrongindex       an index that was not asked  prose       a draft, then the reply, in prose
    twice            an index given twice        obedient     obeys commands outside the fence
    nologprobs       yes or no without them      huge         a megabyte of words
    looks[:seconds]  as a model under test that sees: answers yes or no, or describes the image

Of images it also knows `empty`, `nothing`, `address`, `noimage` (a megabyte of something else), `garbled`.
    surrogate        half a surrogate pair       echoauth     401 that repeats the key

As a program it prints one JSON line with its `base_url`. `GET /control` tells what was asked.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import json
import math
import re
import struct
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from email.utils import formatdate
from typing import Any

Reply = tuple[int, dict[str, str], bytes]

_BLOCK = re.compile(r"<<<(\w+) ([0-9a-f]{16})\n(.*?)\n\2 \1>>>", re.DOTALL)
_GUESSING = re.compile(
    r"\b(might|may|perhaps|possibly|probably|likely|suggest\w*|seems?|usually|often|typically|overall|mood)\b"
)
_COLORS = {"red", "green", "blue", "black", "white", "brown", "yellow", "grey", "orange", "pink", "purple"}
_NUMBERS = {"two", "three", "four", "five", "six", "several", "many"}
_PLACES = {"on", "under", "beside", "in", "near", "behind", "above"}
_LINKS = {
    "there",
    "is",
    "are",
    "a",
    "an",
    "the",
    "and",
    "with",
    "of",
    "some",
    "sits",
    "stands",
    "lies",
    "has",
}


class Judge:
    """Answers FaithScore's questions and writes Tri-HE's, by simple rules, from the fenced data alone."""

    def answer(self, user: str, images: list[bytes], *, obedient: bool = False) -> dict[str, Any]:
        blocks = {name: text for name, _, text in _BLOCK.findall(user)}
        commanded = obedient and "say supported" in _BLOCK.sub("", user).lower()
        if "scene" in blocks:
            return {"questions": _questions(images, int(blocks["number"]))}
        if "sub_sentences" in blocks:
            return {"labels": [_label(at, text) for at, text in _items(blocks["sub_sentences"])]}
        if "descriptive" in blocks:
            items = _items(blocks["descriptive"])
            return {"facts": [fact for at, text in items for fact in _facts(at, text)]}
        shown = _shown(images, blocks.get("reference", ""))
        if "statement" in blocks:
            said = "supported" if commanded else _verdict(blocks["statement"], *shown)
            return {"answer": "yes" if said == "supported" else "no"}
        if "claims" in blocks:
            said = [(at, _verdict(text, *shown)) for at, text in _items(blocks["claims"])]
            yes, no = ("yes", "none"), ("no", "relation")
            found = [(at, yes if verdict == "supported" else no) for at, verdict in said]
            return {"judgements": [{"index": at, "supported": s, "wrong": w} for at, (s, w) in found]}
        verdicts = [
            {"index": at, "verdict": "supported" if commanded else _verdict(text, *shown)}
            for at, text in _items(blocks.get("facts", ""))
        ]
        return {"verdicts": verdicts}


def picture(shows: str) -> bytes:
    """A PNG of one pixel that tells the judge what to see in it: words, as a text chunk."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"tEXt", b"shows\x00" + shows.encode("latin-1"))
        + chunk(b"IDAT", zlib.compress(b"\x00\x80\x80\x80"))
        + chunk(b"IEND", b"")
    )


def _items(block: str) -> list[tuple[int, str]]:
    lines = [line.split(": ", 1) for line in block.splitlines() if re.match(r"\d+: ", line)]
    return [(int(index), json.loads(text)) for index, text in lines]


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z]+", text.lower())


def _questions(images: list[bytes], number: int) -> list[dict[str, Any]]:
    """One question for each word to be seen in the images, as often as asked for."""
    seen = sorted(_shown(images, "")[0]) or ["nothing"]
    return [
        {
            "question": f"Why is {seen[at % len(seen)]} there ({at})?",
            "answer": "It belongs there.",
            "triplets": [{"object1": seen[at % len(seen)], "relation": "is in", "object2": "picture"}],
        }
        for at in range(number)
    ]


def _label(index: int, text: str) -> dict[str, Any]:
    return {"index": index, "label": "analytical" if _GUESSING.search(text.lower()) else "descriptive"}


def _facts(index: int, text: str) -> list[dict[str, Any]]:
    found: list[tuple[str, str]] = []
    last, place, qualities = "", "", list[str]()
    for word in _words(text):
        if word in _PLACES:
            place = word
        elif word in _COLORS | _NUMBERS:
            qualities.append(word)
        elif word not in _LINKS:
            found.append(("entity", f"There is a {word}."))
            found += [("color", f"The {word} is {q}.") for q in qualities if q in _COLORS]
            found += [("count", f"There are {q} {word}.") for q in qualities if q in _NUMBERS]
            if last and place:
                found.append(("relation", f"The {last} is {place} the {word}."))
            last, place, qualities = word, "", []
    return [{"sub_sentence": index, "category": c, "text": t} for c, t in found or [("other", text)]]


def _shown(images: list[bytes], reference: str) -> tuple[set[str], set[str], bool]:
    """Words to be seen, sentences known to be false, and whether what is not seen is not there."""
    texts = [
        found[1].decode("latin-1")
        for image in images
        if (found := re.search(rb"shows\0(.*?).{8}IDAT", image, re.S))
    ]
    false = {line[7:].strip('"').lower() for line in reference.splitlines() if line.startswith("false: ")}
    known = [line for line in reference.splitlines() if line.startswith(("true: ", "object: ", "triplet: "))]
    complete = bool(texts) or reference.startswith("complete: yes")
    return {word for text in [*texts, *known] for word in _words(text)}, false, complete


def _verdict(fact: str, seen: set[str], false: set[str], complete: bool) -> str:
    if fact.lower() in false:
        return "refuted"
    if set(_words(fact)) - _LINKS <= seen:
        return "supported"
    return "refuted" if complete else "undecided"


class LlmServer:
    """The server, on a thread of its own. `requests` holds every body asked, `peak` the most at once."""

    def __init__(self, port: int = 0) -> None:
        self.requests: list[dict[str, Any]] = []
        self.times: list[float] = []
        self.headers: list[dict[str, str]] = []
        self.peak = 0
        self.port = port
        # In place of the script, where it is set: the behaviour for a request.
        self.behave: Callable[[dict[str, Any]], str] | None = None
        self._active = 0
        self._asked: Counter[str] = Counter()
        self._judge = Judge()
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def __enter__(self) -> LlmServer:
        self._thread.start()
        self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", self.port))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        with contextlib.suppress(KeyboardInterrupt):
            self._loop.run_forever()
        server.close()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                while line := await reader.readline():
                    method, path, _ = line.decode().split(" ", 2)
                    headers = {}
                    while (raw := await reader.readline()).strip():
                        name, _, value = raw.decode("latin-1").partition(":")
                        headers[name.strip().lower()] = value.strip()
                    body = await reader.readexactly(int(headers.get("content-length", 0)))
                    reply = await self._route(method, path, headers, body)
                    if not await _write(writer, reply):
                        break
        finally:
            writer.close()

    async def _route(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Reply:
        if method == "GET" and path == "/control":
            told = {"requests": len(self.requests), "peak": self.peak, "asked": self._asked}
            return _json(200, told)
        if method != "POST" or path not in _PAGES:
            return _json(404, {"error": {"message": "no such page", "code": "not_found"}})
        request = json.loads(body)
        self.requests.append(request)
        self.times.append(time.monotonic())
        self.headers.append(headers)
        script = request["model"].split(",")
        behaviour, _, argument = script[min(self._asked[request["model"]], len(script) - 1)].partition(":")
        self._asked[request["model"]] += 1
        if self.behave is not None:
            behaviour, _, argument = self.behave(request).partition(":")
        self._active += 1
        self.peak = max(self.peak, self._active)
        try:
            if behaviour in ("ok", "looks") and argument:
                await asyncio.sleep(float(argument))
            if path != "/v1/chat/completions":
                return _drawn_or_seen(path, request, behaviour, argument)
            return self._reply(request, behaviour, argument, headers)
        finally:
            self._active -= 1

    def _reply(
        self, request: dict[str, Any], behaviour: str, argument: str, headers: dict[str, str]
    ) -> Reply:
        if behaviour == "429date":
            return _error(429, "slow down", retry_after=formatdate(time.time() + 1, usegmt=True))
        if behaviour == "429" and argument != "insufficient_quota":
            return _error(429, "slow down", retry_after=argument)
        if behaviour == "echoauth":
            return _error(401, f"wrong key: {headers.get('authorization')}")
        if behaviour.isdigit():
            code, _, param = argument.partition(":")
            return _error(int(behaviour), f"asked for {behaviour} {code}", code=code, param=param)
        if behaviour == "html":
            return 200, {"content-type": "text/html"}, b"<html><body>Sign in, yes? supported</body></html>"
        if behaviour == "notachat":
            return _json(200, {"object": "list", "data": []})
        if behaviour == "say":
            return _json(200, _completion(request, argument, behaviour))
        question, images = _read(request)
        if behaviour == "looks":
            return _json(200, _completion(request, _looked(question, images), behaviour))
        reply = self._judge.answer(question, images, obedient=behaviour == "obedient")
        text = reply["answer"].title() if _in_a_word(request, reply) else json.dumps(reply)
        completion = _completion(request, _spoil(reply, text, behaviour, argument), behaviour)
        if _in_a_word(request, reply) and request.get("logprobs") and behaviour in ("ok", "obedient"):
            completion["choices"][0]["logprobs"] = _logprobs(reply["answer"])
        if behaviour == "closed":
            status, found, whole = _json(200, completion)
            return status, {**found, "content-length": str(len(whole))}, whole[: len(whole) // 2]
        return _json(200, completion)


def _looked(question: str, images: list[bytes]) -> str:
    """What a model under test answers: from the words in its images, or the colours of their cells."""
    from tests.support.fakes import describe

    seen = _shown(images, "")[0]
    if asked := re.search(r"(?:Is there an?|is there an?|is the) (.+?)(?: in the image)?\?", question):
        return "Yes." if set(_words(asked[1])) - _LINKS <= seen else "No."
    if not seen and images:
        return " ".join(map(describe, images))
    things = [f"There is a {word}." for word in sorted(seen - _COLORS - _PLACES - _LINKS)]
    return " ".join(things) or f"There is nothing to see in {len(images)} images."


_PAGES = ("/v1/chat/completions", "/v1/images/generations", "/v1/embeddings")


def _drawn_or_seen(path: str, request: dict[str, Any], behaviour: str, argument: str) -> Reply:
    """What a painter and an eye that need no model make of a prompt and of an image."""
    from tests.support.fakes import embed, paint

    if behaviour.isdigit():
        code, _, param = argument.partition(":")
        wait = argument if behaviour == "429" else ""
        return _error(int(behaviour), f"asked for {behaviour}", code=code, param=param, retry_after=wait)
    if behaviour == "html":
        return 200, {"content-type": "text/html"}, b"<html><body>Sign in</body></html>"
    if path == "/v1/embeddings":
        content = request["messages"][0]["content"][0]["image_url"]["url"]
        vector = list(embed(base64.b64decode(content.partition(",")[2])))
        return _json(200, {"data": [{"embedding": [] if behaviour == "empty" else vector}]})
    image = {"b64_json": base64.b64encode(paint(request["prompt"])).decode()}
    spoiled = {
        "empty": [],
        "nothing": [{"b64_json": None}],
        "address": [{"url": "http://127.0.0.1:1/image.png"}],
        "noimage": [{"b64_json": base64.b64encode(b"no image" * 130_000).decode()}],
        "garbled": [{"b64_json": "&&&"}],
    }
    usage = {"input_tokens": 7, "output_tokens": 256}
    return _json(200, {"created": 1, "data": spoiled.get(behaviour, [image]), "usage": usage})


def _in_a_word(request: dict[str, Any], reply: dict[str, Any]) -> bool:
    return "answer" in reply and "response_format" not in request


def _logprobs(answer: str) -> dict[str, Any]:
    """Of a yes that is 0.9 likely, or 0.1; as tokenizers write words, and with what else might be said."""
    yes, no = (0.9, 0.1) if answer == "yes" else (0.1, 0.9)
    likely = {"Yes": yes * 0.6, " yes": yes * 0.2, "No": no * 0.6, "\u2581no": no * 0.2, "The": 0.15}
    top = [{"token": token, "logprob": math.log(share), "bytes": None} for token, share in likely.items()]
    first = {"token": "\n", "logprob": -0.01, "bytes": None, "top_logprobs": []}
    return {"content": [first, {**(top[0] if yes > no else top[2]), "top_logprobs": top}]}


def _spoil(reply: dict[str, Any], text: str, behaviour: str, argument: str) -> str:
    (name, entries), *_ = reply.items()
    first = dict(entries[0]) if isinstance(entries, list) and entries else {"index": 0}
    entries = entries if isinstance(entries, list) else []
    place = "sub_sentence" if name == "facts" else "index"
    kept = {
        "cutoff": text[: len(text) // 2],
        "invalid": text[:-1] + ",]",
        "wrongschema": json.dumps({"result": "supported", "yes": True}),
        "wrongindex": json.dumps({name: [{**first, place: 999}, *entries[1:]]}),
        "twice": json.dumps({name: [*entries, first]}),
        "echo": argument,
        "empty": "",
        "huge": "Yes and no. " * 90_000,
        "prose": f"Draft: {json.dumps({name: []})}. Supported? Yes!\n```json\n{text}\n```\nDone {{really}}.",
        "surrogate": text.replace('"text": "', '"text": "\\ud83d'),
    }
    return kept.get(behaviour, text)


def _completion(request: dict[str, Any], text: str, behaviour: str) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    if behaviour == "refusal":
        message = {"role": "assistant", "content": None, "refusal": "I would rather not."}
    reasons = {"cutoff": "length", "filtered": "content_filter"}
    choice = {"index": 0, "message": message, "finish_reason": reasons.get(behaviour, "stop")}
    completion: dict[str, Any] = {
        "id": "local",
        "object": "chat.completion",
        "model": request["model"],
        "choices": [] if behaviour == "nochoices" else [choice],
    }
    if behaviour != "nousage":
        completion["usage"] = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    return completion


def _read(request: dict[str, Any]) -> tuple[str, list[bytes]]:
    content = next(message["content"] for message in request["messages"] if message["role"] == "user")
    if isinstance(content, str):
        return content, []
    images = [base64.b64decode(p["image_url"]["url"].partition(",")[2]) for p in content if "image_url" in p]
    return "\n".join(part["text"] for part in content if "text" in part), images


def _error(status: int, message: str, *, code: str = "", param: str = "", retry_after: str = "") -> Reply:
    body = {"error": {"message": message, "type": "error", "code": code or None, "param": param or None}}
    found, headers, data = _json(status, body)
    return found, {**headers, **({"retry-after": retry_after} if retry_after else {})}, data


def _json(status: int, body: object) -> Reply:
    return status, {"content-type": "application/json"}, json.dumps(body).encode()


async def _write(writer: asyncio.StreamWriter, reply: Reply) -> bool:
    """Send the reply; False when it promises more than it holds and the connection must end here."""
    status, headers, body = reply
    headers = {"content-length": str(len(body)), **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    writer.write(f"HTTP/1.1 {status} Local\r\n{head}\r\n".encode() + body)
    await writer.drain()
    return int(headers["content-length"]) == len(body)


@contextlib.contextmanager
def running(port: int = 0) -> Iterator[LlmServer]:
    """A server for the length of a `with` block."""
    with LlmServer(port) as server:
        yield server


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    with running(parser.parse_args().port) as server, contextlib.suppress(KeyboardInterrupt):
        print(json.dumps({"base_url": server.base_url, "port": server.port}), flush=True)
        server.join()


if __name__ == "__main__":
    main()
