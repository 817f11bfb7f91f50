"""What a judgement is kept under: everything that its judge saw, and nothing else.

A key is three tokens, `<scope>.<response>.<judgement>`. The scope is the tenant, the second token stands for
the response as judges see it, the third for all of it together. So whatever is known of a response, or of a
tenant, is found again by the first two.
"""

import msgspec

from groundwatch.errors import InputError
from groundwatch.events import LIVE, ClaimsExtracted, Judge, ResponseRecorded, Usage, digest
from groundwatch.runtime.settings import Settings, StageSettings

FORMAT = "1"
"""Raised when entries of before cannot be used any more."""

SHARED = "shared"
"""The scope of all tenants, where they share."""

_ENCODER = msgspec.json.Encoder()
_TOKEN = 32
_NOBODY = Judge(engine="")

_WAITING_AND_PAYING = (
    "api_key_env",
    "timeout",
    "concurrency",
    "input_price",
    "output_price",
    "retries",
    "patience",
    "first_wait",
)
"""Keys of `<stage>.llm` that change no reply."""


def seen(response: ResponseRecorded) -> ResponseRecorded:
    """The response without what no judge looks at: whose it is, who wrote it, when, in which run and why.

    What is left out is named, so that a field that is new to events is part of the key by itself.
    """
    return msgspec.structs.replace(
        response,
        id="",
        model="",
        tenant="",
        protocols=(),
        declined={},
        drawn={},
        run=LIVE,
        recorded_at=0.0,
        unanswered=None,
    )


def asked_with(settings: Settings, stage: str) -> str:
    """Digest of the settings of a stage that can change a reply and are in no judge's name."""
    section: StageSettings = getattr(settings, stage)
    chat = section.llm.model_dump(mode="json") if section.llm else {}
    chat = {name: value for name, value in chat.items() if name not in _WAITING_AND_PAYING}
    return digest(_text(chat), _text(settings.visual.model_dump()) if stage == "verification" else "")


def cache_key(
    event: ResponseRecorded | ClaimsExtracted,
    *,
    stage: str,
    protocol: str,
    judge: Judge,
    settings: str,
    shared: bool = False,
) -> str:
    """The key of this judge's judgement of this event; `settings` is what `asked_with` says.

    Raises `InputError` for text that has no encoding.
    """
    response = event if isinstance(event, ResponseRecorded) else event.response
    try:
        content = _content(response)
        claims = "" if isinstance(event, ResponseRecorded) else _text(_claims(event))
    except UnicodeEncodeError as error:
        raise InputError(f"text that has no encoding: {error}") from error
    whole = digest(FORMAT, stage, protocol, _text(judge), settings, content, claims)
    scope = SHARED if shared else scope_of(response.tenant)
    return f"{scope}.{content[:_TOKEN]}.{whole}"


def scope_of(tenant: str) -> str:
    """The first token of a tenant's keys."""
    return digest("tenant", tenant)[:_TOKEN]


def keys_of(response: ResponseRecorded) -> str:
    """Matches the keys of all that is known of a response, in any scope: for erasing it."""
    return f"*.{_content(response)[:_TOKEN]}.>"


def keys_in_reach(response: ResponseRecorded) -> tuple[str, str]:
    """Match the keys of what a judge of this tenant can be served of a response: its own, and shared ones."""
    token = _content(response)[:_TOKEN]
    return f"{scope_of(response.tenant)}.{token}.>", f"{SHARED}.{token}.>"


def _content(response: ResponseRecorded) -> str:
    return digest(_text(seen(response)))


def _claims(extracted: ClaimsExtracted) -> ClaimsExtracted:
    """Without its response, who extracted, and what that took."""
    nobody = ResponseRecorded(id="", model="", answer="")
    return msgspec.structs.replace(extracted, response=nobody, judge=_NOBODY, usage=Usage())


def _text(value: object) -> str:
    return _ENCODER.encode(value).decode()
