"""The client for JavaScript, run by node: against bad gateways and a real one, with the SDKs it records."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.client.openai_server import ANSWER, openai_server, words
from tests.conversations.test_choices import STREAM, WHOLE
from tests.conversations.test_turns import ANSWER as COMPLETION
from tests.conversations.test_turns import MARKS, TURNS

ROOT = Path(__file__).parents[2]
MODULE = ROOT / "clients/js/index.js"
SCRIPTS = Path(__file__).parent / "js"
PACKAGES = ["openai@6", "ai@6", "@ai-sdk/openai@3", "typescript@6"]
NODE = shutil.which("node")


def _version() -> int:
    if NODE is None:
        return 0
    told = subprocess.run([NODE, "--version"], capture_output=True, text=True, check=True).stdout
    return int(told.removeprefix("v").split(".")[0])


pytestmark = pytest.mark.skipif(_version() < 20, reason="node 20 or later is not on this machine")


async def run(script: Path, *arguments: str, **environment: str) -> Any:
    assert NODE is not None
    process = await asyncio.create_subprocess_exec(
        NODE,
        str(script),
        *arguments,
        env=os.environ | environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, error = await process.communicate()
    assert process.returncode == 0, error.decode()
    return json.loads(out)


async def record(url: str, number: int, timeout: str = "60000", *options: str, **environment: str) -> Any:
    return await run(
        SCRIPTS / "recording.mjs", MODULE.as_uri(), url, str(number), timeout, *options, **environment
    )


async def test_a_gateway_has_what_was_recorded_with_its_images(gateway: Any, pictures: Any) -> None:
    png = pictures.encoded("PNG")
    said = await record(gateway.service.url, 3, STRANGE="1", IMAGE=base64.b64encode(png).decode())
    assert said["sent"] and said["lost"] == {"unreadable": 5}
    events = {event.id: event for event in await gateway.events()}
    assert events.keys() == set(said["ids"])
    for number, name in enumerate(said["ids"]):
        event = events[name]
        assert (event.prompt, event.answer) == ("What?", f"{number} � 犬")
        assert event.tags["n"] == f"{number}"
        assert list(event.images) == [hashlib.sha256(png).hexdigest()] * 3


async def test_where_nothing_of_node_is_there(gateway: Any, pictures: Any) -> None:
    image = base64.b64encode(pictures.encoded("PNG")).decode()
    said = await record(gateway.service.url, 2, EDGE="1", IMAGE=image)
    assert said["sent"] and said["lost"] == {}
    assert {len(event.images) for event in await gateway.events()} == {3}


@pytest.mark.parametrize("script", [("away:1.5",), ("503:1", "503:1", "ok"), ("500", "ok"), ("close", "ok")])
async def test_close_uses_its_time(script: tuple[str, ...], bad_gateway: Any) -> None:
    gateway = bad_gateway(*script)
    said = await record(gateway.url, 250)
    assert set(gateway.ids) == set(said["ids"])
    assert said["sent"] and said["lost"] == {} and gateway.losses == []


async def test_a_process_that_ends_by_itself_sends_what_waits(bad_gateway: Any) -> None:
    gateway = bad_gateway("ok")
    said = await record(gateway.url, 10, "exit")
    assert set(gateway.ids) == set(said["ids"])


@pytest.mark.parametrize("script", [("hang",), ("503",), ("junk",), ("taken",)])
async def test_what_is_lost_is_counted_and_told(script: tuple[str, ...], bad_gateway: Any) -> None:
    gateway = bad_gateway(*script)
    said = await record(gateway.url, 250, "1500")
    assert not said["sent"]
    (sender,) = {report["sender"] for report in gateway.losses}
    newest = gateway.losses[-1]
    # What was not answered and is there is not lost; and nothing is neither there nor told.
    named = {one["id"] for one in newest["unconfirmed"]}
    missing = set(said["ids"]) - set(gateway.ids)
    assert sender == "shop" and sum(said["lost"].values()) == len(missing)
    assert len(missing - named) == sum(newest["lost"].values())


async def test_what_waits_is_bounded(bad_gateway: Any) -> None:
    gateway = bad_gateway("ok")
    said = await record(gateway.url, 100, "60000", json.dumps({"maxBytes": 10_000}))
    assert 0 < len(gateway.ids) < 100
    assert said["lost"] == {"full": 100 - len(gateway.ids)}


async def test_no_address_is_told() -> None:
    with pytest.raises(AssertionError, match=r"write http://HOST:PORT or https://HOST"):
        await record("gateway:8787", 1)


SOURCE = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
ASKED = {
    "model": "m",
    "messages": [
        {"role": "user", "content": [{"type": "image", "source": SOURCE}, {"type": "text", "text": "Old?"}]},
        {
            "role": "assistant",
            "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "An answer."}],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "content": [{"type": "image", "source": SOURCE}]}],
        },
        {"role": "user", "content": [{"type": "text", "text": "What?"}, {"type": "document", "source": {}}]},
    ],
}
SAID = {"type": "message", "id": "msg_1234567890123456789", "model": "claude", "stop_reason": "end_turn"}


def stream(*events: dict[str, Any]) -> str:
    return "".join(
        f"event: {event.get('type', 'x')}\r\ndata: {json.dumps(event)}\r\n\r\n" for event in events
    )


async def test_calls_are_read_as_they_are_sent() -> None:
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "A dog"}}
    thought = {"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "hm"}}
    begun = {"type": "message_start", "message": SAID | {"stop_reason": None, "content": []}}
    ended = {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}}
    content = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "A dog."}]
    url = {"type": "image_url", "image_url": {"url": "https://h/dog.png"}}
    chat = {"model": "m", "messages": [{"role": "user", "content": [url, {"type": "video_url"}]}]}
    choice = {"index": 0, "message": {"content": "Yes."}, "finish_reason": "length"}
    asked = {"model": "m", "input": "Only text?"}
    output = [{"type": "reasoning"}, {"type": "message", "content": [{"type": "output_text", "text": "No."}]}]
    cases = [
        ("/v1/messages", ASKED, json.dumps(SAID | {"content": content}), True),
        ("/v1/messages", ASKED, stream(begun, thought, delta, delta, ended), True),
        ("/v1/messages", ASKED, stream(begun, delta) + 'data: {"type": "cont', False),
        ("/v1/chat/completions", chat, json.dumps({"id": "1", "model": "n", "choices": [choice]}), True),
        (
            "/v1/responses",
            asked,
            json.dumps({"object": "response", "status": "completed", "output": output}),
            True,
        ),
        ("/v1/embeddings", asked, "{}", True),
        ("/v1/responses", asked, '{"object": "response", "status": "failed", "error": {}}', True),
        ("/v1/responses", asked, "<html>", True),
        ("/v1/responses", asked, '{"a": 1}', True),
    ]
    module = (MODULE.parent / "exchanges.js").as_uri()
    *read, none, failed, page, odd = await run(SCRIPTS / "exchange.mjs", module, json.dumps(cases))
    image = "data:image/png;base64,AAAA"
    claude = {"id": SAID["id"], "model": "claude", "prompt": "What?", "images": [image, image]}
    claude |= {"leftOut": ["document"], "earlier_images": 2}
    claude |= {"earlier": "user: Old?\nassistant: An answer."}
    video = {"images": ["https://h/dog.png"], "leftOut": ["video"]}
    assert read == [
        claude | {"answer": "A dog.", "tags": {}},
        claude | {"answer": "A dogA dog", "tags": {"finish_reason": "max_tokens"}},
        claude | {"answer": "A dog", "tags": {"finish_reason": "incomplete"}},
        {"model": "n", "prompt": "", "answer": "Yes.", "tags": {"finish_reason": "length"}} | video,
        {"model": "m", "prompt": "Only text?", "answer": "No.", "images": [], "leftOut": [], "tags": {}},
    ]
    assert (none, failed, page, odd) == ("no call", None, None, "TypeError")


async def test_images_belong_to_turns_as_they_do_for_every_reader() -> None:
    cases = [
        ("/v1/chat/completions", {"model": "m", "messages": messages}, json.dumps(COMPLETION), True)
        for messages, *_ in TURNS.values()
    ]
    module = (MODULE.parent / "exchanges.js").as_uri()
    read = await run(SCRIPTS / "exchange.mjs", module, json.dumps(cases))
    told = [
        (
            [image[-1] for image in one["images"]],
            one.get("earlier_images", 0),
            one["leftOut"],
            one.get("earlier_left_out", []),
        )
        for one in read
    ]
    assert told == [
        ([*earlier, *judged], len(earlier), left_out, earlier_left_out)
        for _, earlier, judged, left_out, earlier_left_out in TURNS.values()
    ]


@pytest.mark.parametrize("response", [WHOLE, STREAM], ids=["whole", "stream"])
async def test_each_choice_is_a_response(response: Any, gateway: Any) -> None:
    body = json.dumps(response) if isinstance(response, dict) else stream(*response)
    asked = {"model": "m", "n": 3, "messages": [{"role": "user", "content": "What is <image>?"}]}
    known = "chatcmpl-0123456789abcdef"
    calls = [
        ["/v1/chat/completions", asked, body],
        ["/v1/chat/completions", asked, body.replace('"model"', f'"id": "{known}", "model"')],
    ]
    said = await run(SCRIPTS / "fetching.mjs", MODULE.as_uri(), gateway.service.url, json.dumps(calls))
    assert said == {"passed": [True, True], "sent": True, "lost": {}}
    events = {event.id: event for event in await gateway.events()}
    assert {name: event.answer for name, event in events.items() if name.startswith(known)} == {
        known: "A dog.",
        f"{known}#1": "A cat.",
        f"{known}#2": "A dog.",
    }
    (made,) = {name.partition("#")[0] for name in events} - {known}
    assert {name: event.answer for name, event in events.items() if name.startswith(made)} == {
        made: "A dog.",
        f"{made}#1": "A cat.",
        f"{made}#2": "A dog.",
    }
    for event in events.values():
        assert event.tags["app"] == "shop"
        # As for every reader: a mark without its image is no image.
        assert set(event.declined.values()) == {"image_mark"}


async def test_marks_are_those_of_every_reader() -> None:
    asked = [{"model": "m", "messages": [{"role": "user", "content": f"{mark} Is it?"}]} for mark in MARKS]
    cases = [("/v1/chat/completions", one, json.dumps(COMPLETION), True) for one in asked]
    read = await run(SCRIPTS / "exchange.mjs", (MODULE.parent / "exchanges.js").as_uri(), json.dumps(cases))
    assert [tuple(one["leftOut"]) for one in read] == [
        (reason,) if reason else () for reason in MARKS.values()
    ]


async def test_what_is_in_a_request_is_told_as_by_every_reader() -> None:
    data = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAE"
    image = {"type": "image_url", "image_url": {"url": "https://h/a.png"}}
    silent = ["server_tool_use", "web_search_tool_result", "container_upload"]
    text = {"type": "text", "text": "What?"}
    wanted: list[tuple[Any, str, list[str], list[str]]] = [
        ([text, *({"type": kind} for kind in silent), {"type": "output_text", "text": ""}], "What?", [], []),
        ([text, {"type": "input_file", "file_id": "f"}], "What?", [], ["document"]),
        ("Compare [image 1] and [image 2]", "Compare [image 1] and [image 2]", [], ["image_mark"]),
        (
            [image, {"type": "text", "text": "Compare [image 1] and [image 2]"}],
            "Compare [image 1] and [image 2]",
            ["https://h/a.png"],
            ["image_mark"],
        ),
        (
            [text, {"type": "image_url", "image_url": {"url": "https://h/a.mp4?x=1"}}],
            "What?",
            [],
            ["video"],
        ),
        (f"What? ![a]({data})", "What?", [data], []),
        ([{"type": "text", "text": f'<img src="{data}"> What?'}], "What?", [data], []),
        (f"Why is url({data}) slow?", f"Why is url({data}) slow?", [], []),
    ]
    cases = [
        (
            "/v1/chat/completions",
            {"model": "m", "messages": [{"role": "user", "content": content}]},
            json.dumps(COMPLETION),
            True,
        )
        for content, *_ in wanted
    ]
    read = await run(SCRIPTS / "exchange.mjs", (MODULE.parent / "exchanges.js").as_uri(), json.dumps(cases))
    assert [(one["prompt"], one["images"], one["leftOut"]) for one in read] == [
        (prompt, images, left_out) for _, prompt, images, left_out in wanted
    ]


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the SDKs are, beside a copy of the scripts."""
    folder = tmp_path_factory.mktemp("js")
    shutil.copytree(SCRIPTS, folder, dirs_exist_ok=True)
    npm = shutil.which("npm")
    assert npm is not None
    command = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(folder), *PACKAGES]
    installed = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert installed.returncode == 0, installed.stderr
    return folder


@pytest.mark.slow
async def test_each_way_of_calling_is_recorded_once(gateway: Any, pictures: Any, packages: Path) -> None:
    png = pictures.encoded("PNG")
    image = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    with openai_server() as url:
        said = await run(packages / "calls.mjs", MODULE.as_uri(), gateway.service.url, url, image)
    assert said["sent"] and said["lost"] == {}
    gave = said["gave"]
    assert gave.pop("broken") == 400
    assert gave == dict.fromkeys(gave, ANSWER) and len(gave) == 11
    events = {event.model: event for event in await gateway.events()}
    left = events.pop("left")
    assert words()[0] in left.answer and ANSWER.startswith(left.answer)
    assert left.tags["finish_reason"] == "incomplete"
    assert set(events) == set(gave)
    for event in events.values():
        assert (event.prompt, event.answer) == ("What is in the image?", ANSWER)
        assert event.tags == {"app": "shop"}
        assert list(event.images) == [hashlib.sha256(png).hexdigest()]
        assert event.id.startswith(("chatcmpl-", "resp_"))


@pytest.mark.slow
def test_its_types_are_those_of_what_it_does(packages: Path) -> None:
    use = packages / "use.ts"
    use.write_text(
        'import { Recorder, recordingFetch, wrapOpenAI } from "groundwatch";\n'
        'import OpenAI from "openai";\n'
        'const recorder = new Recorder("http://h:1", { sender: "s", tags: { app: "shop" } });\n'
        'const id: string = recorder.record({ model: "m", answer: "a", images: [new Uint8Array(1)] });\n'
        "const client: OpenAI = wrapOpenAI(new OpenAI({ fetch: recordingFetch(recorder) }), recorder);\n"
        "const done: Promise<boolean> = recorder.close(1000);\n"
        "// @ts-expect-error: an answer is needed\n"
        'recorder.record({ model: "m" });\n'
        "console.log(id, client, done, recorder.lost.full);\n"
    )
    (packages / "node_modules/groundwatch").symlink_to(MODULE.parent)
    options = ["--noEmit", "--strict", "--skipLibCheck", "--module", "nodenext", "--target", "es2022"]
    compiler = packages / "node_modules/.bin/tsc"
    done = subprocess.run([compiler, *options, "use.ts"], cwd=packages, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
