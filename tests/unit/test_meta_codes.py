"""Meta's error codes: each means what the delivery protocol says it means, whatever the status."""

from datetime import timedelta

import pytest

from shared.channels.meta import codes as meta_codes
from shared.channels.meta.codes import UNKNOWN as UNKNOWN_MEANINGS
from shared.channels.meta.codes import Meaning, meaning_of, sentence_for
from shared.channels.meta.errors import GraphError, error_for, error_in_success
from shared.channels.meta.fields import code_number
from shared.channels.meta.sender_codes import SENDER_CODES, concerns_sender
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
from shared.domain.verdicts import Blocked, BlockScope, Limited, LimitScope, Lost

MEANING: dict[type[SendError], tuple[int, ...]] = {
    AnswerLost: (1, 131000),
    ProviderUnavailable: (2, 131016, 133004),
    LimitReached: (4, 17, 613, *range(80000, 80015), 130429, 131056, 131057, 131208, 132069),
    CredentialInvalid: (0, 102, 190, 467),
    AccessDenied: (3, 10, 200, 210, 299, 131005),
    SenderBlocked: (33, 368, 131031, 131037, 131042, 131044, 131045, 131048, 131064, 133000, 133010, 134011),
    TryLater: (133015, 134101, 2494100),
    SendRefused: (
        *(100, 130403, 130472, 130497, 130501, 131008, 131009, 131020, 131021, 131026, 131030, 131036, 131041, 131047),
        *(131049, 131050, 131051, 131053, 131055, 131059, 131062, 131063, 131200, 131209, 131299, 132000, 132001),
        *(132005, 132007, 132008, 132012, 132015, 132016, 132018, 132068, 133016, 134100, 134102, 135000, 137000),
        *(133005, 133006, 133008, 133009, 136024, 136025, 138000, 138999, 139000, 139100, 139101, 139999),
        *(147000, 147999, 1752041, 2388000, 2388999, 2494000, 2494999, 2593107, 2593108),
    ),
}
WAIT = timedelta(hours=2)
UNKNOWN = (-1, 5, 199, 300, 79999, 80015, 131199, 131300, 999_001)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500, 503])
@pytest.mark.parametrize(("kind", "code"), [(kind, code) for kind, codes in MEANING.items() for code in codes])
def test_a_known_code_means_the_same_with_any_status(kind: type[SendError], code: int, status: int) -> None:
    error = error_for(status, GraphError(code), None)
    assert (type(error), error.provider_code, error.status) == (kind, code, status)


@pytest.mark.parametrize("kind", MEANING)
def test_requested_wait_counts_only_for_retryable_codes(kind: type[SendError]) -> None:
    waits = kind in (AccessDenied, CredentialInvalid, LimitReached, ProviderUnavailable, SenderBlocked, TryLater)
    for code in MEANING[kind]:
        assert error_for(400, GraphError(code), WAIT).retry_after == (WAIT if waits else None)


def test_requested_wait_counts_for_a_bare_429_but_not_a_lost_answer() -> None:
    assert error_for(429, None, WAIT).retry_after == WAIT
    assert error_for(503, None, WAIT).retry_after is None


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (131026, 131026),
        ("131026", 131026),
        (0, 0),
        (-1, -1),
        (999_999_999, 999_999_999),
        (15550002222, None),
        ("15550002222", None),
        (10**400, None),
        (True, None),
        (1.0, None),
        ("1.0", None),
        ("\u0661", None),
        (None, None),
    ],
)
def test_a_code_is_a_number_or_one_in_a_string_and_never_as_long_as_a_phone_number(
    value: object, code: int | None
) -> None:
    assert code_number(value) == code


def test_every_code_of_the_table_is_tested() -> None:
    tested = {code for codes in MEANING.values() for code in codes}
    assert set(meta_codes._CODES) <= tested | {131052, 131060}  # these two come in webhooks alone


@pytest.mark.parametrize("code", UNKNOWN)
def test_an_unknown_code_is_judged_by_is_transient_and_then_by_its_status(code: int) -> None:
    assert type(error_for(400, GraphError(code), None)) is SendRefused
    assert type(error_for(499, GraphError(code), None)) is SendRefused
    assert type(error_for(500, GraphError(code), None)) is AnswerLost
    assert type(error_for(302, GraphError(code), None)) is AnswerLost
    assert type(error_for(400, GraphError(code, transient=True), None)) is TryLater
    assert type(error_for(500, GraphError(code, transient=True), None)) is TryLater


def test_invalid_parameter_is_a_block_only_when_the_number_is_missing() -> None:
    assert type(error_for(400, GraphError(100, 33), None)) is SenderBlocked
    assert type(error_for(400, GraphError(100, 34), None)) is SendRefused


@pytest.mark.parametrize(("status", "kind"), [(429, ProviderUnavailable), (404, AnswerLost), (503, AnswerLost)])
def test_an_answer_without_an_error_is_lost_save_for_too_many_requests(status: int, kind: type[SendError]) -> None:
    assert type(error_for(status, None, None)) is kind


# ---- an error inside a 2xx


@pytest.mark.parametrize(("kind", "code"), [(kind, code) for kind, codes in MEANING.items() for code in codes])
def test_error_in_a_success_has_its_verdict_and_a_retryable_one_is_lost(kind: type[SendError], code: int) -> None:
    expected = {ProviderUnavailable: OutageInSuccess, TryLater: AnswerLost}.get(kind, kind)
    error = error_in_success(200, GraphError(code), WAIT)
    assert (type(error), error.provider_code, error.status, error.answered) == (expected, code, 200, True)
    repeated = kind in (AnswerLost, ProviderUnavailable, TryLater)
    assert isinstance(error.verdict, Lost) is repeated
    assert error.verdict == error_for(200, GraphError(code), WAIT).verdict or repeated


@pytest.mark.parametrize("code", UNKNOWN)
def test_an_unknown_error_in_a_success_is_lost(code: int) -> None:
    for transient in (True, False):
        assert error_in_success(200, GraphError(code, transient=transient), None).verdict == Lost(code)


@pytest.mark.parametrize(
    ("error", "outage"),
    [
        (error_for(503, None, None), True),
        (error_for(400, GraphError(131000), None), False),
        (error_for(500, GraphError(999_001), None), False),
        (error_in_success(200, GraphError(2), None), True),
        (error_in_success(200, GraphError(133015), None), False),
    ],
)
def test_lost_answer_is_an_outage_unless_it_is_about_the_message(error: SendError, outage: bool) -> None:
    assert error.verdict == Lost(error.provider_code, outage=outage)


# ---- failed receipts


def test_the_codes_of_blocks_and_of_access_concern_the_sender_and_no_others() -> None:
    """Any other failed receipt, a window that has closed say, is that message's own."""
    speaking = {kind for kind, codes in MEANING.items() for code in codes if concerns_sender(code)}
    assert speaking == {SenderBlocked, CredentialInvalid, AccessDenied}
    for kind, codes in MEANING.items():
        assert {concerns_sender(code) for code in codes} == {kind in speaking}
    assert not any(concerns_sender(code) for code in (*UNKNOWN, 131052, 131060))


def test_sender_codes_are_those_of_the_table() -> None:
    listed = [code for name, _ in meta_codes.table() for code in _range_of(name)]
    of_table = {code for code in listed if issubclass(_class_of(code), SenderBlocked | CredentialInvalid)}
    assert of_table == SENDER_CODES


def _range_of(name: str) -> range:
    first, _, last = name.partition("-")
    return range(int(first), int(last or first) + 1)


def _class_of(code: int) -> type[SendError]:
    meaning = meaning_of(code)
    assert meaning is not None
    return meaning.error


# ---- least waits of Meta's own


@pytest.mark.parametrize(("code", "minutes"), [(132069, 60), (133015, 5), (134101, 10)])
def test_code_with_its_own_minimum_wait_reports_it_beside_retry_after(code: int, minutes: int) -> None:
    error = error_for(400, GraphError(code), WAIT)
    assert (error.minutes, error.retry_after) == (minutes, WAIT)
    assert (error.verdict.minutes, error.verdict.retry_after) == (minutes, WAIT)  # type: ignore[union-attr]


LIMITS = {LimitScope.RATE: {130429}, LimitScope.CONTACT: {131056}, LimitScope.MAINTENANCE: {131057}}


def test_each_limit_has_its_scope() -> None:
    for code in MEANING[LimitReached]:
        verdict = error_for(429, GraphError(code), None).verdict
        assert isinstance(verdict, Limited)
        assert verdict.scope is next((scope for scope, codes in LIMITS.items() if code in codes), LimitScope.ACCOUNT)


def test_each_block_names_number_or_account() -> None:
    for code in MEANING[SenderBlocked]:
        verdict = error_for(403, GraphError(code), None).verdict
        assert isinstance(verdict, Blocked)
        assert (verdict.scope is BlockScope.ACCOUNT) is (known(code).scope == "tenant")


def test_no_other_code_asks_for_a_wait_by_itself() -> None:
    waiting = {name for name, meaning in meta_codes.table() if meaning.minutes}
    assert waiting == {"132069", "133015", "134101"}
    assert error_for(400, GraphError(130429), None).retry_after is None
    assert error_for(400, GraphError(130429), timedelta()).retry_after == timedelta()


# ---- whom it concerns

CONCERNS = {
    "contact": (131056, 131026, 131047, 131049, 131050, 131021, 131030, 131062, 130472, 137000),
    "sender": (130429, 131057, 131048, 131045, 133010, 33, 133015),
    "tenant": (190, 0, 131005, 250, *range(80000, 80015), 368, 131031, 131042),
    "provider": (4, 2, 131016, 133004, 1, 131000),
    "message": (100, 131008, 131009, 131051, 131053, 132001, 132015, 134101),
}


@pytest.mark.parametrize("scope", CONCERNS)
def test_each_code_has_its_scope(scope: str) -> None:
    assert {code: known(code).scope for code in CONCERNS[scope]} == dict.fromkeys(CONCERNS[scope], scope)


def known(code: int) -> Meaning:
    meaning = meaning_of(code)
    assert meaning is not None, code
    return meaning


def test_every_credential_concerns_the_tenant_and_every_block_its_number_or_tenant() -> None:
    for _, meaning in meta_codes.table():
        if issubclass(meaning.error, CredentialInvalid):
            assert meaning.scope == "tenant"
        if meaning.error is SenderBlocked:
            assert meaning.scope in ("sender", "tenant")


def test_missing_number_means_the_same_as_code_and_as_subcode() -> None:
    assert meaning_of(100, 33) == meaning_of(33) != meaning_of(100)


# ---- what a person is told

ALL = [*meta_codes.table(), *((error.__name__, meaning) for error, meaning in UNKNOWN_MEANINGS.items())]
JARGON = ("param", "hydrated", "cursor", "api call", "subcode", "null", "http", "status", "json", "waba", "bsuid")


@pytest.mark.parametrize(("name", "meaning"), ALL, ids=[name for name, _ in ALL])
def test_code_sentence_has_no_jargon_and_no_error_name(name: str, meaning: Meaning) -> None:
    sentence = meaning.sentence
    assert sentence.endswith(".")
    assert len(sentence) > 20
    assert sentence[0].isupper()
    assert ". " not in sentence, "it is one sentence"
    assert name not in sentence
    assert not [word for word in JARGON if word in sentence.lower()]


def test_no_two_codes_have_the_same_sentence() -> None:
    sentences = [meaning.sentence for _, meaning in ALL]
    assert len(sentences) == len(set(sentences))


def test_code_sentence_matches_its_verdict() -> None:
    """Who reads "it may or may not have it" of something that was refused looks for it in vain."""
    for _, meaning in ALL:
        assert ("may or may not" in meaning.sentence) is (meaning.error is AnswerLost)
        if "reconnect the number" in meaning.sentence:
            assert issubclass(meaning.error, CredentialInvalid)


def test_a_code_has_its_sentence_wherever_it_comes_from() -> None:
    assert sentence_for(131047) == "Meta refused it: the customer's last message is more than 24 hours old."
    assert sentence_for(131047, "refused") == sentence_for(131047)
    assert sentence_for(250) == known(200).sentence


@pytest.mark.parametrize("code", UNKNOWN)
def test_an_unknown_code_has_a_sentence_by_what_came_of_it(code: int) -> None:
    assert meaning_of(code) is None
    assert sentence_for(code) is None
    for status, transient in ((400, False), (500, False), (400, True)):
        error = error_for(status, GraphError(code, transient=transient), None)
        assert sentence_for(code, error.verdict.label) == UNKNOWN_MEANINGS[type(error)].sentence
