"""Cloud Run, as a release sees it: a service, its revisions, and which of them gets the traffic. By gcloud."""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

CANDIDATE = "candidate"
"""A tag of Cloud Run's, and with it an address of its own, for as long as a revision is checked and no longer."""

GCLOUD_SECONDS = 600
"""Cloud Run gives a revision up long before: its startup probe has failed after two minutes (modules/run)."""


class Refused(Exception):
    """It is not done. The message is a sentence."""


@dataclass(frozen=True, slots=True)
class CloudRunService:
    """One service as Cloud Run describes it: https://cloud.google.com/run/docs/reference/rest/v1/namespaces.services"""

    kind: str
    project: str
    region: str
    status: Mapping[str, Any]

    @classmethod
    def described(cls, kind: str, project: str, region: str) -> "CloudRunService":
        """Raises Refused."""
        place = (f"--project={project}", f"--region={region}")
        text = gcloud("run", "services", "describe", f"pombo-{kind}", *place, "--format=json")
        return cls(kind, project, region, json.loads(text)["status"])

    def now(self) -> "CloudRunService":
        """The same service, as it is by now. Raises Refused."""
        return CloudRunService.described(self.kind, self.project, self.region)

    @property
    def name(self) -> str:
        return f"pombo-{self.kind}"

    @property
    def repository(self) -> str:
        """What the name of each of its images begins with."""
        return f"{self.region}-docker.pkg.dev/{self.project}/pombo/{self.kind}"

    @property
    def place(self) -> tuple[str, str]:
        return f"--project={self.project}", f"--region={self.region}"

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

    @property
    def has_tags(self) -> bool:
        """Whether a revision has an address of its own."""
        return any(target.get("tag") for target in self.status["traffic"])

    def _most(self) -> Mapping[str, Any]:
        most: Mapping[str, Any] = max(self.status["traffic"], key=lambda target: target.get("percent", 0))
        return most

    def candidate(self) -> Mapping[str, Any]:
        """The traffic target of the candidate (revisionName, url), the newest revision and ready. Raises Refused."""
        tagged: list[Mapping[str, Any]] = [it for it in self.status["traffic"] if it.get("tag") == CANDIDATE]
        if not tagged:
            raise Refused(f"{self.name} has no revision tagged {CANDIDATE}: none was deployed.")
        found = tagged[0]
        for which in ("latestCreatedRevisionName", "latestReadyRevisionName"):
            if self.status.get(which) != found["revisionName"]:
                raise Refused(
                    f"{self.name} has a newer revision than its candidate, or one that is not ready: another "
                    "deployment or a terraform apply was at work. Deploy again."
                )
        return found

    def image_of(self, revision: str) -> str:
        return gcloud(
            "run", "revisions", "describe", revision, *self.place, "--format=value(spec.containers[0].image)"
        ).strip()

    def images_run(self) -> set[str]:
        """The images of all its revisions."""
        shown = "--format=value(spec.containers[0].image)"
        return set(gcloud("run", "revisions", "list", f"--service={self.name}", *self.place, shown).split())

    def deploy(self, image: str) -> None:
        """Make a revision of this image, with everything else as it is now, and wait until it is ready."""
        gcloud("run", "services", "update", self.name, *self.place, f"--image={image}", "--quiet")

    def move(self, *how: str) -> None:
        """Change which revision gets the traffic, or an address."""
        gcloud("run", "services", "update-traffic", self.name, *self.place, *how, "--quiet")


def gcloud(*arguments: str) -> str:
    """What a command of gcloud's prints. Raises Refused with what it complains of. Nothing is asked on a terminal."""
    try:
        done = subprocess.run(
            ["gcloud", *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=GCLOUD_SECONDS,
        )
    except FileNotFoundError:
        raise Refused("gcloud is not here; install the Google Cloud CLI.") from None
    except subprocess.TimeoutExpired:
        raise Refused(f"gcloud {' '.join(arguments[:3])} did not end within {GCLOUD_SECONDS} s.") from None
    if done.returncode != 0:
        complaint = next((line for line in done.stderr.splitlines() if line.startswith("ERROR")), done.stderr.strip())
        raise Refused(f"gcloud {' '.join(arguments[:3])} failed: {complaint}")
    return done.stdout
