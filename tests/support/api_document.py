"""The OpenAPI document as the judge of answers: each must be one that its route declares."""

from collections.abc import Mapping
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker

PLAIN = frozenset({"GET /livez", "GET /startz", "GET /readyz", "GET /health", "GET /openapi.json"})
"""Routes that are no part of the API."""


class ApiDocument:
    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document

    def check(self, method: str, rule: str, status: int, content_type: str, body: Any) -> None:
        """Asserts that the route declares this status with this content, and that the body is valid by its schema.
        `rule`: the path as Flask has it, like /v1/messages/<id>.
        """
        path = rule.replace("<", "{").replace(">", "}")
        operation = self.document["paths"].get(path, {}).get(method.lower())
        assert operation is not None, f"{method} {path} is not in the document"
        assert str(status) in operation["responses"], f"{method} {path} does not declare {status}"
        declared = operation["responses"][str(status)].get("content", {})
        assert content_type in declared, f"{method} {path} declares no {content_type} for {status}"
        self.check_body(declared[content_type]["schema"], body)

    def check_body(self, schema: Mapping[str, Any], body: Any) -> None:
        """Asserts that this value is valid by this schema of the document."""
        whole = {**schema, "components": self.document["components"]}
        Draft202012Validator(whole, format_checker=FormatChecker()).validate(body)
