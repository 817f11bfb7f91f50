"""Errors in the terms of gRPC: a status, one line, and details in the form of google.rpc."""

import grpc
from google.protobuf import duration_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from groundwatch.gateway.auth.callers import NotAllowed
from groundwatch.gateway.http.replies import RETRY_AFTER, one_line
from groundwatch.gateway.intake.results import Reason, Refused

DOMAIN = "groundwatch"
DETAILS = "grpc-status-details-bin"

STATUS: dict[Reason, grpc.StatusCode] = {
    "malformed": grpc.StatusCode.INVALID_ARGUMENT,
    "invalid": grpc.StatusCode.INVALID_ARGUMENT,
    "too_large": grpc.StatusCode.INVALID_ARGUMENT,
    "unknown_protocol": grpc.StatusCode.INVALID_ARGUMENT,
    "image": grpc.StatusCode.INVALID_ARGUMENT,
    "image_missing": grpc.StatusCode.FAILED_PRECONDITION,
    "conflict": grpc.StatusCode.ALREADY_EXISTS,
    "erased": grpc.StatusCode.FAILED_PRECONDITION,
    "other_tenant": grpc.StatusCode.PERMISSION_DENIED,
    "backlog": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "unavailable": grpc.StatusCode.UNAVAILABLE,
    "unconfirmed": grpc.StatusCode.UNAVAILABLE,
}


class Failure(Exception):
    """What ends a call. `reason` is a bounded slug, `field` the path of what is wrong in the request.

    `again` says that the same call may succeed later, `name` is the id of the response.
    """

    def __init__(
        self,
        code: grpc.StatusCode,
        reason: str,
        message: str,
        *,
        field: str = "",
        again: bool = False,
        name: str = "",
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = one_line(f"{field}: {message}" if field else message)
        self.field = field
        self.again = again
        self.name = name

    @property
    def trailing(self) -> tuple[tuple[str, bytes], ...]:
        """The details as metadata, where clients of every language look for them."""
        status = status_pb2.Status(code=self.code.value[0], message=self.message)
        known = {"id": self.name} if self.name else {}
        details: list[Message] = [
            error_details_pb2.ErrorInfo(reason=self.reason.upper(), domain=DOMAIN, metadata=known)
        ]
        if self.field:
            violation = error_details_pb2.BadRequest.FieldViolation(
                field=self.field, description=self.message, reason=self.reason.upper()
            )
            details.append(error_details_pb2.BadRequest(field_violations=[violation]))
        if self.again:
            delay = duration_pb2.Duration(seconds=int(RETRY_AFTER))
            details.append(error_details_pb2.RetryInfo(retry_delay=delay))
        for detail in details:
            status.details.add().Pack(detail)
        return ((DETAILS, status.SerializeToString()),)


def failure_of(refused: Refused, prefix: str = "") -> Failure:
    """A refusal as the end of a call; `prefix` is where the response stands in the request."""
    field = f"{prefix}{refused.field}" if refused.field else ""
    return Failure(
        STATUS[refused.reason],
        refused.reason,
        refused.message,
        field=field,
        again=refused.passing,
        name=refused.id,
    )


def not_allowed(error: NotAllowed) -> Failure:
    """A call that is not this caller's to make."""
    code = grpc.StatusCode.PERMISSION_DENIED
    if error.reason == "unauthenticated":
        code = grpc.StatusCode.UNAUTHENTICATED
    return Failure(code, error.reason, error.message, field=error.field)


def invalid(field: str, message: str) -> Failure:
    return Failure(grpc.StatusCode.INVALID_ARGUMENT, "invalid", message, field=field)


def exhausted(reason: str, message: str) -> Failure:
    """As many as are allowed do it already."""
    return Failure(grpc.StatusCode.RESOURCE_EXHAUSTED, reason, message, again=True)


def unavailable(message: str) -> Failure:
    return Failure(grpc.StatusCode.UNAVAILABLE, "unavailable", message, again=True)
