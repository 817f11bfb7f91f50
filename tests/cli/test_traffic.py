"""submit, watch and report against a running system."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import pty
import signal
import subprocess

import httpx
import pytest
from PIL import Image


@pytest.fixture
def picture(tmp_path) -> bytes:
    """A PNG, also lying beside the file of responses as `scene.png`."""
    out = io.BytesIO()
    Image.new("RGB", (32, 24), "red").save(out, "PNG")
    (tmp_path / "scene.png").write_bytes(out.getvalue())
    return out.getvalue()


def test_submit_a_file_and_report_it(up, written, answer):
    right = answer("t-2", model="egret-13b", answer="A dog sits beside a red ball.")
    file = written(answer("t-1"), "", right)
    done = up("submit", file)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "accepted 2, already there 0, refused 0\n"
    up.settled(2)
    by_model = {one["model"]: one for one in up.json("report")["models"]}
    assert by_model["heron-7b"]["hallucination_rate"]["value"] > 0
    assert by_model["egret-13b"]["hallucination_rate"]["value"] == 0
    table = up("report")
    assert table.returncode == 0
    assert table.stderr == ""
    assert "heron-7b" in table.stdout
    assert "egret-13b" in table.stdout


def test_submitting_again_adds_nothing(up, written, answer):
    file = written(answer("again"))
    assert up.json("submit", file) == {"accepted": 1, "duplicates": 0, "refused": 0, "errors": []}
    assert up.json("submit", file) == {"accepted": 0, "duplicates": 1, "refused": 0, "errors": []}


def test_another_answer_under_the_same_id_is_refused(up, written, answer):
    up.json("submit", written(answer("taken")))
    told = up.json("submit", written(answer("taken", answer="Something else.")), status=1)
    assert told["refused"] == 1
    assert told["errors"][0]["id"] == "taken"


def test_bad_lines_are_named_and_the_others_taken(up, written, answer):
    wrong = answer("w-5")
    del wrong["answer"]
    file = written(answer("w-1"), "not json", "", answer("w-4", model=7), wrong, answer("w-6"))
    done = up("submit", file)
    assert done.returncode == 1
    assert done.stdout == "accepted 2, already there 0, refused 3\n"
    first, second, third, last = done.stderr.splitlines()
    assert f"{file}:2: not JSON" in first
    assert f"{file}:4 (id w-4): model: " in second
    assert f"{file}:5 (id w-5): answer: is missing" in third
    assert last == "groundwatch: 3 responses were refused"


def test_bad_lines_as_json(up, written, answer):
    told = up.json("submit", written(answer("j-1", protocols=["nonsense"]), answer("j-2")), status=1)
    assert (told["accepted"], told["refused"]) == (1, 1)
    assert told["errors"][0]["line"] == 1
    assert told["errors"][0]["field"] == "protocols"
    assert "faithscore" in told["errors"][0]["error"]


def test_of_many_reasons_the_first_are_shown(up, written, answer):
    names = [f"no-{chr(97 + number // 26)}{chr(97 + number % 26)}" for number in range(30)]
    lines = [answer(f"many-{number}", protocols=[name]) for number, name in enumerate(names)]
    done = up("submit", written(*lines))
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 22
    assert "… and 10 more" in done.stderr


def test_a_reason_is_told_once_in_the_order_of_the_lines(up, written, answer):
    lines = [answer("once-1"), *["{}"] * 6, answer("once-8", images=["gone.png"]), "{}", "not json"]
    done = up("submit", written(*lines))
    missing, gone, none, last = done.stderr.splitlines()
    assert ":2: model: is missing; and the same of 6 more: 3, 4, 5, 6, 7, …" in missing
    assert ":8 (id once-8): images[0]: gone.png" in gone and ":10: not JSON" in none
    assert last == "groundwatch: 9 responses were refused"


def test_two_models_that_number_alike_are_told_what_to_do(up, written, answer):
    lines = [answer("twin-7", model="a"), answer("twin-7", model="b")]
    (error,) = up.json("submit", written(*lines), status=1)["errors"]
    assert (error["line"], error["id"], error["reason"]) == (2, "twin-7", "conflict")
    assert "send each under a --tenant of its own, or with ids that name the model" in error["error"]


def test_columns_by_other_names(up, written):
    file = written(*[{"uid": one, "q": "What?", "said": "A dog sits."} for one in (71, 72)])
    options = ("--column", "uid=id", "--column", "q=prompt", "--column", "said=answer", "--model", "m")
    assert up.json("submit", file, *options)["accepted"] == 2
    found = httpx.get(f"{up.gateway}/v1/responses/71").json()["response"]
    assert (found["prompt"], found["answer"]) == ("What?", "A dog sits.")
    assert "there is no said for --column" in up.complaint("submit", written({"x": 1}), *options[4:])


def test_annotations_are_judged_by_what_people_said(up, written):
    file = written(
        {
            "id": "000000000001",
            "answer": "A dog runs on the grass. It is fun.",
            "stage 1": {"A dog runs on the grass": 1, " It is fun": 0},
            "stage 2": {"There is a dog.": 1, "There is grass.": 0},
        }
    )
    assert up.json("submit", file)["accepted"] == 1
    assert up.json("submit", file, "--model", "owl-3b", "--tenant", "zoo")["accepted"] == 1
    up.settled(2)
    found = httpx.get(f"{up.gateway}/v1/responses/owl-3b-000000000001-1", params={"tenant": "zoo"}).json()
    assert found["response"]["model"] == "owl-3b"
    assert found["outcomes"]["faithscore"]["outcome"] == "scored"


def test_captions_as_pope_publishes_them(up, written):
    file = written(
        {"image_id": 40468, "prompt": "Describe it.", "text": "a man surfing in the ocean"},
        {"image_id": 10822, "text": "3 zebras in a field"},
        name="llava.jsonl",
    )
    assert up.json("submit", file)["accepted"] == 2
    found = httpx.get(f"{up.gateway}/v1/responses/llava-40468-1").json()["response"]
    assert found["model"] == "llava"
    assert found["answer"] == "a man surfing in the ocean"
    assert found["tags"] == {"image": "40468"}
    ledger = up.settled(2)
    assert ledger["reasons"]["unscored: no_reference"] >= 2


def test_model_and_tenant_for_lines_that_name_none(up, written, answer):
    bare = answer("bare")
    del bare["model"]
    assert (
        up.json("submit", written(bare, answer("named")), "--model", "wren", "--tenant", "t")["accepted"] == 2
    )
    models = [
        httpx.get(f"{up.gateway}/v1/responses/{name}", params={"tenant": "t"}).json()["response"]["model"]
        for name in ("bare", "named")
    ]
    assert models == ["wren", "heron-7b"]


def test_images_go_along_by_file_name(up, written, answer, picture):
    file = written(answer("i-1", images=["scene.png"]), answer("i-2", images=["./scene.png", "scene.png"]))
    assert up.json("submit", file)["accepted"] == 2
    digest = hashlib.sha256(picture).hexdigest()
    for name, count in (("i-1", 1), ("i-2", 2)):
        found = httpx.get(f"{up.gateway}/v1/responses/{name}").json()["response"]
        assert found["images"] == [digest] * count
    assert httpx.get(f"{up.gateway}/v1/images/{digest}").content == picture


def test_a_missing_image_refuses_its_line_only(up, written, answer, picture, tmp_path):
    (tmp_path / "text.png").write_text("no image at all")
    file = written(
        answer("m-1", images=["gone.png"]),
        answer("m-2", images=["scene.png"]),
        answer("m-3", images=["text.png"]),
    )
    told = up.json("submit", file, status=1)
    assert (told["accepted"], told["refused"]) == (1, 2)
    assert [(one["line"], one["id"], one["field"]) for one in told["errors"]] == [
        (1, "m-1", "images[0]"),
        (3, "m-3", "images[0]"),
    ]
    assert "gone.png cannot be read (No such file or directory)" in told["errors"][0]["error"]
    assert "text.png: " in told["errors"][1]["error"]


def test_connect_tells_who_sends_and_what_mends_what_is_missing(up, written, answer):
    up.json("submit", written(answer("from-here", left_out=["openinference_redacted"], images=[])))
    told = up.json("connect")["senders"]
    mine = next(one for one in told if one["library"].startswith("groundwatch-client/"))
    assert (mine["source"], mine["calls"] > 0) == ("responses", True)
    shown = up("connect")
    assert shown.returncode == 0 and shown.stderr == ""
    assert mine["library"] in shown.stdout
    assert (
        "openinference_redacted" in shown.stdout and "OPENINFERENCE_BASE64_IMAGE_MAX_LENGTH" in shown.stdout
    )


def test_connect_without_a_gateway_is_one_line(nobody):
    assert "start one with groundwatch up" in nobody.complaint("connect")
    assert "does not answer" in nobody.complaint("connect", "--to", "http://127.0.0.1:1")


def test_submit_an_empty_file(up, written):
    assert up.json("submit", written())["accepted"] == 0


def test_submit_tells_what_it_cannot_read(up, tmp_path):
    assert "cannot be read" in up.complaint("submit", tmp_path / "gone.jsonl")


def test_submit_without_a_system(nobody, written, answer):
    assert "start one with groundwatch up" in nobody.complaint("submit", written(answer("x")))


def test_submit_to_a_gateway_that_is_not_there(nobody, written, answer):
    told = nobody.complaint("submit", written(answer("x")), "--to", "http://127.0.0.1:1")
    assert "no gateway answers at http://127.0.0.1:1" in told


def test_watch_shows_what_is_there_and_ends(up, written, answer):
    up.json("submit", written(answer("watched", model="stork-9b")))
    up.settled(1)
    done = up("watch", "--seconds", 2)
    assert done.returncode == 0, done.stderr
    assert "stork-9b" in done.stdout
    assert "groundwatch watch" in done.stdout
    assert done.stdout.endswith("\n")
    assert done.stderr == ""


def test_watch_ends_with_control_c(up):
    """At a terminal, as soon as it shows something."""
    ours, theirs = pty.openpty()
    watching = up.start("watch", stdout=theirs, stderr=subprocess.PIPE)
    os.close(theirs)
    shown = b""
    while b"groundwatch watch" not in shown:
        assert watching.poll() is None, shown
        shown += os.read(ours, 10_000)
    watching.send_signal(signal.SIGINT)
    with contextlib.suppress(OSError):
        while os.read(ours, 10_000):
            pass
    os.close(ours)
    _, told = watching.communicate(timeout=30)
    assert (watching.returncode, told) == (0, "")


def test_report_of_a_run_that_never_was(up):
    assert up.complaint("report", "--run", "replay-1") == "no run 'replay-1'; there are: none yet"


@pytest.mark.parametrize("command", ["audit", "report", "watch", "admin dead list", "admin provision"])
def test_no_server_is_one_line(nobody, command):
    told = nobody.complaint(*command.split(), "--nats", "nats://127.0.0.1:1")
    assert "no NATS server answers at nats://127.0.0.1:1" in told
    assert "GROUNDWATCH_NATS__URL" in told


def test_submit_reads_images_of_the_files_folder_and_of_named_ones_only(
    up, written, answer, picture, tmp_path
):
    """Lines from the campaign: a password file, a device without end, a pipe that nobody writes to."""
    folder = tmp_path / "lines"
    folder.mkdir()
    (folder / "link.png").symlink_to(tmp_path / "scene.png")
    os.mkfifo(folder / "pipe.png")
    names = ("/etc/passwd", "/dev/zero", "pipe.png", "../scene.png", "link.png")
    lines = [answer(f"reads-{number}", images=[name]) for number, name in enumerate(names)]
    file = written(*lines, name="lines/responses.jsonl")
    told = up.json("submit", file, status=1)
    assert (told["accepted"], told["refused"]) == (0, 5)
    assert [one["field"] for one in told["errors"]] == ["images[0]"] * 5
    assert "no regular file" in told["errors"][2]["error"]
    assert all("leads out of" in told["errors"][number]["error"] for number in (0, 1, 3, 4))
    told = up.json("submit", file, "--images", tmp_path, status=1)
    assert (told["accepted"], [one["line"] for one in told["errors"]]) == (2, [1, 2, 3])


def test_two_versions_are_compared_with_the_reason_why_nothing_corrects_them(up, written, answer):
    wrong = "A dog sits on a red mat."
    lines = [
        answer(f"ver-{at}", model="ibis-7b", tags={"version": version}, answer=words)
        for at, (version, words) in enumerate(
            [("1", "A dog sits beside a red ball."), ("2", wrong), ("2", wrong)] * 4
        )
    ]
    before = sum(one["scored"] for one in up.json("report")["models"])
    up.json("submit", written(*lines))
    up.settled(before + len(lines))
    (told,) = up.json("compare", "1", "2", "--by", "version", "--model", "ibis-7b")["versions"]
    assert (told["first"]["scored"], told["second"]["scored"]) == (4, 8)
    assert told["difference"]["value"] > 0
    (whole,) = told["corrected"]
    assert (whole["category"], whole["difference"], whole["opinions"]) == ("all", None, [0, 0])
    shown = up("compare", "1", "2", "--by", "version", "--model", "ibis-7b")
    assert shown.returncode == 0 and "No second opinion about 1 and 2" in shown.stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--by", "version"), "name the --model whose versions"),
        (("--by", "day", "--model", "m"), "what is compared are runs"),
        (("--by", "version", "--model", "m", "--tenant", "t"), "do not go with --by version"),
        (
            ("--by", "version", "--model", "nobody"),
            "model nobody has no answer of version 1; there are: none",
        ),
    ],
)
def test_what_is_no_comparison_of_versions_is_refused(up, options, said):
    done = up("compare", "1", "2", *options)
    assert done.returncode == 2 and said in done.stderr
