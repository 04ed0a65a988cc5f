"""Dead letters through the API: listed, previewed, replayed and discarded by the code of the command line."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from shared.domain.errors import QueueUnavailable
from shared.domain.record import Attempt, Delivery, Kind, State
from shared.domain.tenants import Scope
from tests.support.api_service import ApiService, ids, problem
from tests.support.parts import NOW, a_reply, an_event

PATH = "/v1/dead-letters"


def dead(number: int = 1, **changes: Any) -> Delivery:
    """A message that WhatsApp refused for good, `number` seconds after NOW."""
    attempt = Attempt(NOW, 1, "refused", 131026)
    ended = {"state": State.DEAD, "reason": "permanent", "attempt": 1, "sweep_at": None, "attempts_log": (attempt,)}
    return replace(a_reply(number), **(ended | {"finished_at": NOW + timedelta(seconds=number)} | changes))


def put(api: ApiService, *records: Delivery) -> None:
    for record in records:
        api.store.port.create(record)


def decide(api: ApiService, id: str, what: str, body: dict[str, Any], key: str | None = None) -> Any:
    return api.call("POST", f"{PATH}/{id}/{what}", body, key=key)


# ---- list


def test_letters_come_newest_first_page_by_page(api: ApiService) -> None:
    letters = [dead(number) for number in range(5)]
    put(api, *letters, a_reply(9))
    key = api.key()
    first = api.call("GET", f"{PATH}?limit=3", key=key).get_json()
    second = api.call("GET", f"{PATH}?limit=3&cursor={first['next']}", key=key).get_json()
    assert ids([*first["items"], *second["items"]]) == [letter.key for letter in reversed(letters)]
    assert second["next"] is None


def test_pages_behind_the_first_are_of_one_reading(api: ApiService) -> None:
    put(api, *(dead(number) for number in range(5)))
    key, query = api.key("default", Scope.READ), f"{PATH}?limit=2"
    api.store.calls.clear()
    first = api.call("GET", query, key=key).get_json()
    one_reading = len(api.store.asked("listed"))
    second = api.call("GET", f"{query}&cursor={first['next']}", key=key).get_json()
    assert len(api.store.asked("listed")) == one_reading
    api.clock.go(60)
    put(api, dead(9))
    third = api.call("GET", f"{query}&cursor={second['next']}", key=key).get_json()
    assert len(api.store.asked("listed")) == 2 * one_reading, "a reading is a minute old at most"
    assert ids([*first["items"], *second["items"], *third["items"]]) == [dead(number).key for number in (4, 3, 2, 1, 0)]
    assert ids(api.call("GET", query, key=key).get_json()["items"]) == [dead(9).key, dead(4).key]


def test_list_says_if_more_match_than_it_has_read(api: ApiService, monkeypatch: pytest.MonkeyPatch) -> None:
    put(api, *(dead(number) for number in range(3)))
    assert api.call("GET", PATH).get_json()["complete"] is True
    monkeypatch.setattr("shared.operations.letters_page.MOST_READ", 3)
    assert api.call("GET", PATH).get_json()["complete"] is True
    monkeypatch.setattr("shared.operations.letters_page.MOST_READ", 2)
    found = api.call("GET", PATH).get_json()
    assert (len(found["items"]), found["complete"]) == (2, False)


def test_letter_shows_its_error_and_what_a_replay_would_do(api: ApiService) -> None:
    put(api, dead())
    (letter,) = api.call("GET", PATH, key=api.key("default", Scope.READ)).get_json()["items"]
    shown = {name: letter[name] for name in ("error", "code", "replay", "direction", "attempts", "round", "tenant")}
    assert shown == {
        "error": "permanent",
        "code": 131026,
        "replay": "again",
        "direction": "outbound",
        "attempts": 1,
        "round": 0,
        "tenant": "default",
    }


def test_preview_of_the_content_needs_the_scope_dead_read(api: ApiService) -> None:
    event = an_event(2, state=State.DEAD, reason="attempts", finished_at=NOW, sweep_at=None)
    put(api, dead(), event)
    without = api.call("GET", PATH, key=api.key("default", Scope.READ, Scope.SEND))
    assert not any("preview" in letter for letter in without.get_json()["items"])
    assert "15550002222" not in without.text
    with_ = api.call("GET", PATH, key=api.key("default", Scope.READ, Scope.READ_DEAD)).get_json()["items"]
    assert [letter["preview"] for letter in with_] == [
        {"contact": "15550002222", "type": "text", "text": "hello to you"},
        {"contact": "15550002222", "type": "text", "text": "hello 2"},
    ]


def test_long_text_is_cut_in_a_preview(api: ApiService) -> None:
    put(api, dead(payload={"type": "text", "content": {"body": "x" * 4000}, "to": "+15550002222"}))
    (letter,) = api.call("GET", PATH).get_json()["items"]
    assert letter["preview"]["text"] == "x" * 200


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("error=131026", [3, 2, 1]),
        ("error=permanent", [3, 2, 1]),
        ("error=attempts&error=131053", [4]),
        ("since=2026-03-01T12:00:03Z", [4, 3]),
        ("until=2026-03-01T12:00:01Z", [1]),
        ("direction=inbound", []),
        (f"sender={'0' * 40}", []),
    ],
)
def test_filters_are_those_of_the_command_line(api: ApiService, query: str, found: list[int]) -> None:
    letters = {number: dead(number) for number in (1, 2, 3)}
    letters[4] = dead(4, reason="attempts", attempts_log=(Attempt(NOW, 1, "refused", 131053),))
    put(api, *letters.values())
    assert ids(api.call("GET", f"{PATH}?{query}").get_json()["items"]) == [letters[number].key for number in found]


def test_letters_of_a_negative_code_are_found(api: ApiService) -> None:
    letter = dead(attempts_log=(Attempt(NOW, 1, "refused", -1),))
    put(api, letter, dead(2))
    assert ids(api.call("GET", f"{PATH}?error=-1").get_json()["items"]) == [letter.key]


@pytest.mark.parametrize(
    ("field", "query"),
    [
        ("error.0", "error=nonsense"),
        ("since", "since=2026-03-02T00:00:00Z&until=2026-03-01T00:00:00Z"),
        ("since", "since=0001-01-01T00:00:00%2B23:59"),
        ("until", "until=9999-12-31T23:59:59-23:59"),
        ("sender", "sender=x"),
        ("cursor", "cursor=x"),
        ("all", "all=true"),
    ],
)
def test_bad_parameter_is_named(api: ApiService, field: str, query: str) -> None:
    assert problem(api.call("GET", f"{PATH}?{query}")) == (400, "INVALID_REQUEST", field)


def test_events_of_unknown_senders_are_for_operators_who_ask(api: ApiService) -> None:
    stranger = an_event(1, tenant="", state=State.DROPPED, reason="unknown_sender", finished_at=NOW, sweep_at=None)
    put(api, stranger)
    operator, query = api.key(None), f"{PATH}?error=unknown_sender"
    assert ids(api.call("GET", query, key=operator).get_json()["items"]) == [stranger.key]
    assert api.call("GET", query).get_json()["items"] == []
    assert api.call("GET", PATH, key=operator).get_json()["items"] == []


# ---- replay


def test_replay_sends_the_message_in_a_new_round(api: ApiService) -> None:
    letter = dead()
    put(api, letter)
    decided = decide(api, letter.key, "replay", {}).get_json()
    assert (decided["outcome"], decided["dry_run"], decided["letter"]["error"]) == ("replayed", False, "permanent")
    record = api.stored(letter.key)
    assert (record.state, record.round) == (State.PENDING, 1)
    assert [task.generation for task, _ in api.made] == [record.generation]


def test_dry_run_changes_nothing(api: ApiService) -> None:
    letter = dead()
    put(api, letter)
    for what, body in (("replay", {}), ("discard", {"reason": "a wrong number"})):
        decided = decide(api, letter.key, what, body | {"dry_run": True}).get_json()
        assert (decided["outcome"], decided["dry_run"]) == (f"{what}ed", True)
    assert api.stored(letter.key).state is State.DEAD
    assert api.made == []


def test_copy_that_may_have_arrived_is_replayed_only_if_asked(api: ApiService) -> None:
    letter = dead(doubts=1, reason="in_doubt")
    put(api, letter)
    refused = decide(api, letter.key, "replay", {}).get_json()
    assert (refused["outcome"], "may_double" in refused["why"]) == ("skipped", True)
    assert api.stored(letter.key).state is State.DEAD
    assert decide(api, letter.key, "replay", {"may_double": True}).get_json()["outcome"] == "replayed"
    assert api.stored(letter.key).round == 1


def test_message_that_can_never_be_sent_is_not_replayed(api: ApiService) -> None:
    letter = dead(reason="invalid", last_error="The text of a message is empty.")
    put(api, letter)
    decided = decide(api, letter.key, "replay", {}).get_json()
    assert (decided["outcome"], letter.last_error in decided["why"]) == ("skipped", True)


@pytest.mark.parametrize("state", [State.PENDING, State.DONE])
def test_message_that_is_not_dead_is_left_as_it_is(api: ApiService, state: State) -> None:
    record = a_reply(state=state)
    put(api, record)
    for what, body in (("replay", {}), ("discard", {"reason": "a wrong number"})):
        for dry_run in (True, False):
            decided = decide(api, record.key, what, body | {"dry_run": dry_run}).get_json()
            assert (decided["outcome"], bool(decided["why"])) == ("skipped", True)
    assert api.stored(record.key).state is state
    assert api.made == []


def test_repeated_replay_makes_the_task_that_a_crash_left_out(api: ApiService) -> None:
    letter, key = dead(), api.key()
    put(api, letter)
    api.is_down(api.queue, QueueUnavailable())
    assert problem(decide(api, letter.key, "replay", {}, key)) == (503, "UNAVAILABLE", None)
    api.queue.before = lambda *_: None
    assert decide(api, letter.key, "replay", {}, key).get_json()["outcome"] == "replayed"
    assert api.stored(letter.key).round == 1
    assert len({task.name for task, _ in api.made}) == 1


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize(("what", "body"), [("replay", {}), ("discard", {"reason": "a wrong number"})])
def test_decision_shows_content_only_with_the_scope_dead_read(
    api: ApiService, what: str, body: dict[str, Any], dry_run: bool
) -> None:
    one, other = dead(), dead(2)
    put(api, one, other)
    without = decide(api, one.key, what, body | {"dry_run": dry_run}, api.key("default", Scope.SEND, Scope.READ))
    with_ = decide(api, other.key, what, body | {"dry_run": dry_run}, api.key("default", Scope.SEND, Scope.READ_DEAD))
    assert "preview" not in without.get_json()["letter"]
    assert "15550002222" not in without.text
    assert with_.get_json()["letter"]["preview"]["text"] == "hello to you"


# ---- discard


def test_discard_keeps_the_reason_with_the_message(api: ApiService) -> None:
    letter, key = dead(), api.key()
    put(api, letter)
    first, again = (decide(api, letter.key, "discard", {"reason": " a wrong number "}, key) for _ in range(2))
    assert (first.get_json()["outcome"], again.get_json()["outcome"]) == ("discarded", "discarded")
    record = api.stored(letter.key)
    assert (record.state, record.reason) == (State.DROPPED, "discarded")
    assert record.metadata["discarded_because"] == "a wrong number"


@pytest.mark.parametrize("body", [{}, {"reason": ""}, {"reason": "  "}, {"reason": "x" * 501}, {"reason": 1}])
def test_discard_needs_a_reason(api: ApiService, body: dict[str, Any]) -> None:
    letter = dead()
    put(api, letter)
    assert problem(decide(api, letter.key, "discard", body)) == (400, "INVALID_REQUEST", "reason")
    assert api.stored(letter.key).state is State.DEAD


# ---- all that match


def decide_all(api: ApiService, what: str, body: dict[str, Any], key: str | None = None) -> Any:
    return api.call("POST", f"{PATH}/{what}", body, key=key)


def outcomes(answer: Any) -> list[tuple[str, str]]:
    return [(one["id"], one["outcome"]) for one in answer.get_json()["items"]]


def test_letters_that_match_are_replayed_the_newest_first(api: ApiService) -> None:
    letters = [dead(number) for number in range(3)]
    others = [dead(7, reason="attempts"), dead(8, kind=Kind.INBOUND, payload=an_event(8).payload)]
    put(api, *letters, *others)
    answer = decide_all(api, "replay", {"error": ["permanent"], "direction": "outbound"})
    assert outcomes(answer) == [(letter.key, "replayed") for letter in reversed(letters)]
    assert (answer.get_json()["next"], answer.get_json()["complete"]) == (None, True)
    assert [api.stored(one.key).round for one in (*letters, *others)] == [1, 1, 1, 0, 0]
    assert [task.key for task, _ in api.made] == [letter.key for letter in reversed(letters)]


def test_letters_that_match_are_discarded_with_the_reason(api: ApiService) -> None:
    letters = [dead(number) for number in range(2)]
    put(api, *letters)
    answer = decide_all(api, "discard", {"all": True, "reason": " too old "})
    assert outcomes(answer) == [(letter.key, "discarded") for letter in reversed(letters)]
    assert {api.stored(letter.key).metadata["discarded_because"] for letter in letters} == {"too old"}


def test_dry_run_of_many_changes_nothing(api: ApiService) -> None:
    put(api, dead(1), dead(2, doubts=1))
    for what, body, expected in (
        ("replay", {}, ["skipped", "replayed"]),
        ("replay", {"may_double": True}, ["replayed"] * 2),
        ("discard", {"reason": "too old"}, ["discarded"] * 2),
    ):
        found = decide_all(api, what, {"all": True, "dry_run": True} | body).get_json()["items"]
        assert [(one["outcome"], one["dry_run"]) for one in found] == [(outcome, True) for outcome in expected]
    assert api.call("GET", PATH).get_json()["items"][0]["round"] == 0
    assert api.made == []


def test_many_letters_are_decided_about_in_several_requests(api: ApiService) -> None:
    letters, key = [dead(number) for number in range(5)], api.key()
    put(api, *letters)
    first = decide_all(api, "replay", {"all": True, "limit": 3}, key).get_json()
    put(api, dead(9))
    second = decide_all(api, "replay", {"all": True, "limit": 3, "cursor": first["next"]}, key).get_json()
    assert ids([*first["items"], *second["items"]]) == [letter.key for letter in reversed(letters)]
    assert second["next"] is None
    assert api.stored(dead(9).key).round == 0, "it came later"


@pytest.mark.parametrize("body", [{}, {"all": False}, {"all": True, "error": ["permanent"]}, {"limit": 5}])
def test_decision_about_many_needs_a_filter_or_all(api: ApiService, body: dict[str, Any]) -> None:
    put(api, dead())
    for what, more in (("replay", {}), ("discard", {"reason": "x"})):
        assert problem(decide_all(api, what, body | more)) == (400, "INVALID_REQUEST", "all")
    assert api.stored(dead().key).round == 0


@pytest.mark.parametrize(
    ("body", "field"),
    [({"all": 1}, "all"), ({"error": "permanent"}, "error"), ({"all": True, "limit": 101}, "limit"), ({"x": 1}, "x")],
)
def test_bad_field_of_a_decision_about_many_is_named(api: ApiService, body: dict[str, Any], field: str) -> None:
    assert problem(decide_all(api, "replay", body)) == (400, "INVALID_REQUEST", field)
    assert problem(decide_all(api, "discard", body | {"reason": "x"})) == (400, "INVALID_REQUEST", field)


def test_discard_of_many_needs_a_reason(api: ApiService) -> None:
    assert problem(decide_all(api, "discard", {"all": True})) == (400, "INVALID_REQUEST", "reason")


def test_letter_decided_about_meanwhile_is_left_out(api: ApiService) -> None:
    letters, key = [dead(number) for number in range(4)], api.key()
    put(api, *letters)
    first = decide_all(api, "replay", {"all": True, "limit": 2, "dry_run": True}, key).get_json()
    decide(api, letters[1].key, "discard", {"reason": "x"}, key)
    second = decide_all(api, "replay", {"all": True, "cursor": first["next"]}, key)
    assert outcomes(second) == [(letters[0].key, "replayed")]


def test_queue_that_is_away_ends_a_replay_of_many_which_may_be_repeated(api: ApiService) -> None:
    letters, key = [dead(number) for number in range(3)], api.key()
    put(api, *letters)
    made: list[Any] = []

    def away_after_one(name: str, *_: Any) -> Exception | None:
        made.append(name)
        return QueueUnavailable() if len(made) > 1 else None

    api.queue.before = away_after_one
    assert problem(decide_all(api, "replay", {"all": True}, key)) == (503, "UNAVAILABLE", None)
    api.queue.before = lambda *_: None
    assert outcomes(decide_all(api, "replay", {"all": True}, key)) == [(letters[0].key, "replayed")]
    assert [api.stored(letter.key).round for letter in letters] == [1, 1, 1]


def test_decision_about_many_is_about_the_callers_own_letters(api: ApiService) -> None:
    api.tenant("bakery", "201")
    ours, theirs = dead(1), dead(2, tenant="bakery")
    put(api, ours, theirs)
    key = api.key("bakery")
    assert problem(decide_all(api, "replay", {"tenant": "default"}, key)) == (404, "NOT_FOUND", None)
    assert outcomes(decide_all(api, "replay", {"all": True}, key)) == [(theirs.key, "replayed")]
    assert api.stored(ours.key).round == 0
    operators = decide_all(api, "discard", {"tenant": "default", "reason": "x"}, api.key(None))
    assert outcomes(operators) == [(ours.key, "discarded")]


def test_decision_about_many_shows_content_only_with_the_scope_dead_read(api: ApiService) -> None:
    put(api, dead())
    for scopes, is_shown in (((Scope.SEND,), False), ((Scope.SEND, Scope.READ_DEAD), True)):
        answer = decide_all(api, "replay", {"all": True, "dry_run": True}, api.key("default", *scopes))
        (item,) = answer.get_json()["items"]
        assert ("preview" in item["letter"]) is is_shown
    for what, body in (("replay", {}), ("discard", {"reason": "x"})):
        key = api.key("default", Scope.READ, Scope.READ_DEAD, Scope.MANAGE)
        assert problem(decide_all(api, what, {"all": True} | body, key)) == (403, "FORBIDDEN", None)


# ---- who may


def test_letter_of_another_tenant_does_not_exist(api: ApiService) -> None:
    letter = dead()
    put(api, letter)
    api.tenant("bakery", "201")
    key = api.key("bakery")
    assert api.call("GET", PATH, key=key).get_json()["items"] == []
    assert problem(api.call("GET", f"{PATH}?tenant=default", key=key))[0] == 404
    for what, body in (("replay", {}), ("discard", {"reason": "x"})):
        theirs, nobodys = (decide(api, id, what, body, key) for id in (letter.key, "0a" * 20))
        assert problem(theirs) == (404, "NOT_FOUND", None)
        assert theirs.data == nobodys.data
    assert api.stored(letter.key).state is State.DEAD


def test_decision_needs_the_scope_send(api: ApiService) -> None:
    letter, key = dead(), api.key("default", Scope.READ, Scope.READ_DEAD, Scope.MANAGE)
    put(api, letter)
    for what, body in (("replay", {}), ("discard", {"reason": "x"})):
        assert problem(decide(api, letter.key, what, body, key)) == (403, "FORBIDDEN", None)
    assert problem(api.call("GET", PATH, key=api.key("default", Scope.SEND))) == (403, "FORBIDDEN", None)
