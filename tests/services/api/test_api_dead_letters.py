"""Dead letters through the API: listed, previewed, replayed and discarded by the code of the command line."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from shared.domain.errors import QueueUnavailable
from shared.domain.record import Attempt, Delivery, State
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
