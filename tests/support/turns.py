"""Messages of one contact in the running stack, and when each was handled."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

from tests.support.payloads import of_texts, text
from tests.support.stack import Stack

Span = tuple[float, float]


def messages(contact: str, count: int, seconds: float = 0.1) -> list[dict[str, Any]]:
    """Messages that the contact wrote one second after another. Each takes so many seconds to be handled."""
    first = 1790416800
    return [
        text(contact, f"wamid.{contact}.{number:02}", f"!slow {seconds}", timestamp=str(first + number))
        for number in range(count)
    ]


def in_one_post(stack: Stack, items: Sequence[Mapping[str, Any]]) -> None:
    """As Meta does: until it is answered 200. A busy machine's store may be too slow for the first one."""
    stack.wait_until(lambda: stack.post(of_texts(*items)).status_code == 200, "the webhook is answered 200")


def at_once(stack: Stack, items: Sequence[Mapping[str, Any]]) -> None:
    with ThreadPoolExecutor(len(items)) as pool:
        list(pool.map(lambda item: in_one_post(stack, [item]), items))


def in_reverse(stack: Stack, items: Sequence[Mapping[str, Any]]) -> None:
    for item in reversed(items):
        in_one_post(stack, [item])


Way = Callable[[Stack, Sequence[Mapping[str, Any]]], None]
WAYS: Mapping[str, Way] = {"in one webhook": in_one_post, "in ten at once": at_once, "in reverse": in_reverse}


def spans(stack: Stack, items: Sequence[Mapping[str, Any]], seconds: float) -> list[Span]:
    """When the call began and ended that each message was answered by."""
    ids = [str(item["id"]) for item in items]
    stack.wait_settled(ids, seconds)
    replies = [stack.reply(one) for one in ids]
    found = [reply.payload["content"]["body"].split() for reply in replies if reply]
    assert len(found) == len(items), "each message has its reply"
    return [(float(began), float(ended)) for began, ended in found]


def one_at_a_time(calls: Sequence[Span]) -> bool:
    """Whether no two calls overlap."""
    return all(before[1] <= after[0] for before, after in pairwise(sorted(calls)))
