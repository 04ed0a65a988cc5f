"""Requests made by schemathesis from /openapi.json, valid ones and others: no 5xx, and nothing undocumented."""

from collections.abc import Mapping
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, assume, given, settings
from schemathesis import checks
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi import checks as of_openapi

from tests.support.api_service import ApiService
from tests.support.parts import SENDER, a_reply, an_event, ended

CHECKS = [
    checks.not_a_server_error,
    of_openapi.status_code_conformance,
    of_openapi.content_type_conformance,
    of_openapi.response_headers_conformance,
    of_openapi.response_schema_conformance,
    of_openapi.negative_data_rejection,
]


def things(api: ApiService) -> Mapping[str, str]:
    """One of each kind, by the beginning of its route: an id that is made up finds nothing."""
    (sender,) = api.tenant("bakery", "201")
    letter = a_reply(2, **ended("dead", reason="permanent"))
    for record in (an_event(1), letter):
        api.store.port.create(record)
    return {
        "/v1/messages": an_event(1).key,
        "/v1/dead-letters": letter.key,
        "/v1/tenants": "bakery",
        "/v1/senders": sender.id,
        "/v1/keys": api.key("bakery").split("_")[1],
    }


@pytest.mark.parametrize("examples", [4, pytest.param(100, marks=[pytest.mark.slow, pytest.mark.timeout(900)])])
def test_every_request_is_answered_as_the_document_says(api: ApiService, examples: int) -> None:
    known, key = things(api), api.key(None)
    schema = schemathesis.openapi.from_wsgi("/openapi.json", api.app)
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) > 15
    for operation in operations:
        id = next((id for path, id in known.items() if operation.path.startswith(path)), None)
        takes_something = operation.definition.raw.keys() & {"parameters", "requestBody"}
        for mode in GenerationMode if takes_something else (GenerationMode.POSITIVE,):
            try_operation(api, operation, mode, key, id, examples)


def try_operation(
    api: ApiService, operation: Any, mode: GenerationMode, key: str, id: str | None, examples: int
) -> None:
    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def run(case: Any) -> None:
        # A parameter without a value is left out of the URL: what is left may be valid.
        assume(not any(value in ([], {}) for value in (case.query or {}).values()))
        api.clock.go(1)
        if mode is GenerationMode.POSITIVE and id and "id" in case.path_parameters:
            case.path_parameters["id"] = id
        if mode is GenerationMode.POSITIVE and operation.path == "/v1/messages" and isinstance(case.body, dict):
            case.body |= {"to": "+15550002222", "from": SENDER}
        response = case.call(headers={"Authorization": f"Bearer {key}"})
        case.validate_response(response, checks=CHECKS)

    run()
