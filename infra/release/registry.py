"""Tags in Artifact Registry: which image serves, and which served before it.

They outlive the revisions' addresses, and the registry's cleanup keeps what has one of them, however old it is
(infra/terraform/bootstrap/build.tf). A label of Cloud Run's cannot hold a digest: 63 characters at most.
"""

import json

from infra.release.cloud_run import CloudRunService
from infra.release.tools import gcloud

SERVING, PREVIOUS = "serving", "previous"


def tags_of(service: CloudRunService) -> dict[str, str]:
    """The digest of each tag of a service's images. Raises Refused."""
    listed = gcloud("artifacts", "docker", "tags", "list", service.repository, "--format=json")
    return {_last(one["tag"]): _last(one["version"]) for one in json.loads(listed)}


def tag(service: CloudRunService, image: str, name: str) -> None:
    """Give one of a service's images this tag, in place of the one that has it. Raises Refused.

    Not by `gcloud artifacts docker tags add`, which deletes a tag before it creates it again: the account that deploys
    may not delete, and meanwhile there would be no tag.
    """
    digest, there = image.partition("@")[2], tags_of(service).get(name)
    if there == digest:
        return
    verb = "create" if there is None else "update"
    place = (f"--package={service.kind}", "--repository=pombo", f"--location={service.region}")
    gcloud("artifacts", "tags", verb, name, f"--version={digest}", *place, f"--project={service.project}", "--quiet")


def _last(name: str) -> str:
    return name.rpartition("/")[2]
