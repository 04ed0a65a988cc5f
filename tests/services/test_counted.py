"""The webhook service counts its POSTs and writes what it has counted: in one process, on SQLite."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from shared.domain.counters import WHOLE, Figures, figures, merged
from shared.domain.errors import SignatureInvalid, StoreUnavailable
from shared.pipeline.counting import Counters, IntakeCounting
from tests.support import event_loop, parts
from tests.support.parts import NOW, STRANGER, WebhookParts, key_of, post, receipt, text

EVERY = timedelta(minutes=1)


@pytest.fixture(autouse=True)
def _logs() -> Iterator[None]:
    with parts.logged():
        yield


@pytest.fixture
def webhook(tmp_path: Path) -> Iterator[WebhookParts]:
    """Its counting on the test's clock and store."""
    made = parts.webhook_parts(tmp_path, queue=parts.NoQueue())
    counting = IntakeCounting(Counters(made.clock, EVERY), made.parts.store)
    accept = replace(made.parts.accept, counting=counting)
    yield replace(made, parts=replace(made.parts, accept=accept, counting=counting))
    made.close()


def of(webhook: WebhookParts) -> dict[str, Figures]:
    """The figures in the store once the process has ended."""
    event_loop.run(webhook.parts.finish())
    found = webhook.store.port.recent_counters(NOW)
    return figures(merged(one.counts for one in found), webhook.clock.now())


def test_each_signed_post_is_counted_once_and_for_each_tenant_in_it(webhook: WebhookParts) -> None:
    webhook.queue.before = lambda *_: webhook.clock.go(0.2)
    for number in range(3):
        webhook.accept(parts.incoming(post(text(f"wamid.{number}"), text(f"wamid.more.{number}"))))
    webhook.accept(parts.incoming(post(text("wamid.0"))))
    found = of(webhook)
    assert found.keys() == {WHOLE, "default"}
    for its in found.values():
        assert its.webhook_p95_ms == pytest.approx(200, rel=0.09)
    (kept,) = webhook.store.port.recent_counters(NOW)
    assert sorted(kept.counts.values()) == [4, 4]


def test_post_that_names_no_tenant_is_counted_for_the_whole_alone(webhook: WebhookParts) -> None:
    webhook.accept(parts.incoming(post(statuses=(receipt("wamid.1"),))))
    webhook.accept(parts.incoming(post(text("wamid.2"), to=STRANGER)))
    assert of(webhook).keys() == {WHOLE}


def test_post_that_fails_is_counted_and_an_unsigned_one_is_not(webhook: WebhookParts) -> None:
    with pytest.raises(SignatureInvalid):
        webhook.accept(parts.incoming(post(text("wamid.1")), signature="sha256=0"))
    assert webhook.parts.accept.counting._counters.left() is None  # type: ignore[attr-defined]
    webhook.store.before = lambda name, *_: StoreUnavailable() if name == "create_all" else None
    with pytest.raises(StoreUnavailable):
        webhook.accept(parts.incoming(post(text("wamid.2"))))
    assert of(webhook)[WHOLE].webhook_p95_ms is not None


def test_webhook_writes_its_counters_with_a_post_after_a_minute(webhook: WebhookParts) -> None:
    webhook.accept(parts.incoming(post(text("wamid.1"))))
    webhook.clock.go(59)
    webhook.accept(parts.incoming(post(text("wamid.2"))))
    assert webhook.store.asked("keep_counters") == []
    webhook.clock.go(1)
    webhook.accept(parts.incoming(post(text("wamid.3"))))
    parts.until(lambda: webhook.store.asked("keep_counters"))
    ((kept,),) = webhook.store.asked("keep_counters")
    assert sorted(kept.counts.values()) == [2, 2], "what was counted before this POST"


def test_post_is_accepted_while_its_counters_cannot_be_written(webhook: WebhookParts) -> None:
    webhook.accept(parts.incoming(post(text("wamid.1"))))
    webhook.clock.go(60)
    webhook.store.before = lambda name, *_: StoreUnavailable() if name == "keep_counters" else None
    webhook.accept(parts.incoming(post(text("wamid.2"))))
    assert webhook.store.port.get(key_of("wamid.2")) is not None
