"""A candidate: the revision of a service that was deployed without traffic. It is checked, given the traffic, or not.

python3 -m infra.release.candidate check webhook --project my-project --region europe-west1
python3 -m infra.release.candidate promote internal webhook --project my-project --region europe-west1
python3 -m infra.release.candidate drop internal webhook --project my-project --region europe-west1
python3 -m infra.release.candidate rollback webhook internal --project my-project --region europe-west1

Python's own library and gcloud are all it needs: it also runs where nothing else is, in the image of a build's step.
"""

import argparse
import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

SERVICES = ("webhook", "internal")
CANDIDATE, PREVIOUS = "candidate", "previous"
"""Tags of Cloud Run's. A build moves the first to what it deploys, promote the second to what served until then."""

READY_SECONDS = 60
"""A new address may be unknown for a while, and a first request starts an instance."""

ANSWER_SECONDS = 20

NO_MESSAGE = "hub.mode=subscribe&hub.verify_token=none-that-is-right&hub.challenge=1"


class Refused(Exception):
    """It is not done. The message is a sentence."""


@dataclass(frozen=True, slots=True)
class Service:
    """One service as Cloud Run describes it: https://cloud.google.com/run/docs/reference/rest/v1/namespaces.services"""

    name: str
    place: tuple[str, str]
    status: dict[str, Any]

    @classmethod
    def described(cls, kind: str, project: str, region: str) -> "Service":
        """Raises Refused."""
        name, place = f"pombo-{kind}", (f"--project={project}", f"--region={region}")
        text = gcloud("run", "services", "describe", name, *place, "--format=json")
        return cls(name, place, json.loads(text)["status"])

    @property
    def serving(self) -> str:
        """The revision with the most traffic."""
        return str(self._most()["revisionName"])

    @property
    def newest(self) -> str:
        """The revision that was made last, ready or not."""
        return str(self.status["latestCreatedRevisionName"])

    @property
    def follows_the_latest(self) -> bool:
        """Whether the next revision gets the traffic of itself."""
        return bool(self._most().get("latestRevision"))

    def _most(self) -> dict[str, Any]:
        most: dict[str, Any] = max(self.status["traffic"], key=lambda target: target.get("percent", 0))
        return most

    def tagged(self, tag: str) -> dict[str, Any] | None:
        """The traffic target of this tag: revisionName, url."""
        return next((target for target in self.status["traffic"] if target.get("tag") == tag), None)

    def image_of(self, revision: str) -> str:
        return gcloud(
            "run", "revisions", "describe", revision, *self.place, "--format=value(spec.containers[0].image)"
        ).strip()

    def deploy(self, image: str) -> None:
        """Make a revision of this image, with everything else as it is now, and wait until it is ready."""
        gcloud("run", "services", "update", self.name, *self.place, f"--image={image}", "--quiet")

    def move(self, *how: str) -> None:
        """Change which revision gets the traffic."""
        gcloud("run", "services", "update-traffic", self.name, *self.place, *how, "--quiet")


def check(service: Service) -> str:
    """Ask the candidate, where anybody may. Raises Refused unless it answers as it must.

    The private service takes calls of the project's own queues alone. Cloud Run itself has asked it: its startup probe
    is /readyz, and a revision whose store or queues cannot be reached does not become ready.
    """
    found = _candidate(service)
    if service.name != "pombo-webhook":
        return f"{found['revisionName']} is ready: Cloud Run's startup probe has reached its store and its queues."
    url = str(found["url"])
    # Not /readyz: some paths that end in z are Google's own (https://cloud.google.com/run/docs/known-issues).
    _until_connected(lambda: _ask(f"{url}/health"))
    for what, status in (
        ("a handshake with a wrong token", _ask(f"{url}/webhooks/whatsapp?{NO_MESSAGE}")[0]),
        ("an unsigned webhook", _ask(f"{url}/webhooks/whatsapp", b"{}")[0]),
    ):
        if status != 403:
            raise Refused(f"{found['revisionName']} answers {status} to {what}, and must answer 403.")
    return f"{found['revisionName']} is ready, reaches its store and its queues, and refuses who is not Meta."


def promote(service: Service) -> str:
    """Give the candidate all traffic, and remember who had it. Done again, it changes nothing. Raises Refused.

    By `--to-latest`, not by its name: else no revision that Terraform makes after it would ever get traffic.
    """
    revision, serving = _candidate(service)["revisionName"], service.serving
    if revision == serving:
        return f"{revision} has the traffic already."
    image, before = service.image_of(revision), service.image_of(serving)
    if before != image and _repository(before) == _repository(image):
        service.move("--to-latest", f"--update-tags={PREVIOUS}={serving}")
    else:  # the same again; or the first apply's placeholder, which would tell Meta that it has every message
        service.move("--to-latest")
    return f"{revision} has the traffic; before it, {serving} had."


def drop(service: Service) -> str:
    """Take the image of a build that was not promoted out again, and end the pinning of the traffic. What serves stays.

    Done again, it changes nothing. Without it, the next apply would deploy that build's image, and to nobody.
    """
    serves = service.image_of(service.serving)
    if not _serve(service, serves, serves):
        return f"{service.name} has nothing to drop: it serves {_short(serves)}, and will serve what is applied."
    return f"{service.name} goes on with {_short(serves)}, and will serve what is applied."


def rollback(service: Service) -> str:
    """Serve the image from before the last promotion again. Done again, it changes nothing. Raises Refused.

    As a new revision: the old one names the secrets and settings of its day, and a secret that was rotated since would
    come back with it.
    """
    previous = service.tagged(PREVIOUS)
    if previous is None:
        raise Refused(f"{service.name} has no revision tagged {PREVIOUS}: at most one build was ever promoted.")
    good, serves = service.image_of(previous["revisionName"]), service.image_of(service.serving)
    if not _serve(service, good, serves):
        return f"{service.name} serves {_short(good)}, from before the last promotion, already."
    return f"{service.name} serves {_short(good)} in place of {_short(serves)}, with the settings and secrets of today."


def _serve(service: Service, image: str, serves: str) -> bool:
    """Have it serve an image in place of what serves, now and at the next apply; whether anything had to be done.

    Raises Refused where the image does not start; then what serves goes on.
    """
    newest = service.image_of(service.newest)
    if newest == image == serves and service.follows_the_latest:
        return False
    if newest != image or service.newest != service.status.get("latestReadyRevisionName"):
        service.deploy(image)
    service.move("--to-latest")
    return True


def _repository(image: str) -> str:
    return image.partition("@")[0]


def _short(image: str) -> str:
    """An image as a person tells it from another."""
    name, _, digest = image.partition("@")
    return digest[: len("sha256:") + 12] or name


def _candidate(service: Service) -> dict[str, Any]:
    """The candidate, where it is the newest revision and ready. Raises Refused."""
    found = service.tagged(CANDIDATE)
    if found is None:
        raise Refused(f"{service.name} has no revision tagged {CANDIDATE}: none was deployed.")
    for which in ("latestCreatedRevisionName", "latestReadyRevisionName"):
        if service.status.get(which) != found["revisionName"]:
            raise Refused(
                f"{service.name} has a newer revision than its candidate, or one that is not ready: another build or a "
                "terraform apply was at work. Build again."
            )
    return found


def _until_connected(ask: Callable[[], tuple[int, bytes]]) -> None:
    """Until its store and its queue are connected. Raises Refused."""
    deadline = time.monotonic() + READY_SECONDS
    while not _is_connected(*(answer := ask())):
        if time.monotonic() > deadline:
            raise Refused(
                f"The candidate answers {answer[0] or 'nothing'} to /health after {READY_SECONDS} s, and not that its "
                "store and its queue are connected."
            )
        time.sleep(1)


def _is_connected(status: int, body: bytes) -> bool:
    try:
        words = json.loads(body).get("services") if status == 200 else None
    except (ValueError, AttributeError):
        return False
    return isinstance(words, dict) and set(words) == {"store", "queue"} and set(words.values()) == {"connected"}


def _ask(url: str, body: bytes | None = None) -> tuple[int, bytes]:
    """The answer's status, 0 where there is none, and body."""
    try:
        with urllib.request.urlopen(url, body, timeout=ANSWER_SECONDS) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, b""
    except OSError:
        return 0, b""


def gcloud(*arguments: str) -> str:
    """What a command of gcloud's prints. Raises Refused with what it complains of."""
    try:
        done = subprocess.run(["gcloud", *arguments], capture_output=True, encoding="utf-8", errors="replace")
    except FileNotFoundError:
        raise Refused("gcloud is not here; install the Google Cloud CLI.") from None
    if done.returncode != 0:
        complaint = next((line for line in done.stderr.splitlines() if line.startswith("ERROR")), done.stderr.strip())
        raise Refused(f"gcloud {' '.join(arguments[:3])} failed: {complaint}")
    return done.stdout


def main(given: Sequence[str] | None = None) -> None:
    """Do one thing to each service in turn; stop at the first that is refused."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, prog="candidate"
    )
    actions: dict[str, Callable[[Service], str]] = {
        action.__name__: action for action in (check, promote, drop, rollback)
    }
    parser.add_argument("action", choices=actions)
    parser.add_argument("services", nargs="+", choices=SERVICES, metavar="SERVICE", help="webhook, internal, in order")
    parser.add_argument("--project", required=True)
    parser.add_argument("--region", required=True)
    asked = parser.parse_args(given)
    for kind in asked.services:
        try:
            print(actions[asked.action](Service.described(kind, asked.project, asked.region)), flush=True)
        except Refused as refusal:
            sys.exit(f"pombo: {refusal}")


if __name__ == "__main__":
    main()
