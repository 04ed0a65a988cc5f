"""Place: the project, region and environment of a deployment, and whether they can be deployed to."""

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from infra.release.tools import Failed, Refused, follow, gcloud, terraform

GCLOUD, TERRAFORM = (528, 0), (1, 11)
FIRST_APIS = ("cloudresourcemanager", "serviceusage", "storage", "secretmanager", "run", "cloudtasks", "cloudscheduler")
"""What has to answer before Terraform: so that it can look at the project, and we at the region and the secrets."""

ACCOUNT_APIS = ("cloudresourcemanager", "serviceusage", "cloudbilling")
"""What must be on before a service account that deploys can ask anything: gcloud counts the calls on that
account's project."""

API_OFF = ("has not been used in project", "SERVICE_DISABLED")

ENVIRONMENTS = ("staging", "prod")


@dataclass(frozen=True, slots=True)
class Place:
    """Where to. `root` is the repository that is deployed."""

    project: str
    region: str
    environment: str
    root: Path

    @property
    def options(self) -> tuple[str, str]:
        """For gcloud."""
        return f"--project={self.project}", f"--region={self.region}"

    @property
    def state_bucket(self) -> str:
        return f"{self.project}-terraform-state"

    @property
    def bootstrap(self) -> Path:
        return self.root / "infra" / "terraform" / "bootstrap"

    @property
    def environment_root(self) -> Path:
        return self.root / "infra" / "terraform" / "environments" / self.environment

    @property
    def variables(self) -> Path:
        return self.environment_root / "terraform.tfvars"


def check_words(place: Place) -> None:
    """Raises Refused where a name cannot be right, before anything is called."""
    if not re.fullmatch(r"[a-z][a-z0-9-]{4,28}[a-z0-9]", place.project):
        raise Refused(
            f"{place.project} is not a project ID: 6 to 30 lower-case letters, digits and hyphens, like my-project-1."
        )
    if not re.fullmatch(r"[a-z]+-[a-z]+[0-9]{1,2}", place.region):
        raise Refused(f"{place.region} is not a region. Two examples: europe-west1, us-central1.")


def check_tools() -> str:
    """The account that is logged in. Raises Refused if a program is missing or old, or no account is logged in."""
    _check_version("gcloud", json.loads(gcloud("version", "--format=json"))["Google Cloud SDK"], GCLOUD)
    _check_version("terraform", json.loads(terraform(Path.cwd(), "version", "-json"))["terraform_version"], TERRAFORM)
    account = gcloud("auth", "list", "--filter=status:ACTIVE", "--format=value(account)")
    if not account:
        raise Refused("No account is logged in with gcloud: run gcloud auth login.")
    if not os.environ.get("GOOGLE_OAUTH_ACCESS_TOKEN"):
        try:
            gcloud("auth", "application-default", "print-access-token")
        except Failed:
            raise Refused("Terraform has no credentials: run gcloud auth application-default login.") from None
    return account


def _check_version(program: str, found: str, least: tuple[int, int]) -> None:
    numbers = tuple(int(number) for number in re.findall(r"\d+", found)[:2])
    if numbers < least:
        raise Refused(f"{program} {found} is too old: {least[0]}.{least[1]} or newer is needed.")


def check_project(place: Place) -> None:
    """Raises Refused unless the project is there, is active and has billing."""
    try:
        described = json.loads(gcloud("projects", "describe", place.project, "--format=json"))
    except Failed as failed:
        if any(word in failed.said for word in API_OFF):
            raise Refused(_turn_on(place)) from None
        raise Refused(
            f"There is no project {place.project} that you may see: run gcloud projects create {place.project}, or log "
            "in with an account that may see it."
        ) from None
    if described.get("lifecycleState") != "ACTIVE":
        raise Refused(f"{place.project} is being deleted: gcloud projects undelete {place.project} takes that back.")
    try:
        billing = gcloud("billing", "projects", "describe", place.project, "--format=value(billingEnabled)")
    except Failed as failed:
        if any(word in failed.said for word in API_OFF):
            raise Refused(_turn_on(place)) from None
        raise
    if billing.lower() != "true":
        raise Refused(
            f"{place.project} has no billing: run gcloud billing projects link {place.project} "
            "--billing-account=000000-000000-000000 with one of gcloud billing accounts list."
        )


def _turn_on(place: Place) -> str:
    apis = " ".join(f"{api}.googleapis.com" for api in ACCOUNT_APIS)
    return (
        "An API is off in the project of the account that is logged in: with an account that may, run gcloud services "
        f"enable {apis} --project={place.project} (or that account's own project), and wait some minutes."
    )


def turn_on_apis(place: Place) -> None:
    """The APIs that are needed before Terraform, and wait until they answer. Raises Refused."""
    gcloud("services", "enable", *(f"{api}.googleapis.com" for api in FIRST_APIS), f"--project={place.project}")
    program = str(place.root / "infra" / "release" / "wait_for_apis.py")
    follow("python3", program, *place.options, *FIRST_APIS)


def check_region(place: Place) -> None:
    """Raises Refused where a service that cannot be elsewhere is not in the region."""
    for service, group in (("Cloud Run", ("run", "regions")), ("Cloud Tasks", ("tasks", "locations"))):
        there = gcloud(*group, "list", f"--project={place.project}", "--format=value(locationId)").split()
        if place.region not in there:
            raise Refused(f"{service} is not in {place.region}. It is in: {', '.join(sorted(there))}.")
    there = gcloud("scheduler", "locations", "list", f"--project={place.project}", "--format=value(locationId)").split()
    text = place.variables.read_text(encoding="utf-8") if place.variables.exists() else ""
    if place.region not in there and not re.search(r'^scheduler_region\s*= *"', text, re.M):
        raise Refused(
            f"Cloud Scheduler is not in {place.region}. Choose another region, or say scheduler_region in "
            f"{place.variables}."
        )


def make_state_bucket(place: Place) -> bool:
    """The bucket of Terraform's state, if it is not there; whether it was made. Raises Refused."""
    url = f"gs://{place.state_bucket}"
    if _is_there("buckets", url):
        return False
    gcloud(
        *("storage", "buckets", "create", url, f"--project={place.project}", f"--location={place.region}"),
        *("--uniform-bucket-level-access", "--public-access-prevention"),
    )
    return True


def check_no_other_environment(place: Place) -> None:
    """Raises Refused where the project has the other environment: the names of both are the same."""
    for other in ENVIRONMENTS:
        url = f"gs://{place.state_bucket}/{other}/default.tfstate"
        if other != place.environment and _is_there("objects", url):
            raise Refused(
                f"{place.project} has {other} already, and {place.environment} needs a project of its own: go on with "
                f"ENVIRONMENT={other}, or, if {other} was destroyed, run gcloud storage rm {url}"
            )


def _is_there(kind: str, url: str) -> bool:
    """A bucket or an object of Cloud Storage. Raises Failed where that is not known."""
    try:
        gcloud("storage", kind, "describe", url, "--format=value(name)")
    except Failed as failed:
        if "404" not in failed.said and "not found" not in failed.said.lower():
            raise
        return False
    return True
