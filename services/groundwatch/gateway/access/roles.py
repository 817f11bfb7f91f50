"""The roles that callers have, and what an address or a call of gRPC needs of them.

A viewer reads, a reviewer also gives opinions, an operator may do everything, and a sender sends and nothing
else.
"""

from typing import Literal

import msgspec

from groundwatch.runtime.settings.login import Role

MAY: dict[Role, frozenset[Role]] = {
    "viewer": frozenset({"viewer"}),
    "reviewer": frozenset({"viewer", "reviewer"}),
    "operator": frozenset({"viewer", "reviewer", "operator", "sender"}),
    "sender": frozenset({"sender"}),
}
"""What each role may do: the needs that it meets."""


class Need(msgspec.Struct, frozen=True):
    """What somebody must be: of a role that meets `role`, or nobody in particular.

    `all_tenants` says what it shows of all tenants, which is not for one of them. A `page` is what a link may
    lead to; who has not logged in is sent to the login.
    """

    role: Role | Literal["anybody"]
    all_tenants: str = ""
    page: bool = False


ANYBODY = Need("anybody")
SEND = Need("sender")
VIEW = Need("viewer")
REVIEW = Need("reviewer")
OPERATE = Need("operator")
LOGIN = Need("anybody", page=True)
VIEW_PAGE = Need("viewer", page=True)
REVIEW_PAGE = Need("reviewer", page=True)
