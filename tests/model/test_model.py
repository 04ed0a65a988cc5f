"""The model: in every setting, whatever happens in whatever order, every invariant holds and an end can be reached."""

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.model.engine import Explored, Move, TooLarge, explore
from tests.model.explorer import report
from tests.model.setting import Setting
from tests.model.settings import QUICK, SLOW
from tests.model.world import Mishap

PAGE = (Path(__file__).parents[2] / "docs" / "model.md").read_text()


def check(setting: Setting) -> None:
    found = report(setting, at_most=2 * setting.states)
    assert found.broken is None, str(found)
    assert found.ends
    assert abs(found.states - setting.states) <= setting.states / 10, f"{setting.name} has {found.states:,} states"


@pytest.mark.parametrize("setting", QUICK, ids=lambda setting: setting.name)
def test_every_invariant_holds_in_each_small_setting(setting: Setting) -> None:
    check(setting)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("setting", SLOW, ids=lambda setting: setting.name)
def test_every_invariant_holds_in_each_larger_setting(setting: Setting) -> None:
    check(setting)


def test_the_small_settings_are_few_enough_states_for_every_run() -> None:
    assert sum(setting.states for setting in QUICK) <= 135_000


@pytest.mark.parametrize("mishap", Mishap, ids=lambda mishap: mishap.name)
def test_every_mishap_is_part_of_a_small_setting(mishap: Mishap) -> None:
    assert any(setting.budget[mishap] for setting in QUICK)


@pytest.mark.parametrize("setting", [*QUICK, *SLOW], ids=lambda setting: setting.name)
def test_page_has_each_setting_and_its_size(setting: Setting) -> None:
    assert re.search(rf"^\| {re.escape(setting.name)} \| {setting.states:,} \|", PAGE, re.MULTILINE)


# ---- the exploration itself, on numbers


def walk(moves: dict[int, list[Move[int]]], ends: Iterable[int] = (), at_most: int = 100) -> Explored[int]:
    return explore(
        0,
        lambda state: moves.get(state, []),
        lambda state: "bad" if state == 13 else None,
        set(ends).__contains__,
        at_most,
    )


def test_broken_invariant_is_reported_with_a_shortest_trace() -> None:
    found = walk({0: [Move("long", 1), Move("short", 2)], 1: [Move("on", 3)], 2: [Move("in", 13)], 3: [Move("in", 13)]})
    assert (found.broken, found.trace, found.last) == ("bad", ["short", "in"], 13)


def test_a_step_that_breaks_something_is_part_of_the_way_there() -> None:
    found = walk({0: [Move("on", 1)], 1: [Move("wrong", 2, broken="bad step")]})
    assert (found.broken, found.trace, found.last) == ("bad step", ["on", "wrong"], 2)


def test_a_state_that_no_move_leads_out_of_is_stuck() -> None:
    found = walk({0: [Move("good", 1), Move("bad", 2)], 2: [Move("further", 3)], 3: [Move("on the spot", 3)]}, ends=[1])
    assert (found.broken, found.trace) == ("I2: stuck, no end can be reached", ["bad", "further"])


def test_end_reached_only_by_chance_does_not_count() -> None:
    lucky = {0: [Move("on", 1)], 1: [Move("a person helps", 2, ordinary=False)]}
    assert walk(lucky, ends=[2]).trace == ["on"]
    assert walk({**lucky, 1: [Move("by itself", 2)]}, ends=[2]).broken is None


def test_where_nothing_is_broken_the_states_and_ends_are_counted() -> None:
    found = walk({0: [Move("a", 1), Move("b", 2)], 1: [Move("c", 2)]}, ends=[2])
    assert (found.states, found.ends, found.broken, found.trace) == (3, 1, None, ())


def test_more_states_than_were_allowed_are_refused() -> None:
    with pytest.raises(TooLarge):
        walk({number: [Move("on", number + 1)] for number in range(12)}, at_most=5)
