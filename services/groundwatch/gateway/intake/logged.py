"""Calls that other systems logged, made into submissions: OTLP, LiteLLM, serving systems and NATS alike."""

from groundwatch.conversations.conversation import Conversation
from groundwatch.gateway.callers import Caller
from groundwatch.gateway.intake.results import Refused
from groundwatch.gateway.intake.submissions import Submission
from groundwatch.records import Limits
from groundwatch.runtime.settings.gateway import LoggedCallsSettings


def submission_of(
    conversation: Conversation,
    caller: Caller,
    bounds: Limits,
    settings: LoggedCallsSettings,
    *,
    tenant: str = "",
) -> Submission | Refused:
    """The submission of a logged call, or why it is none.

    Images that the library left out end in what `settings.without_image` says: every protocol declined with
    the reason, or recorded without them.
    """
    raise NotImplementedError
