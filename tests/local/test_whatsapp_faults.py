"""What the simulator does wrong when it is asked to. Each fault is used up by what it fits, so many times."""

from collections.abc import Iterator

import httpx
import pytest

from tests.support.whatsapp_harness import BSUID, CUSTOMER, SENDER, Simulator, Webhook, message, running, until


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Simulator, Webhook]]:
    with running(tmp_path_factory.mktemp("simulator"), "--time-scale", "10") as started:
        yield started


@pytest.fixture
def simulator(world: tuple[Simulator, Webhook]) -> Simulator:
    simulator, webhook = world
    simulator.control("DELETE", "faults")
    simulator.quiet()
    simulator.control("DELETE", "ledger")
    webhook.posts.clear()
    return simulator


@pytest.fixture
def webhook(world: tuple[Simulator, Webhook]) -> Webhook:
    return world[1]


@pytest.mark.parametrize(
    ("code", "status"),
    [(1, 400), (2, 503), (4, 400), (10, 403), (190, 401), (200, 403), (80007, 400), (130429, 400), (131000, 500),
     (131016, 500), (131026, 400), (131047, 400), (131056, 400), (131057, 500), (132001, 404), (133004, 503)],
)  # fmt: skip
def test_error_has_metas_wording_and_accepts_nothing(
    simulator: Simulator, webhook: Webhook, code: int, status: int
) -> None:
    """Statuses: an older edition of Meta's error page; throttles are HTTP 400 there."""
    simulator.fault(on="send", kind="error", code=code)
    answer = simulator.send()
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert (simulator.ledger(), webhook.posts) == ([], [])


def test_error_can_have_another_status_a_subcode_and_be_transient(simulator: Simulator) -> None:
    simulator.fault(on="send", kind="error", code=100, status=500, subcode=33, transient=True)
    answer = simulator.send()
    error = answer.json()["error"]
    assert (answer.status_code, error["error_subcode"], error["is_transient"]) == (500, 33, True)


def test_the_faults_that_were_made_are_counted(simulator: Simulator) -> None:
    before = simulator.control("GET", "faults/made").get("send error", 0)
    simulator.fault(on="send", kind="error", code=130429)
    simulator.send()
    assert simulator.control("GET", "faults/made")["send error"] == before + 1


def test_an_error_without_a_code_is_html_from_a_proxy(simulator: Simulator) -> None:
    simulator.fault(on="send", kind="error", status=503)
    answer = simulator.send()
    assert answer.status_code == 503
    assert answer.headers["content-type"].startswith("text/html")


def test_plain_429_can_have_a_retry_after(simulator: Simulator) -> None:
    simulator.fault(on="send", kind="error", status=429, retry_after=7)
    answer = simulator.send()
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "7")


def test_a_fault_is_used_up_and_the_next_message_is_accepted(simulator: Simulator) -> None:
    simulator.fault(on="send", kind="error", code=131016, times=2)
    assert [simulator.send().status_code for _ in range(3)] == [500, 500, 200]
    assert simulator.control("GET", "faults") == []


def test_fault_with_times_0_lasts_until_cleared(simulator: Simulator) -> None:
    simulator.fault(on="send", kind="error", code=131016, times=0)
    assert [simulator.send().status_code for _ in range(3)] == [500, 500, 500]
    simulator.control("DELETE", "faults")
    assert simulator.send().status_code == 200


@pytest.mark.parametrize("to", [CUSTOMER, f"+{CUSTOMER}"])
def test_a_match_on_the_number_hits_that_number_alone(simulator: Simulator, to: str) -> None:
    simulator.fault(on="send", kind="error", code=131026, match={"to": to})
    assert simulator.send(to="+15550003333").status_code == 200
    assert simulator.send().status_code == 400


def test_a_match_on_a_bsuid_hits_it(simulator: Simulator) -> None:
    simulator.fault(on="send", kind="error", code=131062, match={"to": BSUID})
    assert simulator.send().status_code == 200
    assert simulator.send(to=None, recipient=BSUID).status_code == 400


def test_a_match_on_type_and_sender_needs_both(simulator: Simulator) -> None:
    simulator.fault(on="send", kind="error", code=131053, match={"type": "image", "phone_number_id": SENDER})
    assert simulator.send().status_code == 200
    assert simulator.call(message(image={"id": "1"})).status_code == 400


def test_a_refused_request_uses_up_no_fault(simulator: Simulator) -> None:
    simulator.fault(on="send", kind="error", code=131016)
    assert simulator.call(message(text={})).status_code == 400
    assert simulator.send().status_code == 500


@pytest.mark.parametrize("match", [{}, {"phone_number_id": SENDER}])
def test_a_read_call_meets_no_fault_on_send(simulator: Simulator, match: dict) -> None:
    (received,) = simulator.inbound()
    simulator.fault(on="send", kind="error", code=131016, match=match)
    assert simulator.read(received).json() == {"success": True}
    assert simulator.send().status_code == 500


def test_a_fault_on_send_that_names_read_calls_is_refused(simulator: Simulator) -> None:
    fault = {"on": "send", "kind": "error", "code": 131009, "match": {"type": "read"}}
    assert simulator.refusal(fault) == "A fault on send spares read calls; use on provider."


def test_a_typing_call_meets_only_a_fault_on_send_that_names_it(simulator: Simulator) -> None:
    (received,) = simulator.inbound()
    simulator.fault(on="send", kind="error", code=131016)
    assert simulator.read(received, typing=True).status_code == 200
    simulator.fault(on="send", kind="error", code=131009, match={"type": "typing"})
    assert simulator.read(received, typing=True).status_code == 400
    assert simulator.send().status_code == 500


def test_a_slow_message_is_accepted_at_once_and_answered_later(simulator: Simulator) -> None:
    simulator.fault(on="send", kind="slow", seconds=0.3)
    assert simulator.send().elapsed.total_seconds() >= 0.3
    (entry,) = simulator.ledger()
    assert entry["answered"] > entry["accepted_at"]


def test_client_that_times_out_on_a_slow_answer_leaves_it_unanswered(simulator: Simulator) -> None:
    simulator.fault(on="send", kind="slow", seconds=0.3)
    with httpx.Client(timeout=0.1) as impatient, pytest.raises(httpx.ReadTimeout):
        impatient.post(
            f"{simulator.address}/v25.0/{SENDER}/messages",
            json=message(text={"body": "hi"}),
            headers={"Authorization": "Bearer test_access_token"},
        )
    simulator.quiet()
    assert [entry["answered"] for entry in simulator.ledger()] == [None]


def test_accept_then_drop_leaves_a_message_its_receipts_and_no_answer(simulator: Simulator, webhook: Webhook) -> None:
    simulator.fault(on="send", kind="accept_then_drop")
    with pytest.raises(httpx.RemoteProtocolError):
        simulator.send()
    simulator.quiet()
    assert [entry["answered"] for entry in simulator.ledger()] == [None]
    assert sorted(webhook.receipts) == ["delivered", "read", "sent"]
    assert simulator.control("GET", "calls")[0]["status"] is None


def test_drop_closes_the_connection_and_accepts_nothing(simulator: Simulator, webhook: Webhook) -> None:
    simulator.fault(on="send", kind="drop")
    with pytest.raises(httpx.TransportError):
        simulator.send()
    assert (simulator.ledger(), webhook.posts) == ([], [])


def test_refuse_answers_503_and_accepts_nothing(simulator: Simulator) -> None:
    """Graph error 2 with 503, a provider that is down: https://developers.facebook.com/docs/graph-api/guides/error-handling."""
    simulator.fault(on="send", kind="refuse")
    answer = simulator.send()
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, 2)
    assert simulator.ledger() == []
    assert simulator.send().status_code == 200


@pytest.mark.parametrize("kind", ["withhold", "drop"])
def test_a_webhook_lost_on_its_way_is_redelivered(simulator: Simulator, webhook: Webhook, kind: str) -> None:
    before = simulator.quiet()["attempts"]
    simulator.fault(on="webhook", kind=kind)
    ids = simulator.inbound()
    assert simulator.quiet()["attempts"] == before + 2
    assert [post.message_ids for post in webhook.posts] == [ids]


def test_webhooks_are_lost_until_the_fault_is_cleared(simulator: Simulator, webhook: Webhook) -> None:
    before = simulator.quiet()["attempts"]
    simulator.fault(on="webhook", kind="drop", times=0)
    simulator.inbound()
    until(lambda: simulator.control("GET", "webhooks")["attempts"] >= before + 2, "two lost attempts")
    assert webhook.posts == []
    simulator.control("DELETE", "faults")
    simulator.quiet()
    assert len(webhook.posts) == 1


@pytest.mark.parametrize("times", [0, 1])
def test_a_duplicated_webhook_is_delivered_twice(simulator: Simulator, webhook: Webhook, times: int) -> None:
    simulator.fault(on="webhook", kind="duplicate", times=times)
    simulator.inbound()
    simulator.quiet()
    assert len(webhook.posts) == 2
    assert webhook.posts[0].body == webhook.posts[1].body


def test_a_reordered_webhook_is_overtaken_by_the_next(simulator: Simulator, webhook: Webhook) -> None:
    simulator.fault(on="webhook", kind="reorder")
    simulator.inbound(id="wamid.FIRST")
    simulator.inbound(id="wamid.SECOND")
    simulator.quiet()
    assert [post.message_ids for post in webhook.posts] == [["wamid.SECOND"], ["wamid.FIRST"]]


@pytest.mark.parametrize("times", [0, 1])
def test_a_slow_webhook_comes_once_and_late(simulator: Simulator, webhook: Webhook, times: int) -> None:
    simulator.fault(on="webhook", kind="slow", seconds=0.3, times=times)
    simulator.inbound()
    simulator.quiet()
    (post,) = webhook.posts
    assert post.at - float(post.value["messages"][0]["timestamp"]) >= 0.3


def test_a_webhook_fault_can_name_what_it_carries(simulator: Simulator, webhook: Webhook) -> None:
    simulator.fault(on="webhook", kind="duplicate", match={"type": "delivered", "to": CUSTOMER})
    simulator.send()
    simulator.quiet()
    assert sorted(webhook.receipts) == ["delivered", "delivered", "read", "sent"]


def test_a_task_fault_waits_in_the_book_for_the_tasks_emulator(simulator: Simulator) -> None:
    simulator.fault(on="task", kind="drop", times=3)
    (fault,) = simulator.control("GET", "faults")
    assert (fault["on"], fault["kind"], fault["times"]) == ("task", "drop", 3)


def test_invalid_fault_is_answered_with_a_sentence(simulator: Simulator) -> None:
    refusal = simulator.refusal({"on": "send", "kind": "early"})
    assert refusal == "kind is one of accept_then_drop, drop, error, refuse, slow where on is send."
