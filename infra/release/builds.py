"""What a build has pushed, by Cloud Build's own record of it. Only that is deployed.

python3 -m infra.release.builds BUILD --project my-project --region us-east1 --build-region us-central1 --into .release

A tag in the registry would not do: whoever may push may move it. The record is Cloud Build's, and none of our accounts
may write one.
"""

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from infra.release.services import SERVICES
from infra.release.tools import Refused, gcloud

_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def images_of(record: Mapping[str, Any], build: str, project: str, region: str) -> dict[str, str]:
    """The image of each service, by its digest, where this is the record of a build of ours. Raises Refused."""
    if record.get("status") != "SUCCESS":
        raise Refused(f"Build {build} is {record.get('status')}, and must have ended in SUCCESS.")
    account = str(record.get("serviceAccount", "")).rpartition("/")[2]
    if account != f"pombo-build@{project}.iam.gserviceaccount.com":
        raise Refused(f"Build {build} ran as {account or 'nobody known'}, and not as pombo-build.")
    pushed = {it["name"]: it["digest"] for it in record.get("results", {}).get("images", ())}
    found = {}
    for service in SERVICES:
        repository = f"{region}-docker.pkg.dev/{project}/pombo/{service}"
        digest = pushed.get(f"{repository}:{build}", "")
        if not _DIGEST.fullmatch(digest):
            raise Refused(f"Build {build} has pushed no image of {service} to {repository}.")
        found[service] = f"{repository}@{digest}"
    return found


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, prog="builds"
    )
    parser.add_argument("build", help="the build's ID")
    parser.add_argument("--project", required=True)
    parser.add_argument("--region", required=True)
    parser.add_argument("--build-region", required=True)
    parser.add_argument("--into", type=Path, required=True, help="a directory, for a file by each service's name")
    asked = parser.parse_args(given)
    try:
        if not _ID.fullmatch(asked.build):
            raise Refused(f"_BUILD is {asked.build or 'not given'}; it must be the ID of the build to deploy.")
        place = (f"--region={asked.build_region}", f"--project={asked.project}")
        record = json.loads(gcloud("builds", "describe", asked.build, *place, "--format=json"))
        images = images_of(record, asked.build, asked.project, asked.region)
    except Refused as refusal:
        sys.exit(f"pombo: {refusal}")
    asked.into.mkdir(exist_ok=True)
    for service, image in images.items():
        (asked.into / service).write_text(image)
        print(f"{service} is {image}")


if __name__ == "__main__":
    main()
