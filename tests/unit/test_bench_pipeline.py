"""The benchmark of the pipeline does what it measures: every message is handled, answered and sent, in both forms."""

from pathlib import Path

import pytest

from bench.pipeline import Pipeline, lines
from shared.domain.identity import message_event_id, outbound_key
from shared.domain.record import State


@pytest.mark.parametrize("has_turns", [True, False])
def test_each_message_of_the_benchmark_is_handled_and_its_reply_sent(tmp_path: Path, has_turns: bool) -> None:
    pipeline = Pipeline(tmp_path, has_turns)
    pipeline.work([pipeline.received(number, number % 3) for number in range(9)])
    assert pipeline.one(pipeline.received(9, 0)) > 0
    events = [message_event_id("meta", "100000000000001", f"wamid.{number}") for number in range(10)]
    replies = [pipeline.store.get(outbound_key(event, 0)) for event in events]
    assert {reply and reply.state for reply in replies} == {State.DONE}
    assert {reply is not None and reply.conversation is not None for reply in replies} == {has_turns}
    pipeline.store.close()


def test_table_of_the_benchmark_has_both_forms_and_their_ratio() -> None:
    *_, without, with_turns, ratio = lines(rounds=1, contacts=2, messages=4, single=2)
    assert (without.split(" |")[0], with_turns.split(" |")[0], ratio.split(" |")[0]) == (
        "| none of them",
        "| turns, conversations, lanes",
        "| ratio",
    )
