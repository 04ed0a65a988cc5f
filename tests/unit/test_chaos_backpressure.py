"""Backpressure: a chaos run pauses while it breaks more than the machine can recover from."""

from cli.chaos.backpressure import Backpressure


def test_backpressure_starts_above_1000_open_records_and_ends_below_300() -> None:
    backpressure = Backpressure()
    taken = []
    for records in (0, 900, 1001, 900, 301, 299, 900, 1001):
        backpressure.look(records, now=0)
        taken.append(backpressure.is_paused)

    assert taken == [False, False, True, True, True, False, False, True]


def test_a_store_that_cannot_be_asked_changes_nothing() -> None:
    backpressure = Backpressure()
    backpressure.look(None, now=0)
    assert not backpressure.is_paused
    backpressure.look(5000, now=0)
    backpressure.look(None, now=0)
    assert backpressure.is_paused


def test_sender_resumes_when_backpressure_ends() -> None:
    backpressure = Backpressure()
    assert backpressure.wait(0)
    backpressure.look(5000, now=0)
    assert not backpressure.wait(0)
    backpressure.look(0, now=0)
    assert backpressure.wait(0)


def test_backpressure_for_stuck_records_ends_and_does_not_return() -> None:
    backpressure = Backpressure()
    taken = []
    for records, now in ((1500, 0), (1500, 100), (1500, 181), (1600, 190), (2600, 200), (1700, 210)):
        backpressure.look(records, now)
        taken.append(backpressure.is_paused)

    assert taken == [True, True, False, False, True, False]


def test_store_that_never_answers_ends_backpressure_too() -> None:
    backpressure = Backpressure()
    backpressure.look(1500, now=0)
    backpressure.look(None, now=181)
    assert not backpressure.is_paused
