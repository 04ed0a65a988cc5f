"""The delivery state machine and its guards at the edge of each condition: the very moment, the missing part."""

from typing import Any, get_args

import pytest

from shared.domain.dead_letters import dead_letter
from shared.domain.delivery.answers import Answer, Run, Step, TaskResult
from shared.domain.delivery.lease import lease
from shared.domain.delivery.settle import settle
from shared.domain.delivery.sweep import sweep
from shared.domain.errors import Forbidden
from shared.domain.guards import DOWN, Elect, Go, Wait, inbound_guard
from shared.domain.marks import Outage
from shared.domain.record import Attempt, Delivery, Kind
from shared.domain.send_errors import (
    AccessDenied,
    AnswerLost,
    CredentialInvalid,
    LimitReached,
    OutageInSuccess,
    ProviderUnavailable,
    SenderBlocked,
    SendError,
    SendRefused,
    TryLater,
)
from shared.domain.verdicts import (
    Accepted,
    Blocked,
    BlockScope,
    CredentialRefused,
    Downloaded,
    DownloadVerdict,
    Limited,
    LimitScope,
    Lost,
    ProviderDown,
    Refused,
    Released,
    Replied,
    Retry,
    SendVerdict,
    Unobtainable,
    of_download,
)
from tests.support.builders import (
    FAILED,
    LIMITS,
    MINE,
    NO_JITTER,
    NOW,
    at,
    dead,
    done,
    in_doubt,
    leased,
    pending,
    task_for,
)

EARLY = LIMITS.early
SECONDS = LIMITS.waits.claimed


def test_doubt_can_end_early_by_the_clock_tolerance() -> None:
    record = in_doubt(doubt_until=NOW + EARLY)
    step = lease(record, task_for(record), MINE, Go(), LIMITS, NOW)
    assert isinstance(step.next, Run)


def test_result_for_a_missing_record_writes_nothing() -> None:
    assert settle(None, MINE, Replied(()), LIMITS, NOW, NO_JITTER) == Step(Answer(TaskResult.CONFLICT, "gone"))


@pytest.mark.parametrize(
    ("stored", "told", "kept"),
    [("", "15550009999", "15550009999"), ("", None, ""), ("15550002222", "15550009999", "15550002222")],
)
def test_a_handlers_answer_fills_in_the_contact_of_an_event_stored_without(
    stored: str, told: str | None, kept: str
) -> None:
    event = leased(Kind.INBOUND, token=MINE, contact=stored)
    step = settle(event, MINE, Replied(({"type": "text"},), told), LIMITS, NOW, NO_JITTER)
    assert step.write is not None
    (reply,) = step.create
    assert [record.contact for record in (step.write, reply)] == [kept, kept]


@pytest.mark.parametrize("record", [done(sweep_at=at(-1)), pending(sweep_at=None), pending(sweep_at=at(1)), None])
def test_the_sweep_leaves_alone_what_is_final_or_not_overdue(record: Delivery | None) -> None:
    assert sweep(record, LIMITS, NOW) == Step(Answer(TaskResult.ACK, record.state if record else "gone"))


def test_the_sweep_takes_what_is_overdue_this_very_moment() -> None:
    step = sweep(pending(sweep_at=NOW), LIMITS, NOW)
    assert step.write is not None
    assert step.write.sweeps == 2


def test_dead_letter_time_ignores_later_receipts() -> None:
    letter = dead_letter(dead(reason="in_doubt", doubts=2, receipts={0: FAILED}))
    assert letter is not None
    assert letter.at == at(-10)


@pytest.mark.parametrize(
    ("reason", "code"), [("in_doubt", 131000), ("permanent", 131000), ("attempts", 131000), ("waited", 131000)]
)
def test_dead_letter_has_the_code_of_the_last_attempt_if_it_is_the_cause(reason: str, code: int) -> None:
    letter = dead_letter(dead(reason=reason, doubts=2, attempts_log=(Attempt(at(-10), 1, "lost", 131000),)))
    assert letter is not None
    assert (letter.error, letter.code) == (reason, code)


def test_dead_letter_ended_by_its_window_has_no_code() -> None:
    letter = dead_letter(dead(reason="window", attempts_log=(Attempt(at(-10), 1, "retry", 131016),)))
    assert letter is not None
    assert (letter.error, letter.code) == ("window", None)


def test_dead_letter_refused_by_receipt_has_the_time_of_the_receipt() -> None:
    letter = dead_letter(done(receipts={0: FAILED}))
    assert letter is not None
    assert letter.at == at(-5)


def test_backend_probe_can_start_early_by_the_clock_tolerance() -> None:
    down = Outage(NOW + EARLY, LIMITS.waits.claimed)
    assert inbound_guard(down, pending(Kind.INBOUND), LIMITS, NOW) == Elect(frozenset({DOWN}), "backend_down")
    later = Outage(at(1) + EARLY, LIMITS.waits.claimed)
    assert isinstance(inbound_guard(later, pending(Kind.INBOUND), LIMITS, NOW), Wait)


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (SendError(7, retry_after=SECONDS), Lost(7)),
        (AnswerLost(), Lost(None, outage=True)),
        (AnswerLost(status=499), Lost(None)),
        (AnswerLost(status=500), Lost(None, outage=True)),
        (AnswerLost(1, status=500), Lost(1)),
        (OutageInSuccess(2, status=200), Lost(2, outage=True)),
        (ProviderUnavailable(2, retry_after=SECONDS), ProviderDown(2, SECONDS)),
        (TryLater(3, retry_after=SECONDS), Retry(3, SECONDS)),
        (LimitReached(4, retry_after=SECONDS), Limited(LimitScope.ACCOUNT, 4, SECONDS)),
        (LimitReached(), Limited(LimitScope.ACCOUNT, 0)),
        (CredentialInvalid(190, retry_after=SECONDS), CredentialRefused(190, retry_after=SECONDS)),
        (CredentialInvalid(), CredentialRefused(0)),
        (AccessDenied(10, retry_after=SECONDS), CredentialRefused(10, curable=True, retry_after=SECONDS)),
        (AccessDenied(), CredentialRefused(0, curable=True)),
        (SenderBlocked(368, retry_after=SECONDS), Blocked(BlockScope.SENDER, 368, retry_after=SECONDS)),
        (SenderBlocked(), Blocked(BlockScope.SENDER, 0)),
        (SendRefused(131026, status=500), Refused(131026, on_fault=True)),
        (SendRefused(), Refused(None)),
    ],
    ids=repr,
)
def test_each_send_error_has_its_verdict(error: SendError, verdict: SendVerdict) -> None:
    assert error.verdict == verdict


DOWNLOADS = [
    (Accepted("id"), Downloaded()),
    (Refused(131052), Unobtainable(131052)),
    (Refused(None, on_fault=True), Unobtainable()),
    (Lost(1), Retry(1)),
    (Lost(1, outage=True), ProviderDown(1)),
    (ProviderDown(2, SECONDS), ProviderDown(2, SECONDS)),
    (Retry(3, SECONDS, 5), Retry(3, SECONDS, 5)),
    (Limited(LimitScope.ACCOUNT, 4, SECONDS), Limited(LimitScope.ACCOUNT, 4, SECONDS)),
    (CredentialRefused(190), CredentialRefused(190)),
    (Blocked(BlockScope.ACCOUNT, 368), Blocked(BlockScope.ACCOUNT, 368)),
    (Released(), Released()),
]


@pytest.mark.parametrize(("answer", "verdict"), DOWNLOADS, ids=repr)
def test_an_answer_to_a_request_for_a_file_leaves_no_doubt(answer: SendVerdict, verdict: DownloadVerdict) -> None:
    """The file may be fetched again without harm; one that is refused is not to be had."""
    assert of_download(answer) == verdict


def test_every_verdict_on_a_send_has_a_verdict_on_a_download() -> None:
    assert {type(answer) for answer, _ in DOWNLOADS} == set(get_args(SendVerdict))
    assert {type(verdict) for _, verdict in DOWNLOADS} == set(get_args(DownloadVerdict))


def test_forbidden_cause_is_logged_but_not_in_the_message() -> None:
    error: Any = Forbidden("no_token")
    assert error.cause == "no_token"
    assert "no_token" not in str(error)
    assert Forbidden().cause == ""
