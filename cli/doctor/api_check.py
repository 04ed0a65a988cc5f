"""The check of the API service of a Pombo on this machine, with the key of its file."""

from pathlib import Path

import httpx

from cli.doctor.checks import CALL_SECONDS, Wrong

PROBLEM = "application/problem+json"
NO_MESSAGE = "0" * 40
"""The id of no message: a request for it proves that the key is taken."""


def api(url: str, key_file: Path) -> str:
    """Ask for a message that does not exist. Raises Wrong."""
    try:
        key = key_file.read_text().strip()
    except OSError as error:
        raise Wrong(f"The API key cannot be read from {key_file}: {error.strerror}. Restart Pombo.") from error
    headers = {"Authorization": f"Bearer {key}"}
    try:
        answer = httpx.get(f"{url}/v1/messages/{NO_MESSAGE}", headers=headers, timeout=CALL_SECONDS, trust_env=False)
    except httpx.HTTPError as error:
        raise Wrong(f"The API service does not answer at {url}.") from error
    match answer.status_code:
        case 404 if answer.headers.get("Content-Type") == PROBLEM:
            return f"The API service answers at {url}, and takes the key in {key_file}."
        case 401:
            raise Wrong(f"The API service refuses the key in {key_file}: restart Pombo, which makes a new one.")
        case status:
            raise Wrong(f"{url} answered {status}, which the API service does not while its store is up.")
