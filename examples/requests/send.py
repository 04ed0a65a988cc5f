"""Sign sample webhooks and post them: each file beside this one is a body as Meta sends it.

\b
    python examples/requests/send.py text.json
    python examples/requests/send.py text.json image.json --new
    python examples/requests/send.py --all --url http://127.0.0.1:8080/webhooks/whatsapp

Prints one line for each: its name, the HTTP status, and the ids of its events. `pombo trace ID` takes any of them; a
receipt has none (-). Sending a file again makes a duplicate, which changes nothing. --new gives its messages new ids
and sets its times to now.

The signature is HMAC-SHA256 over the bytes of the body, with META_APP_SECRET or else the secret of `make run`. Exit 0
if all were answered 200, 1 if not, 2 for invalid options.
"""

import hashlib
import hmac
import json
import os
import secrets
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

try:
    import click
    import httpx

    from local import terminal
    from shared.channels.meta.webhook import parse
except ImportError:
    sys.exit("send.py: run make setup, then .venv/bin/python examples/requests/send.py with the same arguments.")

HERE = Path(__file__).parent
LOCAL_KEY = "local-app-secret"
LOCAL_URL = "http://127.0.0.1:8080/webhooks/whatsapp"
SECONDS = 20.0

ESCAPES = {"/": "\\/", "<": "\\u003C", "@": "\\u0040", "%": "\\u0025"}
"""What Meta escapes beside non-ASCII characters."""


@click.command(help=__doc__)
@click.argument("names", nargs=-1, metavar="[NAME.json]...")
@click.option("--all", "every", is_flag=True, help="Every sample.")
@click.option("--list", "listed", is_flag=True, help="Print the names of the samples and exit.")
@click.option("--new", is_flag=True, help="Use new message ids and the current time.")
@click.option("--url", default=LOCAL_URL, show_default=True, help="Where the webhook is.")
def main(names: tuple[str, ...], every: bool, listed: bool, new: bool, url: str) -> None:
    samples = sorted(HERE.glob("*.json"))
    if listed:
        click.echo("\n".join(path.name for path in samples))
        return
    if every == bool(names):
        raise click.UsageError("Name the samples, or use --all; --list prints their names.")
    if not url.startswith(("http://", "https://")):
        raise click.UsageError("--url is an http or https address.")
    paths = samples if every else [found(name) for name in names]
    statuses = []
    with httpx.Client(trust_env=False, timeout=SECONDS) as client:
        for path in paths:
            body = renewed(path.read_bytes()) if new else path.read_bytes()
            statuses.append(post(client, url, body))
            click.echo(f"{path.name:<42} {statuses[-1]} {' '.join(event_ids(body)) or '-'}")
    sys.exit(0 if set(statuses) <= {200} else 1)


def sign(body: bytes, secret: str) -> str:
    """The header X-Hub-Signature-256 of these bytes."""
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def post(client: "httpx.Client", url: str, body: bytes) -> int:
    """The status of the answer. Without an answer it ends the program with a sentence."""
    secret = os.environ.get("META_APP_SECRET", LOCAL_KEY).split(",")[0].strip()
    headers = {"Content-Type": "application/json", "X-Hub-Signature-256": sign(body, secret)}
    try:
        return client.post(url, content=body, headers=headers).status_code
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        sys.exit(f"send.py: nothing answers at {url} ({type(error).__name__}); start it with make run.")


def event_ids(body: bytes) -> list[str]:
    """The ids under which Pombo keeps its events. A receipt has none: it is written into its message's record."""
    return [event.key for event in parse(body).events if hasattr(event, "key")]


def renewed(body: bytes) -> bytes:
    """The body with new message ids and the current time, so that it is not a duplicate."""
    document = json.loads(body)
    now = int(time.time())
    for value in _objects(document):
        for name in ("timestamp", "time"):
            if name in value:
                value[name] = str(now) if isinstance(value[name], str) else now
        for name in ("messages", "message_echoes"):
            for item in value.get(name, ()):
                item["id"] = "wamid.SAMPLE_" + secrets.token_hex(9).upper()
    text = json.dumps(document, separators=(",", ":"))
    for plain, escaped in ESCAPES.items():
        text = text.replace(plain, escaped)
    return text.encode()


def found(name: str) -> Path:
    """The sample of that name, with or without .json, or any other file."""
    file = terminal.native(name)
    for path in (HERE / file, HERE / f"{file}.json", Path(file)):
        if path.is_file():
            return path
    raise click.UsageError(f"There is no sample {name!r}; --list prints the names.")


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _objects(part)


if __name__ == "__main__":
    main(terminal.begin("send.py"))
