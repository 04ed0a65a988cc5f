"""Handler places: a tenant's handler holds at most a quarter of a process's request threads."""

import threading

import pytest

from shared.handlers.hung_threads import HungThreads
from shared.pipeline.handler_places import HandlerPlaces
from tests.support.internal_service import at_once


def taken(places: HandlerPlaces, tenant: str, is_shared: bool = True) -> int:
    """How many places can be taken, of 40 tries."""
    return sum(places.take(tenant, is_shared) for _ in range(40))


@pytest.mark.parametrize(("threads", "most"), [(1, 1), (4, 1), (7, 1), (8, 2), (16, 4), (80, 20)])
def test_tenant_gets_a_quarter_of_the_threads_and_one_at_least(threads: int, most: int) -> None:
    assert taken(HandlerPlaces(threads), "acme") == most


def test_full_tenant_leaves_the_places_of_others_free() -> None:
    places = HandlerPlaces(16)
    assert [taken(places, tenant) for tenant in ("acme", "globex", "initech", "umbrella")] == [4, 4, 4, 4]


def test_single_tenant_has_no_limit_and_counts_once_there_are_others() -> None:
    places = HandlerPlaces(16)
    assert taken(places, "default", is_shared=False) == 40
    assert not places.take("default", True)
    assert places.take("acme", True)


def test_place_that_was_given_back_can_be_taken_again() -> None:
    places = HandlerPlaces(16)
    assert taken(places, "acme") == 4
    places.give_back("acme")
    assert [places.take("acme", True) for _ in range(2)] == [True, False]


def test_hung_threads_keep_their_places_until_they_end() -> None:
    hung = HungThreads(16)
    places = HandlerPlaces(16, hung.of)
    for _ in range(3):
        hung.begin("acme")
    assert taken(places, "acme") == 1
    assert taken(places, "globex") == 4
    hung.end("acme")
    assert taken(places, "acme") == 1


def test_places_of_ten_thousand_tenants_leave_nothing_behind() -> None:
    hung = HungThreads(16)
    places = HandlerPlaces(16, hung.of)
    for number in range(10_000):
        assert places.take(f"tenant-{number}", True)
        places.give_back(f"tenant-{number}")
        hung.begin(f"tenant-{number}")
        hung.end(f"tenant-{number}")
    assert (len(places._taken), len(hung._of)) == (0, 0)


def test_many_threads_take_no_more_than_there_are() -> None:
    places, barrier = HandlerPlaces(16), threading.Barrier(20, timeout=30)

    def take() -> bool:
        barrier.wait()
        return places.take("acme", True)

    assert sum(at_once([take] * 20)) == 4


def test_hung_threads_of_all_tenants_exhaust_the_process_together() -> None:
    hung = HungThreads(2)
    hung.begin("acme")
    assert not hung.exhausted
    hung.begin("globex")
    assert (hung.exhausted, hung.of("acme"), hung.of("globex"), hung.of("initech")) == (True, 1, 1, 0)
    hung.end("acme")
    assert (hung.exhausted, hung.of("acme")) == (False, 0)


def test_thread_that_ends_before_it_counts_as_hung_counts_for_nothing() -> None:
    """A call may end in the moment in which its request gives up."""
    hung = HungThreads(1)
    hung.end("acme")
    hung.begin("acme")
    assert (hung.of("acme"), hung.exhausted) == (0, False)
