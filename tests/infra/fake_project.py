"""A fake of gcloud, as far as a deployment from source uses it, on a file that stands for a project.

python fake_project.py ARGUMENT...: reads and changes the file of FAKE_PROJECT, and records every call in it. What a
user does by hand first (log in, create the project, link billing) is state too, and so is what Google would refuse.
"""

import fcntl
import hashlib
import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

PROJECT, REGION = "my-project-1", "europe-west1"
REPOSITORY = f"{REGION}-docker.pkg.dev/{PROJECT}/pombo"
PLACEHOLDER = "us-docker.pkg.dev/cloudrun/container/hello"
SWITCHES = ("--quiet", "--to-latest", "--clear-tags", "--uniform-bucket-level-access", "--public-access-prevention")


def new() -> dict[str, Any]:
    """An empty project with billing and a logged-in user."""
    return {
        "calls": [],
        "account": "jane@example.com",
        "default_credentials": True,
        "version": "528.0.0",
        "project": {"projectId": PROJECT, "lifecycleState": "ACTIVE", "labels": {}},
        "billing": "True",
        "regions": [REGION, "us-central1"],
        "scheduler_regions": [REGION, "us-central1"],
        "apis": [],
        "off": [],
        "buckets": [],
        "objects": [],
        "secrets": {},
        "services": {},
        "tags": {},
        "sources": [],
        "unready": [],
        "logs": [],
    }


def service_of(state: dict[str, Any], name: str) -> dict[str, Any]:
    """A service as Terraform created it: a placeholder serves."""
    first = {"revisions": [{"name": f"{name}-00001", "image": PLACEHOLDER}], "serves": 0, "follows": True}
    service: dict[str, Any] = state["services"].setdefault(name, first)
    return service


def image_served(state: dict[str, Any], name: str) -> str:
    service = service_of(state, name)
    return str(service["revisions"][service["serves"]]["image"])


def revise(state: dict[str, Any], name: str, image: str) -> None:
    """Another revision. It gets the traffic if it is ready and the traffic is not pinned."""
    service = service_of(state, name)
    service["revisions"].append({"name": f"{name}-{len(service['revisions']) + 1:05}", "image": image})
    if name in state["unready"]:
        fail(
            f"(gcloud.run.deploy) Revision '{service['revisions'][-1]['name']}' is not ready and cannot serve traffic."
        )
    if service["follows"]:
        service["serves"] = len(service["revisions"]) - 1


def fail(sentence: str) -> NoReturn:
    sys.exit(f"ERROR: {sentence}")


def _run(state: dict[str, Any], words: list[str], flags: Mapping[str, str]) -> str:
    assert (flags["--project"], flags.get("--region", REGION)) == (PROJECT, REGION)
    match words:
        case ["regions", "list"]:
            return "\n".join(state["regions"])
        case ["deploy", name]:
            source = Path(flags["--source"])
            files = {str(it.relative_to(source)): it.read_text() for it in source.rglob("*") if it.is_file()}
            account = f"projects/{PROJECT}/serviceAccounts/pombo-build@{PROJECT}.iam.gserviceaccount.com"
            assert (flags["--image"], flags["--build-service-account"]) == (REPOSITORY, account)
            state["sources"].append({"name": name, "files": files})
            digest = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
            revise(state, name, f"{REPOSITORY}/{name}@sha256:{digest}")
        case ["services", "update", name]:
            assert flags["--image"] in state["tags"].values(), "an image that is not in the registry"
            revise(state, name, flags["--image"])
        case ["services", "update-traffic", name] if "--to-latest" in flags:
            service = service_of(state, name)
            service |= {"serves": len(service["revisions"]) - 1, "follows": True}
            service.pop("shared", None)
            if "--clear-tags" in flags:
                service.pop("tagged", None)
        case ["services", "describe", name]:
            service = service_of(state, name)
            old = service.get("shared", 0)  # percent of the traffic that the first revision has
            target = {"revisionName": service["revisions"][service["serves"]]["name"], "percent": 100 - old}
            latest = {"latestRevision": True} if service["follows"] else {}
            tags = [{"revisionName": service["revisions"][0]["name"], "tag": it} for it in service.get("tagged", [])]
            rest = [{"revisionName": service["revisions"][0]["name"], "percent": old}] if old else []
            return json.dumps({"status": {"traffic": [*tags, {**target, **latest}, *rest]}})
        case ["revisions", "list"]:
            return "\n".join(it["image"] for it in service_of(state, flags["--service"])["revisions"])
        case ["revisions", "describe", name]:
            revisions = service_of(state, name.rpartition("-")[0])["revisions"]
            return next(it["image"] for it in revisions if it["name"] == name)
        case _:
            fail(f"unknown: run {words}")
    return ""


def _secrets(state: dict[str, Any], words: list[str]) -> str:
    match words:
        case ["list"]:
            return "\n".join(state["secrets"])
        case ["versions", "list", name]:
            return "1" if state["secrets"].get(name) else ""
        case ["versions", "add", name]:
            state["secrets"].setdefault(name, []).append(sys.stdin.read())
        case _:
            fail(f"unknown: secrets {words}")
    return ""


def _account(state: dict[str, Any], words: list[str]) -> str:
    match words:
        case ["version"]:
            return json.dumps({"Google Cloud SDK": state["version"]})
        case ["auth", "list"]:
            return str(state["account"])
        case ["auth", "application-default", "print-access-token"] if state["default_credentials"]:
            return "ya29.a-token"
        case ["projects" | "billing" as api, *_] if api in state["off"]:
            fail(f"(gcloud.{api}.describe) PERMISSION_DENIED: The API has not been used in project 1 before.")
        case ["projects", "describe", name]:
            if name != state["project"]["projectId"]:
                fail(f"(gcloud.projects.describe) [{name}] does not have permission or it may not exist.")
            return json.dumps(state["project"])
        case ["billing", "projects", "describe", _]:
            return str(state["billing"])
    fail(f"unknown: {words}")


def gcloud(state: dict[str, Any], words: list[str], flags: Mapping[str, str]) -> str:
    match words:
        case ["run", *rest]:
            return _run(state, rest, flags)
        case ["secrets", *rest]:
            return _secrets(state, rest)
        case ["services", "enable", *apis]:
            state["apis"] += apis
            return ""
        case ["tasks", "locations", "list"]:
            return "\n".join(state["regions"])
        case ["scheduler", "locations", "list"]:
            return "\n".join(state["scheduler_regions"])
        case ["storage", "buckets", "describe", url]:
            return url if url in state["buckets"] else fail(f"(gcloud.storage.buckets.describe) {url} not found: 404.")
        case ["storage", "objects", "describe", url]:
            return url if url in state["objects"] else fail(f"(gcloud.storage.objects.describe) {url} not found: 404.")
        case ["storage", "buckets", "create", url]:
            state["buckets"].append(url)
            return ""
        case ["artifacts", "docker", "tags", "list", image]:
            return _tags(state, image)
        case ["artifacts", "docker", "tags", "add", image, tag]:
            state["tags"][tag] = image
            return ""
        case ["logging", "read", query]:
            return _logs(state, query)
        case _:
            return _account(state, words)


def _tags(state: dict[str, Any], image: str) -> str:
    """The registry's answer; of an image that was never pushed it has no tags."""
    name = image.rpartition("/")[2]
    package = f"projects/{PROJECT}/locations/{REGION}/repositories/pombo/packages/{name}"
    found = [
        {
            "tag": f"{package}/tags/{tag.rpartition(':')[2]}",
            "image": image,
            "version": f"{package}/versions/{of.partition('@')[2]}",
        }
        for tag, of in state["tags"].items()
        if tag.startswith(f"{image}:")
    ]
    return json.dumps(found) if found else fail("(gcloud.artifacts.docker.tags.list) NOT_FOUND: Package not found.")


def _logs(state: dict[str, Any], query: str) -> str:
    """The lines whose event is named, one JSON list."""
    wanted = set(re.findall(r'"([a-z_]+)"', query))
    lines = [line for line in state["logs"] if line["event"] in wanted]
    return json.dumps([{"jsonPayload": it, "labels": {"correlation_id": it["correlation_id"]}} for it in lines])


def read_words(arguments: list[str]) -> tuple[list[str], dict[str, str]]:
    words, flags = [], {}
    for word in arguments:
        if word.startswith("--"):
            name, _, value = word.partition("=")
            assert value or name in SWITCHES, f"{word} has no value"
            flags[name] = value
        else:
            words.append(word)
    return words, flags


def main() -> None:
    path = Path(os.environ["FAKE_PROJECT"])
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        state = json.loads(path.read_text())
        state["calls"].append(sys.argv[1:])
        try:
            said = gcloud(state, *read_words(sys.argv[1:]))
        finally:
            path.write_text(json.dumps(state))
    print(said)


if __name__ == "__main__":
    main()
