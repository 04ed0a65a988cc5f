"""A candidate: the revision of a service that was deployed without traffic. It is checked, given the traffic, or not.

python3 -m infra.release.candidate serving internal api webhook --project my-project --region europe-west1
python3 -m infra.release.candidate check webhook --project my-project --region europe-west1
python3 -m infra.release.candidate promote internal api webhook --project my-project --region europe-west1
python3 -m infra.release.candidate drop internal api webhook --project my-project --region europe-west1
python3 -m infra.release.candidate rollback webhook api internal --project my-project --region europe-west1

Python's own library and gcloud are all it needs: it also runs where nothing else is, in the image of a build's step.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence

from infra.release import registry
from infra.release.cloud_run import CloudRunService
from infra.release.public_checks import REFUSED, ask, check_refusals, is_connected
from infra.release.rollout import HOLD, RolloutWatch, in_steps
from infra.release.services import SERVICES
from infra.release.tools import Refused

READY_SECONDS = 60
"""A new address may be unknown for a while, and a first request starts an instance."""


def serving(service: CloudRunService) -> str:
    """Read what serves, with the permissions that every later action needs. Raises Refused; it changes nothing."""
    return f"{service.name} serves {_short(service.image_of(service.serving))}."


def check(service: CloudRunService) -> str:
    """Ask the candidate, where the public may. Raises Refused unless it answers as it must.

    The private service takes calls of the project's own queues alone. Cloud Run has asked it whether it reaches its
    store (the startup probe), or it would not be ready. Its first share of the traffic is the rest of its check.
    """
    found = service.candidate()
    if service.kind not in REFUSED:
        return (
            f"{found['revisionName']} is ready: it has reached its store. The first step of the traffic shows the rest."
        )
    url = str(found["url"])
    # Not /readyz: some paths that end in z are Google's own (https://cloud.google.com/run/docs/known-issues).
    _until_connected(lambda: ask(f"{url}/health"))
    check_refusals(service.kind, url, str(found["revisionName"]))
    return f"{found['revisionName']} is ready, reaches its store and its queues, and refuses strangers."


def promote(service: CloudRunService, watch: RolloutWatch = RolloutWatch()) -> str:  # noqa: B008 - it is frozen
    """Give the candidate the traffic step by step, and note in the registry who had it. Done again, it changes nothing.

    Raises Refused; then the old revision has all traffic. The last step is `--to-latest`, not the candidate by its
    name: else no revision that Terraform makes after it would ever get traffic. No revision keeps an address.
    """
    serving = service.serving
    if not service.has_tags and service.newest == serving and service.follows_the_latest:
        return f"{serving} has the traffic already."
    revision = service.candidate()["revisionName"]
    image, before = service.image_of(revision), service.image_of(serving)
    # The first apply's placeholder is not compared with: it has no traffic, and answers 200 to every message. An
    # image of `make deploy` is ours, of another name: it is compared with, and its digest is none of this repository's.
    if before.startswith(service.repository.rpartition("/")[0] + "/"):
        in_steps(service, revision, serving, watch)
        if before != image and before.partition("@")[0] == service.repository:
            registry.tag(service, before, registry.PREVIOUS)
    registry.tag(service, image, registry.SERVING)
    service.move("--to-latest", "--clear-tags")
    return f"{revision} has the traffic; before it, {serving} had."


def drop(service: CloudRunService) -> str:
    """Take the image of a build that was not promoted out again, and end the pinning of the traffic. What serves stays.

    Repeating it changes nothing. Without it, the next apply would deploy that build's image, without traffic.
    """
    serves = service.image_of(service.serving)
    if not _serve(service, serves, serves):
        return f"{service.name} has nothing to drop: it serves {_short(serves)}, and the next apply deploys it too."
    return f"{service.name} still serves {_short(serves)}, and the next apply deploys it too."


def rollback(service: CloudRunService) -> str:
    """Serve the image from before the last promotion again. Done again, it changes nothing. Raises Refused.

    As a new revision: the old one names the secrets and settings of its day, and a secret that was rotated since would
    come back with it. Only an image that the service has run before: who may push may also move the registry's tag.
    """
    digest = registry.tags_of(service).get(registry.PREVIOUS)
    if digest is None:
        raise Refused(f"{service.name} has no image tagged {registry.PREVIOUS}: at most one build was ever promoted.")
    good = f"{service.repository}@{digest}"
    if not service.has_run(good):
        raise Refused(
            f"{service.name} has never run {_short(good)}, which the registry calls {registry.PREVIOUS}: the "
            "tag was moved. Deploy a build that you know."
        )
    serves = service.image_of(service.serving)
    if not _serve(service, good, serves):
        return f"{service.name} serves {_short(good)}, from before the last promotion, already."
    return f"{service.name} serves {_short(good)} in place of {_short(serves)}, with the settings and secrets of today."


def _serve(service: CloudRunService, image: str, serves: str) -> bool:
    """Have it serve an image in place of what serves, now and at the next apply; whether anything had to be done.

    Raises Refused if the image does not start; then the old one still serves. No revision keeps a tagged address.
    """
    newest = service.image_of(service.newest)
    if newest == image == serves and service.follows_the_latest and not service.has_tags:
        return False
    if newest != image or service.newest != service.status.get("latestReadyRevisionName"):
        service.deploy(image)
    service.move("--to-latest", "--clear-tags")
    return True


def _short(image: str) -> str:
    """The part of an image that distinguishes it for a reader."""
    name, _, digest = image.partition("@")
    return digest[: len("sha256:") + 12] or name


def _until_connected(answer_now: Callable[[], tuple[int, bytes]]) -> None:
    """Until its store and its queue are connected. Raises Refused."""
    deadline = time.monotonic() + READY_SECONDS
    while not is_connected(*(answer := answer_now())):
        if time.monotonic() > deadline:
            raise Refused(
                f"The candidate answers {answer[0] or 'nothing'} to /health after {READY_SECONDS} s, and not that its "
                "store and its queue are connected."
            )
        time.sleep(1)


def main(given: Sequence[str] | None = None) -> None:
    """Do one thing to each service in turn; stop at the first that is refused, except when dropping.

    A service that is not dropped keeps pinned traffic and a public address of its candidate.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, prog="candidate"
    )
    parser.add_argument("action", choices=("serving", "check", "promote", "drop", "rollback"))
    parser.add_argument("services", nargs="+", choices=SERVICES, metavar="SERVICE", help=", ".join(SERVICES))
    parser.add_argument("--project", required=True)
    parser.add_argument("--region", required=True)
    parser.add_argument(
        "--hold", type=float, default=HOLD, metavar="SECONDS", help="of promote: how long each step is watched; 0: once"
    )
    asked = parser.parse_args(given)
    actions: dict[str, Callable[[CloudRunService], str]] = {
        "serving": serving,
        "check": check,
        "promote": lambda service: promote(service, RolloutWatch(asked.hold)),
        "drop": drop,
        "rollback": rollback,
    }
    refusals: list[str] = []
    for kind in asked.services:
        try:
            print(actions[asked.action](CloudRunService.described(kind, asked.project, asked.region)), flush=True)
        except Refused as refusal:
            refusals.append(f"pombo: {refusal}")
            if asked.action != "drop":
                break
    if refusals:
        sys.exit("\n".join(refusals))


if __name__ == "__main__":
    main()
