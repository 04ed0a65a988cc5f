"""A large POST gets through, however far store and queue are and however long the queue is (docs/large-posts.md)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.large_posts import large_post_runs
from tests.large_posts.large_post_runs import (
    FAR,
    NEAR,
    STORES,
    Delivery,
    Webhook,
    beside,
    of_messages,
    of_receipts,
    percentile,
)

LARGEST = 2_000
"""Events that the channel takes from one POST; Meta's have at most 1,000."""

ANSWERED_WITHIN = 20.0
"""Seconds: twice what a large POST may take. The machine may be busy."""


IN_CI = [pytest.param(store, marks=[] if store == "sqlite" else [pytest.mark.slow]) for store in STORES]
"""The other stores are like it here."""


@pytest.fixture(scope="module", params=IN_CI)
def webhook(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Webhook]:
    """The service with its store and its queue far away. The queue is paused."""
    with large_post_runs.running(request.param, FAR, tmp_path_factory.mktemp(request.param)) as running:
        yield running


def assert_taken(deliveries: list[Delivery]) -> None:
    assert deliveries[-1].status == 200, large_post_runs.told(deliveries)
    assert max(one.seconds for one in deliveries) < ANSWERED_WITHIN


def test_largest_post_is_accepted_within_three_deliveries(webhook: Webhook) -> None:
    assert_taken(webhook.deliver(of_messages(LARGEST), at_most=3))
    with webhook.store() as store:
        assert store.backlog().counts["pending"] == LARGEST
    assert len(webhook.emulator.names("inbound")) == LARGEST
    assert_taken(webhook.deliver(of_messages(LARGEST), at_most=3))
    assert len(webhook.emulator.names("inbound")) == LARGEST


def test_largest_post_of_receipts_is_accepted_within_three_deliveries(webhook: Webhook) -> None:
    assert_taken(webhook.deliver(of_receipts(LARGEST), at_most=3))


def test_single_message_beside_two_largest_posts_is_answered_in_two_seconds(webhook: Webhook) -> None:
    """p95; asserted with twice the time. And the two get through, beside each other."""
    single, large = beside(webhook, LARGEST, posts=2, singles=60)
    assert len(single) >= 20, "they were over before they could be in the way"
    assert {one.status for one in single} == {200}
    assert percentile([one.seconds for one in single], 95) < 2.0
    for deliveries in large:
        assert_taken(deliveries)


@pytest.mark.slow
@pytest.mark.parametrize("events", [20, 200, 1_000])
@pytest.mark.parametrize("latency", [NEAR, FAR], ids=str)
@pytest.mark.parametrize("store", STORES)
def test_every_post_is_accepted_within_three_deliveries(
    store: str, latency: large_post_runs.Latency, events: int, tmp_path: Path
) -> None:
    with large_post_runs.running(store, latency, tmp_path) as running:
        for body in (of_messages(events), of_messages(events), of_receipts(events)):
            assert_taken(running.deliver(body, at_most=3))


def test_single_message_takes_at_least_a_commit_and_a_task(webhook: Webhook) -> None:
    """The delays of the harness are there."""
    delivery = webhook.post(of_messages(1, "alone"))
    assert delivery.status == 200
    assert delivery.seconds > (FAR.commit + FAR.task) / 1000
