"""Full-size runs: what a message costs in a conversation of 100,000, at a sender with 1,000,000 contacts, counted.

    python -m tests.contract.full_size_runs --store sqlite
    python -m tests.contract.full_size_runs --store redis --contacts 10000 --messages 1000
    JAVA_TOOL_OPTIONS=-Xmx6g python -m tests.contract.full_size_runs --store firestore --minutes 20

A run fills an empty store in bulk. In the same store each step is counted twice: before, when the contact's first
message and what followed it are all that there is, and after. Pages are counted before with three pages of each there.
"""

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from shared.stores.codec import moment
from tests.contract.full_size_contents import (
    TENANT,
    contact_name,
    contacts,
    conversation_of,
    message_key,
    messages,
    time_of,
)
from tests.contract.full_size_stores import MEBIBYTE, STORES, Cost, CountedStore
from tests.support.whole_pipeline import USER_ID, WholePipeline

T = TypeVar("T")

PAGE = 20
MESSAGES = (
    "an event of the contact is stored",
    "it is handled and ends, with a reply",
    "the reply is sent",
    "a message of the API is stored",
    "it is sent",
)
PAGES = ("a page of conversations", "such a page in the middle", "a page of the conversation", "one in its middle")


@dataclass(frozen=True, slots=True)
class Size:
    """How many contacts the sender has, and how many messages the conversation; an even number of them."""

    contacts: int
    messages: int


FEW = Size(3 * PAGE, 3 * PAGE)
Costs = Mapping[str, Cost]
"""What each step costs."""


@dataclass(frozen=True, slots=True)
class Result:
    """What each step cost in the empty store and in the full one; bytes that a contact and a message take."""

    size: Size
    empty: Costs
    full: Costs
    per_contact: float
    per_message: float
    seconds: float


@dataclass(frozen=True, slots=True)
class _Counting:
    """Counts each call, and returns what it returns."""

    counted: CountedStore
    costs: list[Cost] = field(default_factory=list)

    def __call__(self, call: Callable[..., T], *given: Any) -> T:
        returned: list[T] = []
        self.costs.append(self.counted.cost(lambda: returned.append(call(*given))))
        return returned[0]


def costs_of_messages(counted: CountedStore, pipeline: WholePipeline) -> Costs:
    """Of each step of an event and of a message of the API. The last of two rounds counts: the first one finds nothing
    before it.
    """
    costs = [_costs_of_a_round(counted, pipeline) for _ in range(2)]
    return dict(zip(MESSAGES, costs[-1], strict=True))


def _costs_of_a_round(counted: CountedStore, pipeline: WholePipeline) -> Sequence[Cost]:
    pipeline.clock.go(60)
    count = _Counting(counted)
    event = count(pipeline.receive)
    reply = count(pipeline.handle, event)
    count(pipeline.send, reply)
    message = count(pipeline.take_message)
    count(pipeline.send, message)
    return count.costs


def costs_of_pages(counted: CountedStore, size: Size) -> Costs:
    """Of the first page of each list, and of one in its middle. They have what they must have."""
    count, store, contact, message = _Counting(counted), counted.store, size.contacts // 2, size.messages // 2
    count(store.conversations, TENANT, None, PAGE)
    after = moment(time_of(contact)), conversation_of(contact_name(contact))
    middle = count(store.conversations, TENANT, after, PAGE)
    assert [each.contact for each in middle.conversations] == [contact_name(contact + n + 1) for n in range(PAGE)]
    count(store.of_conversation, conversation_of(USER_ID), None, PAGE)
    behind = moment(time_of(message)), message_key(message)
    history = count(store.of_conversation, conversation_of(USER_ID), behind, PAGE)
    assert [record.key for record in history.records] == [message_key(message + n + 1) for n in range(PAGE)]
    return dict(zip(PAGES, count.costs, strict=True))


def fill(counted: CountedStore, already: Size, wanted: Size, give_up: float = math.inf) -> tuple[Size, float, float]:
    """Add what is missing to this size: the messages, and then as many contacts as go in before this time. Returns the
    size that it has then, and the bytes that each new contact and each new message took.
    """
    begin = counted.size()
    for records in portions(messages(already.messages, wanted.messages), counted.at_once // 5):
        counted.fill([], records)
    middle, there = counted.size(), already.contacts
    while there < wanted.contacts and time.monotonic() < give_up:
        more = min(counted.at_once // 2, wanted.contacts - there)
        counted.fill([*contacts(there, there + more)], [])
        there += more
    of_messages, of_contacts = middle - begin, counted.size() - middle
    new = wanted.messages - already.messages, there - already.contacts
    return Size(there, wanted.messages), of_contacts / new[1], of_messages / new[0]


def portions(items: Iterable[T], most: int) -> Iterator[list[T]]:
    each = iter(items)
    return iter(lambda: list(islice(each, most)), [])


def run(counted: CountedStore, wanted: Size, seconds: float = math.inf) -> Result:
    """It fills the store for as long as this."""
    began, pipeline = time.monotonic(), WholePipeline(counted.store)
    empty = costs_of_messages(counted, pipeline)
    fill(counted, Size(0, 0), FEW)
    empty = {**empty, **costs_of_pages(counted, FEW)}
    size, per_contact, per_message = fill(counted, FEW, wanted, began + seconds)
    pages = costs_of_pages(counted, size)  # as few new messages are on the first one as before
    full = {**costs_of_messages(counted, pipeline), **pages}
    return Result(size, empty, full, per_contact, per_message, time.monotonic() - began)


def faults_of(result: Result) -> Sequence[str]:
    """What must not be: a step that costs more in the full store."""
    return [
        f"{step}: {shown(result.full[step])}, and {shown(cost)} in an empty store"
        for step, cost in result.empty.items()
        for unit, count in cost.items()
        if result.full[step][unit] > count + slack(step, unit, result.size)
    ]


def slack(step: str, unit: str, size: Size) -> int:
    """How many more there may be: Redis looks for the beginning of a later page by halves."""
    is_search = step in (PAGES[1], PAGES[3]) and unit in ("commands", "values")
    return 3 * max(size.contacts, size.messages).bit_length() if is_search else 0


def shown(cost: Cost) -> str:
    return ", ".join(f"{count} {unit}" for unit, count in cost.items())


def rows(store: str, result: Result) -> Iterator[str]:
    for step, cost in result.empty.items():
        yield f"| {store} | {step} | {shown(cost)} | {shown(result.full[step])} |"


def main() -> int:
    """Run one store. 1 if a step costs more when it is full."""
    parser = argparse.ArgumentParser("full_size_runs", description=__doc__)
    parser.add_argument("--store", default="sqlite", choices=tuple(STORES))
    parser.add_argument("--contacts", type=int, default=1_000_000)
    parser.add_argument("--messages", type=int, default=100_000, help="of the one conversation")
    parser.add_argument("--minutes", type=float, default=math.inf, help="how long it adds contacts, at most")
    asked = parser.parse_args()
    wanted = Size(asked.contacts, asked.messages)
    with tempfile.TemporaryDirectory() as directory, STORES[asked.store](Path(directory)) as counted:
        result = run(counted, wanted, asked.minutes * 60)
        total = counted.size() / MEBIBYTE
    print("| store | step | empty | full |\n|---|---|---|---|", *rows(asked.store, result), sep="\n")
    print(f"{result.per_contact:.0f} bytes a contact, {result.per_message:.0f} a message, {total:.0f} MiB in all")
    print(f"{result.size.contacts:,} contacts and {result.size.messages:,} messages, {result.seconds:.0f} s")
    faults = faults_of(result)
    print("\n".join(faults), end="\n" if faults else "", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
