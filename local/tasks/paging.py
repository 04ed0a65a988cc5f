"""A page token: where a list continues. It holds the last name or id of the previous page, opaque to the caller."""

import base64
import binascii

from local.tasks.refusals import invalid


def size(requested: int, largest: int) -> int:
    """The page size: the largest if none is requested, and never more (ListQueuesRequest, ListTasksRequest)."""
    if requested < 0:
        raise invalid("The page size must not be negative.")
    return min(requested or largest, largest)


def token(place: str) -> str:
    return base64.urlsafe_b64encode(place.encode()).decode()


def place(page_token: str) -> str:
    try:
        return base64.b64decode(page_token, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError) as error:
        raise invalid("The page token is invalid: this service did not issue it.") from error
