"""Wait until Google APIs that were just turned on answer. Terraform runs it after each google_project_service.

python3 -m infra.release.wait_for_apis --project my-project --region europe-west1 run cloudtasks

Google says that an API is on minutes before every front end of that API knows it; until then a call is refused with 403
SERVICE_DISABLED, which the google provider does not retry
(https://registry.terraform.io/providers/hashicorp/google/latest/docs/guides/google_project_service). So each API is
asked for something small until it stops saying so, several times in a row. Any other answer counts: what is asked here
may be forbidden to who asks, and the API is on all the same.

Python's own library, and gcloud for a token; GOOGLE_OAUTH_ACCESS_TOKEN is used instead where it is set.
"""

import argparse
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence

ASKED: Mapping[str, str] = {
    "artifactregistry": "v1/projects/{project}/locations/{region}/repositories",
    "billingbudgets": "v1/billingAccounts/000000-000000-000000/budgets",
    "cloudbuild": "v1/projects/{project}/builds?pageSize=1",
    "cloudkms": "v1/projects/{project}/locations/{region}/keyRings",
    "cloudresourcemanager": "v1/projects/{project}",
    "cloudscheduler": "v1/projects/{project}/locations/{region}/jobs",
    "cloudtasks": "v2/projects/{project}/locations/{region}/queues",
    "compute": "compute/v1/projects/{project}/regions/{region}",
    "firestore": "v1/projects/{project}/databases",
    "iam": "v1/projects/{project}/serviceAccounts?pageSize=1",
    "logging": "v2/projects/{project}/metrics?pageSize=1",
    "monitoring": "v3/projects/{project}/alertPolicies?pageSize=1",
    "redis": "v1/projects/{project}/locations/{region}/instances",
    "run": "v2/projects/{project}/locations/{region}/services",
    "secretmanager": "v1/projects/{project}/secrets?pageSize=1",
    "serviceusage": "v1/projects/{project}/services/serviceusage.googleapis.com",
    "storage": "storage/v1/b?project={project}&maxResults=1",
}
"""What can be read of an API without anything being there. An API that is not here is not asked, and not waited for."""

REFUSED = re.compile(r"SERVICE_DISABLED|accessNotConfigured|has not been used in project", re.I)
"""The words of an API that is off, or not on everywhere yet: https://cloud.google.com/apis/docs/troubleshooting"""

IN_A_ROW = 3
"""Answers that an API has to give: its front ends learn that it is on one after the other."""

PAUSE_SECONDS = 5.0
LONGEST_SECONDS = 600.0
ASK_SECONDS = 15.0


def answers(url: str, headers: Mapping[str, str]) -> bool:
    """Whether the API says anything but that it is off. An error of the network or the server does not count."""
    request = urllib.request.Request(url, headers=dict(headers))
    try:
        with urllib.request.urlopen(request, timeout=ASK_SECONDS):
            return True
    except urllib.error.HTTPError as error:
        if error.code >= 500 or error.code == 429:
            return False
        return not (error.code == 403 and REFUSED.search(error.read().decode("utf-8", "replace")))
    except OSError:
        return False


def wait(url: str, headers: Mapping[str, str], deadline: float, pause: float) -> bool:
    """Whether it has answered IN_A_ROW times, one after the other, before the deadline of the monotonic clock."""
    in_a_row = 0
    while True:
        in_a_row = in_a_row + 1 if answers(url, headers) else 0
        if in_a_row == IN_A_ROW:
            return True
        if time.monotonic() + pause > deadline:
            return False
        time.sleep(pause)


def token_of_caller() -> str | None:
    """Of whom Terraform calls as; else of who is logged in with gcloud; None where there is neither."""
    if given := os.environ.get("GOOGLE_OAUTH_ACCESS_TOKEN"):
        return given
    for words in (("auth", "application-default", "print-access-token"), ("auth", "print-access-token")):
        try:
            done = subprocess.run(["gcloud", *words, "--quiet"], capture_output=True, encoding="utf-8", timeout=60)
        except (OSError, subprocess.TimeoutExpired):
            return None
        if done.returncode == 0 and done.stdout.strip():
            return done.stdout.strip()
    return None


def main(given: Sequence[str] | None = None) -> None:
    """Exit 0 once each of them answers, 1 with a sentence where one does not."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, prog="wait_for_apis"
    )
    parser.add_argument("apis", nargs="+", metavar="API", help="a name like run, without .googleapis.com")
    parser.add_argument("--project", required=True)
    parser.add_argument("--region", required=True)
    parser.add_argument("--longest", type=float, default=LONGEST_SECONDS, help="seconds in all (default %(default)s)")
    parser.add_argument("--pause", type=float, default=PAUSE_SECONDS, help="seconds between (default %(default)s)")
    parser.add_argument("--at", default="https://{api}.googleapis.com", help=argparse.SUPPRESS)
    asked = parser.parse_args(given)
    apis = [api for api in asked.apis if api in ASKED]
    if not apis:
        return
    token = token_of_caller()
    if token is None:
        sys.exit("pombo: No account is logged in: run gcloud auth login and gcloud auth application-default login.")
    headers = {"Authorization": f"Bearer {token}", "X-Goog-User-Project": asked.project}
    deadline = time.monotonic() + asked.longest
    for api in apis:
        path = ASKED[api].format(project=asked.project, region=asked.region)
        if not wait(f"{asked.at.format(api=api)}/{path}", headers, deadline, asked.pause):
            sys.exit(
                f"pombo: {api}.googleapis.com was turned on and still does not answer after {asked.longest:.0f} s. "
                "Run the same command again: it continues from here."
            )


if __name__ == "__main__":
    main()
