"""Meta's error codes: each means what the delivery protocol says it means, whatever the status."""

from datetime import timedelta

import pytest

from shared.channels import meta_codes
from shared.channels.meta import sentence_for
from shared.channels.meta_codes import GraphError, error_for
from shared.domain.errors import (
    AnswerLost,
    CredentialInvalid,
    LimitReached,
    ProviderUnavailable,
    SenderBlocked,
    SendError,
    SendRefused,
    TryLater,
)

MEANING: dict[type[SendError], tuple[int, ...]] = {
    AnswerLost: (1, 131000),
    ProviderUnavailable: (2, 131016, 133004),
    LimitReached: (4, 17, 613, 80007, 130429, 131056, 131057, 131208, 132069),
    CredentialInvalid: (0, 3, 10, 102, 190, 200, 210, 299, 467, 131005),
    SenderBlocked: (33, 368, 131031, 131037, 131042, 131044, 131045, 131048, 131064, 133000, 133010, 134011),
    TryLater: (133015, 134101, 2494100),
    SendRefused: (
        *(100, 130403, 130472, 130497, 130501, 131008, 131009, 131020, 131021, 131026, 131030, 131036, 131041, 131047),
        *(131049, 131050, 131051, 131053, 131055, 131059, 131062, 131063, 131200, 131209, 131299, 132000, 132001),
        *(132005, 132007, 132008, 132012, 132015, 132016, 132018, 132068, 133016, 134100, 134102, 135000, 137000),
    ),
}
WAIT = timedelta(seconds=9)
UNKNOWN = (-1, 5, 199, 300, 131199, 131300, 999_001)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500, 503])
@pytest.mark.parametrize(("kind", "code"), [(kind, code) for kind, codes in MEANING.items() for code in codes])
def test_a_known_code_means_the_same_with_any_status(kind: type[SendError], code: int, status: int) -> None:
    error = error_for(status, GraphError(code), None)
    assert (type(error), error.provider_code, error.status) == (kind, code, status)


@pytest.mark.parametrize("kind", MEANING)
def test_a_wait_that_is_asked_for_counts_where_it_is_tried_again_at_the_providers_word(kind: type[SendError]) -> None:
    waits = kind in (LimitReached, ProviderUnavailable, TryLater)
    for code in MEANING[kind]:
        assert error_for(400, GraphError(code), WAIT).retry_after == (WAIT if waits else None)


def test_a_bare_429_may_ask_for_a_wait_and_an_answer_that_is_lost_may_not() -> None:
    assert error_for(429, None, WAIT).retry_after == WAIT
    assert error_for(503, None, WAIT).retry_after is None


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


def test_an_invalid_parameter_is_a_block_where_the_number_is_gone() -> None:
    assert type(error_for(400, GraphError(100, 33), None)) is SenderBlocked
    assert type(error_for(400, GraphError(100, 34), None)) is SendRefused


@pytest.mark.parametrize(("status", "kind"), [(429, ProviderUnavailable), (404, AnswerLost), (503, AnswerLost)])
def test_an_answer_without_an_error_is_lost_save_for_too_many_requests(status: int, kind: type[SendError]) -> None:
    assert type(error_for(status, None, None)) is kind


def test_a_code_has_a_sentence_and_an_unknown_one_has_none() -> None:
    assert sentence_for(131047) == "Meta refused it: more than 24 hours since their last message."
    assert sentence_for(250) is not None
    assert [sentence_for(code) for code in UNKNOWN] == [None] * len(UNKNOWN)
    for code in meta_codes._CODES:
        assert (sentence_for(code) or "").endswith(".")
