"""What a person is told of a letter that is left as it is."""

from collections.abc import Callable
from pathlib import Path

import pytest

from shared.operations.dead_letters import Discard, Done, Replay
from shared.tenants.environment import EnvironmentTenants
from tests.support.builders import LIMITS, done
from tests.support.pipelines import Clock, Queue, Store

MAKERS: dict[str, Callable[[Store, Queue, Clock], Replay | Discard]] = {
    "replay": lambda store, queue, clock: Replay(store, queue, EnvironmentTenants.of(), LIMITS, clock),
    "discard": lambda store, _, clock: Discard(store, LIMITS, clock, "a test"),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
def test_replay_skips_a_record_that_is_not_a_dead_letter_with_a_reason(
    tmp_path: Path, make: Callable[[Store, Queue, Clock], Replay | Discard]
) -> None:
    clock, queue = Clock(), Queue()
    store = Store(tmp_path, clock)
    record = done()
    store.create(record)
    outcome = make(store, queue, clock)(record.key)
    assert outcome.done is Done.SKIPPED
    assert (outcome.why or "").endswith(".")
    assert (queue.made, store.get(record.key)) == ([], record)
