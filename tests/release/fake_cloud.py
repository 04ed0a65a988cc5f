"""gcloud and docker, as far as a build uses them, on a file that stands for Cloud Run and the registry.

python fake_cloud.py gcloud|docker ARGUMENT...: the file of FAKE_CLOUD is read and changed, and holds every call.
"""

import hashlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

REPOSITORY = "europe-west1-docker.pkg.dev/my-project/pombo"
PLACEHOLDER = "us-docker.pkg.dev/cloudrun/container/hello"


def new(url: str) -> dict[str, Any]:
    """After the first terraform apply: a placeholder serves. `url`: where candidates are."""
    services = {f"pombo-{kind}": {"revisions": [], "traffic": [], "ready": None} for kind in ("webhook", "internal")}
    state = {
        "url": url,
        "services": services,
        "calls": [],
        "built": [],
        "pushed": [],
        "severities": [],
        "unready": [],
        "away": [],
    }
    for name in services:
        add_revision(state, name, PLACEHOLDER)
        services[name]["traffic"] = [{"latestRevision": True, "percent": 100}]
    return state


def add_revision(state: dict[str, Any], name: str, image: str) -> str:
    service = state["services"][name]
    revision = f"{name}-{len(service['revisions']) + 1:05}"
    service["revisions"].append({"name": revision, "image": image, "settings": service.get("settings")})
    if not {name, image} & set(state["unready"]):
        service["ready"] = revision
    return revision


def status(state: Mapping[str, Any], name: str) -> dict[str, Any]:
    service = state["services"][name]
    return {
        "latestCreatedRevisionName": service["revisions"][-1]["name"],
        "latestReadyRevisionName": service["ready"],
        "traffic": [
            {"revisionName": service["ready"], **target, **({"url": state["url"]} if "tag" in target else {})}
            for target in service["traffic"]
        ],
    }


def serving(state: Mapping[str, Any], name: str, what: str = "image") -> str:
    """The image that gets the traffic, or the settings of its revision."""
    (target,) = [target for target in status(state, name)["traffic"] if target.get("percent")]
    assert target["percent"] == 100
    return next(one[what] for one in state["services"][name]["revisions"] if one["name"] == target["revisionName"])


def apply(state: dict[str, Any], name: str, settings: str) -> None:
    """What terraform apply does: other settings, the image that is there."""
    assert not state["services"][name].get("named"), "a plan without a change wants to take the revision's name away"
    state["services"][name]["settings"] = settings
    add_revision(state, name, state["services"][name]["revisions"][-1]["image"])


def _fail(sentence: str) -> None:
    sys.exit(f"ERROR: {sentence}")


def _tag(traffic: list[dict[str, Any]], tag: str, revision: str) -> list[dict[str, Any]]:
    kept = [target for target in traffic if target.get("tag") != tag or target.get("percent")]
    for target in kept:
        if target.get("tag") == tag:
            del target["tag"]
    return [*kept, {"revisionName": revision, "tag": tag}]


def _update(state: dict[str, Any], name: str, flags: Mapping[str, str]) -> None:
    service = state["services"][name]
    if flags["--image"] not in (*state["pushed"], PLACEHOLDER):
        _fail(f"an image that is not in the registry: {flags}")
    for target in service["traffic"] if "--no-traffic" in flags else ():
        if target.pop("latestRevision", None):
            target["revisionName"] = service["ready"]
    revision = add_revision(state, name, flags["--image"])
    # Asked for a tag or a suffix, gcloud names the revision in the service's template, where the name stays.
    service["named"] = revision if {"--tag", "--revision-suffix"} & set(flags) else None
    if service["ready"] != revision:
        _fail(f"(gcloud.run.services.update) Revision '{revision}' is not ready and cannot serve traffic.")


def _traffic(state: dict[str, Any], name: str, flags: Mapping[str, str]) -> None:
    service = state["services"][name]
    follows = [target for target in service["traffic"] if "tag" not in target]
    targets = [
        {key: value for key, value in one.items() if key == "tag" or key == "revisionName"}
        for one in service["traffic"]
        if "tag" in one
    ]
    if "--to-latest" in flags:
        follows = [{"latestRevision": True, "percent": 100}]
    if "--update-tags" in flags:
        targets = _tag(targets, *flags["--update-tags"].split("="))
    service["traffic"] = [*targets, *follows]


def gcloud(state: dict[str, Any], words: list[str], flags: Mapping[str, str]) -> str:
    match words:
        case ["run", "services", action, name] if [action, name] in state["away"]:
            state["away"].remove([action, name])
            _fail(f"(gcloud.run.services.{action}) UNAVAILABLE: The service is currently unavailable.")
        case ["run", "services", action, name] if name not in state["services"]:
            _fail(f"(gcloud.run.services.{action}) Cannot find service [{name}]")
        case ["artifacts", "docker", "images", "scan", image]:
            return "projects/my-project/scans/1" if image in state["built"] else _fail(f"no image {image}")
        case ["artifacts", "docker", "images", "list-vulnerabilities", "projects/my-project/scans/1"]:
            return "\n".join(state["severities"])
        case ["auth", "configure-docker", "europe-west1-docker.pkg.dev"]:
            return ""
        case ["run", "services", "update", name]:
            _update(state, name, flags)
        case ["run", "services", "update-traffic", name]:
            _traffic(state, name, flags)
        case ["run", "services", "describe", name] if flags["--format"].startswith("value("):
            return status(state, name)[flags["--format"].removeprefix("value(status.").rstrip(")")]
        case ["run", "services", "describe", name] if flags["--format"] == "json":
            return json.dumps({"status": status(state, name)})
        case ["run", "revisions", "describe", revision]:
            revisions = state["services"][revision.rpartition("-")[0]]["revisions"]
            return next(one["image"] for one in revisions if one["name"] == revision)
        case _:
            _fail(f"unknown: {words}")
    return ""


def docker(state: dict[str, Any], words: list[str], flags: Mapping[str, str]) -> str:
    match words:
        case ["build", "."]:
            assert Path(flags["--file"]).is_file()
            assert flags["--build-arg"] == f"PYTHON_IMAGE={Path('services/base-image.txt').read_text().strip()}"
            state["built"].append(flags["--tag"])
        case ["push", image]:
            assert image in state["built"]
            state["pushed"].append(_digest(image))
        case ["inspect", image] if flags["--format"] == "{{index .RepoDigests 0}}":
            return _digest(image) if _digest(image) in state["pushed"] else _fail("no digest before a push")
        case _:
            _fail(f"unknown: {words}")
    return ""


def _digest(image: str) -> str:
    return f"{image.rpartition(':')[0]}@sha256:{hashlib.sha256(image.encode()).hexdigest()}"


def _read(arguments: list[str]) -> tuple[list[str], dict[str, str]]:
    """Words, and flags: `--name=value`, or as docker is called, `--name value`."""
    words, flags, waiting = [], {}, list(arguments)
    while waiting:
        word = waiting.pop(0)
        if not word.startswith("--"):
            words.append(word)
        elif "=" in word or word in ("--no-traffic", "--to-latest", "--quiet"):
            name, _, value = word.partition("=")
            flags[name] = value
        else:
            flags[word] = waiting.pop(0)
    return words, flags


def main() -> None:
    path = Path(os.environ["FAKE_CLOUD"])
    state = json.loads(path.read_text())
    program, *arguments = sys.argv[1:]
    state["calls"].append([program, *arguments])
    try:
        said = {"gcloud": gcloud, "docker": docker}[program](state, *_read(arguments))
    finally:
        path.write_text(json.dumps(state))
    print(said)


if __name__ == "__main__":
    main()
