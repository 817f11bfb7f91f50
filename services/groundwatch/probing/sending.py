"""A probe's answers as responses into a running system, with their images."""

import msgspec

from groundwatch.client.sending import Sender
from groundwatch.errors import UsageError
from groundwatch.events import ResponseRecorded
from groundwatch.probing.probe import Probed
from groundwatch.probing.runfile import IMAGES

FILE = "responses.jsonl"


class Submitted(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the answers; questions without one are not sent."""

    accepted: int
    duplicates: int
    refused: int
    unanswered: int


async def send(probed: Probed, gateway: str, *, label: str = "probe") -> Submitted:
    """Write the answers into the run's folder as recorded responses, and send that file.

    An answer's id is `label`, the suite and its key, so that sending twice adds nothing. Raises `UsageError`
    when no gateway takes them, or with the first reason for which it refused one.
    """
    path = probed.plan.folder / FILE
    answered = [one for one in probed.answers if one.response.unanswered is None]
    path.write_bytes(
        b"".join(
            msgspec.json.encode(_record(one.response, f"{label}-{probed.suite}-{one.key}")) + b"\n"
            for one in answered
        )
    )
    unanswered = len(probed.answers) - len(answered)
    if not answered:
        return Submitted(accepted=0, duplicates=0, refused=0, unanswered=unanswered)
    async with Sender(gateway, path) as sender:
        async for _ in sender.send():
            pass
    found = sender.result
    if found.errors:
        raise UsageError(f"{gateway} refused {found.refused} answers: {found.errors[0].error}")
    return Submitted(
        accepted=found.accepted,
        duplicates=found.duplicates,
        refused=found.refused,
        unanswered=unanswered,
    )


def _record(response: ResponseRecorded, name: str) -> dict[str, object]:
    record: dict[str, object] = {
        "id": name,
        "model": response.model,
        "prompt": response.prompt,
        "answer": response.answer,
        "images": [f"{IMAGES}/{digest}" for digest in response.images],
        "tags": response.tags,
        "protocols": list(response.protocols),
    }
    if response.reference is not None:
        record["reference"] = msgspec.to_builtins(response.reference)
    return record
