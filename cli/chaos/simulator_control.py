"""A client of the simulator's control address, for the chaos run."""

from collections.abc import Mapping
from typing import Any

import click
import httpx

PATIENCE = 60
"""Seconds. The simulator answers in milliseconds; the whole ledger of a long run takes longer."""


class SimulatorControl:
    """Calls that return a document. Raises ClickException if the simulator does not answer as it should."""

    def __init__(self, url: str) -> None:
        self._http = httpx.Client(base_url=f"{url}/control/", timeout=PATIENCE, trust_env=False)

    def get(self, what: str) -> Any:
        return self._call("GET", what, None)

    def post(self, what: str, document: Mapping[str, Any]) -> Any:
        return self._call("POST", what, document)

    def _call(self, method: str, what: str, document: Mapping[str, Any] | None) -> Any:
        try:
            answer = self._http.request(method, what, json=document)
            answer.raise_for_status()
        except httpx.HTTPError as error:
            raise click.ClickException(f"The WhatsApp simulator failed ({type(error).__name__}, {what}).") from error
        return answer.json()
