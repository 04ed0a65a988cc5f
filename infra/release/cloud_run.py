"""Cloud Run, as a release sees it: a service, its revisions, and which of them gets the traffic. By gcloud."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infra.release.tools import Refused, gcloud

CANDIDATE = "candidate"
"""A tag of Cloud Run's, and with it an address of its own, for as long as a revision is checked and no longer."""


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
        """Whether all traffic goes to the latest revision, so that the next one gets it without a command."""
        most = self._most()
        return bool(most.get("latestRevision")) and most.get("percent") == 100

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

    def has_run(self, image: str) -> bool:
        """Whether one of its revisions, of any age, is of this image. Raises Refused."""
        shown = "--format=value(spec.containers[0].image)"
        return image in gcloud("run", "revisions", "list", f"--service={self.name}", *self.place, shown).split()

    def deploy(self, image: str) -> None:
        """Make a revision of this image, with everything else as it is now, and wait until it is ready."""
        gcloud("run", "services", "update", self.name, *self.place, f"--image={image}", "--quiet")

    def move(self, *how: str) -> None:
        """Change which revision gets the traffic, or an address."""
        gcloud("run", "services", "update-traffic", self.name, *self.place, *how, "--quiet")
