"""A fake of gcloud and docker, as far as a build uses them, on a file that stands for Cloud Run and the registry.

A deployment calls gcloud some forty times. So a call is answered by a thread of the test's own process, and what the
steps find as gcloud or docker is a shell that passes the call on: this takes a tenth of the time of a Python.
"""

import hashlib
import json
import re
import socketserver
import sys
import threading
import traceback
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.tree import SERVICES

REPOSITORY = "europe-west1-docker.pkg.dev/my-project/pombo"
PLACEHOLDER = "us-docker.pkg.dev/cloudrun/container/hello"
BUILDS_IN = "us-central1"
"""The region of the builds, which may differ from that of the services."""


def new(url: str) -> dict[str, Any]:
    """The state after the first terraform apply: a placeholder serves. `url`: where candidates are."""
    services = {f"pombo-{kind}": {"revisions": [], "traffic": [], "ready": None} for kind in SERVICES}
    state = {
        "url": url,
        "services": services,
        "calls": [],
        "built": [],
        "scanned": [],
        "pushed": [],
        "severities": [],
        "unready": [],
        "away": [],
        "denied": [],
        "builds": {},
        "tags": {},
        "metrics": {},
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
    """What terraform apply does: other settings, the same image."""
    assert not state["services"][name].get("named"), "a plan without a change wants to take the revision's name away"
    state["services"][name]["settings"] = settings
    add_revision(state, name, state["services"][name]["revisions"][-1]["image"])


def _fail(sentence: str) -> None:
    sys.exit(f"ERROR: {sentence}")


def _update(state: dict[str, Any], name: str, flags: Mapping[str, str]) -> None:
    service = state["services"][name]
    if flags["--image"] not in (*state["pushed"], PLACEHOLDER):
        _fail(f"an image that is not in the registry: {flags}")
    for target in service["traffic"] if "--no-traffic" in flags else ():
        if target.pop("latestRevision", None):
            target["revisionName"] = service["ready"]
    revision = add_revision(state, name, flags["--image"])
    # If asked for a tag or a suffix, gcloud names the revision in the service's template, and the name stays there.
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
    if "--to-revisions" in flags:
        shares = dict(share.split("=") for share in flags["--to-revisions"].split(","))
        assert set(shares) <= {one["name"] for one in service["revisions"]}
        assert sum(map(int, shares.values())) == 100
        follows = [{"revisionName": revision, "percent": int(share)} for revision, share in shares.items()]
    if "--set-tags" in flags:
        tag, revision = flags["--set-tags"].split("=")
        targets = [{"revisionName": revision, "tag": tag}]
    if "--clear-tags" in flags:
        targets = []
    service["traffic"] = [*targets, *follows]


def record(state: dict[str, Any], build: str, account: str, status: str, images: list[str]) -> None:
    """Cloud Build's record of a build, with the images that it pushed."""
    state["pushed"] += [_digest(image) for image in images]
    state["builds"][build] = {
        "status": status,
        "serviceAccount": account,
        "results": {"images": [{"name": image, "digest": _digest(image).partition("@")[2]} for image in images]},
    }


def time_series(state: Mapping[str, Any], query: Mapping[str, list[str]]) -> dict[str, Any]:
    """Cloud Monitoring's answer: `metrics` has, by revision, its requests, how many failed, and the 95th percentile."""
    asked = dict(re.findall(r'([\w.]+) = "([^"]*)"', query["filter"][0]))
    assert asked["resource.type"] == "cloud_run_revision"
    assert asked["resource.labels.location"] == "europe-west1"
    assert query["aggregation.perSeriesAligner"] == ["ALIGN_DELTA"]
    grouped, reducer = query["aggregation.groupByFields"], query["aggregation.crossSeriesReducer"]
    series = []
    for revision, (requests, failed, p95) in state["metrics"].items():
        if revision.rpartition("-")[0] != asked["resource.labels.service_name"]:
            continue
        of = {"labels": {"revision_name": revision}}
        if asked["metric.type"] == "run.googleapis.com/request_count":
            assert (reducer, len(grouped)) == (["REDUCE_SUM"], 2)
            for name, count in (("2xx", requests - failed), ("5xx", failed)):
                point = {"value": {"int64Value": str(count)}}
                series.append({"resource": of, "metric": {"labels": {"response_code_class": name}}, "points": [point]})
        else:
            assert asked["metric.type"] == "run.googleapis.com/request_latencies"
            assert (reducer, grouped) == (["REDUCE_PERCENTILE_95"], ["resource.labels.revision_name"])
            series.append({"resource": of, "metric": {}, "points": [{"value": {"doubleValue": p95}}]})
    return {"timeSeries": series} if series else {}


def _set_tag(state: dict[str, Any], verb: str, name: str, flags: Mapping[str, str]) -> None:
    image = f"{flags['--location']}-docker.pkg.dev/{flags['--project']}/{flags['--repository']}/{flags['--package']}"
    tags = state["tags"].setdefault(image, {})
    if (verb == "create") is (name in tags):
        _fail(f"(gcloud.artifacts.tags.{verb}) the tag is {'already' if name in tags else 'not'} there")
    if f"{image}@{flags['--version']}" not in state["pushed"]:
        _fail(f"(gcloud.artifacts.tags.{verb}) NOT_FOUND: no such version")
    tags[name] = flags["--version"]


def gcloud(state: dict[str, Any], words: list[str], flags: Mapping[str, str]) -> str:
    match words:
        case ["run", kind, action, *rest] if any(name.startswith(it) for it in state["denied"] for name in rest):
            _fail(f"(gcloud.run.{kind}.{action}) PERMISSION_DENIED: Permission 'run.{kind}' denied.")
        case ["run", "services", action, name] if [action, name] in state["away"]:
            state["away"].remove([action, name])
            _fail(f"(gcloud.run.services.{action}) UNAVAILABLE: The service is currently unavailable.")
        case ["run", "services", action, name] if name not in state["services"]:
            _fail(f"(gcloud.run.services.{action}) Cannot find service [{name}]")
        case ["artifacts", "docker", "images", "scan", image]:
            if image not in state["built"]:
                _fail(f"no image {image}")
            state["scanned"].append(image)
            return "projects/my-project/scans/1"
        case ["artifacts", "docker", "images", "list-vulnerabilities", "projects/my-project/scans/1"]:
            return "\n".join(_columns(row, flags["--format"]) for row in state["severities"])
        case ["auth", "configure-docker", host]:
            state["configured"] = [*state.get("configured", []), host]
        case ["auth", "print-access-token"]:
            return "a-token"
        case ["builds", "describe", build]:
            if build not in state["builds"] or flags["--region"] != BUILDS_IN:
                _fail(f"(gcloud.builds.describe) NOT_FOUND: {build}")
            return json.dumps(state["builds"][build])
        case ["artifacts", "docker", "tags", "list", image]:
            place = "projects/my-project/locations/europe-west1/repositories/pombo/packages"
            package = f"{place}/{image.rpartition('/')[2]}"
            return json.dumps(
                [
                    {"tag": f"{package}/tags/{tag}", "image": image, "version": f"{package}/versions/{digest}"}
                    for tag, digest in state["tags"].get(image, {}).items()
                ]
            )
        case ["artifacts", "tags", ("create" | "update") as verb, name]:
            _set_tag(state, verb, name, flags)
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
        case ["run", "revisions", "list"]:
            return "\n".join(one["image"] for one in state["services"][flags["--service"]]["revisions"])
        case _:
            _fail(f"unknown: {words}")
    return ""


def _columns(row: str, format: str) -> str:
    """A vulnerability's severity and whether there is a fix, in the requested order."""
    known = dict(zip(("effectiveSeverity", "fixAvailable"), row.split("\t"), strict=False))
    return "\t".join(known.get(name, "") for name in re.findall(r"vulnerability\.(\w+)", format))


def docker(
    state: dict[str, Any], words: list[str], flags: Mapping[str, str], directory: Path, python_image: str
) -> str:
    match words:
        case ["build", "."]:
            service = flags["--tag"].rpartition("/")[2].partition(":")[0]
            if flags["--file"] != f"services/{service}/Dockerfile":
                _fail(f"the image of {service} is made by {flags['--file']}")
            assert (directory / flags["--file"]).is_file()
            name, _, base = flags["--build-arg"].partition("=")
            default = (directory / "services" / "base-image.txt").read_text().strip()
            if name != "PYTHON_IMAGE" or base not in (default, python_image or None):
                _fail(f"another base image: {base}")
            host = base.partition("/")[0]
            if host.endswith("-docker.pkg.dev") and host not in state.get("configured", []):
                _fail(f"denied: Unauthenticated request to {host}")
            state["built"].append(flags["--tag"])
        case _:
            _fail(f"unknown: {words}")
    return ""


def _digest(image: str) -> str:
    return f"{image.rpartition(':')[0]}@sha256:{hashlib.sha256(image.encode()).hexdigest()}"


def _read(arguments: list[str]) -> tuple[list[str], dict[str, str]]:
    """Words, and flags: `--name=value`, or in docker's form `--name value`."""
    words, flags, waiting = [], {}, list(arguments)
    while waiting:
        word = waiting.pop(0)
        if not word.startswith("--"):
            words.append(word)
        elif "=" in word or word in ("--no-traffic", "--to-latest", "--clear-tags", "--quiet"):
            name, _, value = word.partition("=")
            flags[name] = value
        else:
            flags[word] = waiting.pop(0)
    return words, flags


def program(name: str) -> str:
    """A shell script that stands for this program: it passes on its directory, environment and arguments."""
    return f"""#!/bin/bash
exec 3<>/dev/tcp/127.0.0.1/{_port()}
printf '%s\\0' "$#" {name} "$FAKE_CLOUD" "$PWD" "$_PYTHON_IMAGE" "$@" >&3
IFS= read -r -d '' code <&3
IFS= read -r -d '' said <&3
IFS= read -r -d '' errors <&3
printf '%s' "$said"
printf '%s' "$errors" >&2
exit "${{code:-1}}"
"""


@cache
def _port() -> int:
    """Where the calls are answered, to the end of this process."""
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Call)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


class _Call(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        count, name, path, directory, python_image = [self._word() for _ in range(5)]
        arguments = [self._word() for _ in range(int(count))]
        code, said, errors = 0, "", ""
        try:
            said = called(name, arguments, Path(path), Path(directory), python_image) + "\n"
        except SystemExit as failed:
            code, errors = 1, f"{failed}\n"
        except Exception:
            code, errors = 1, traceback.format_exc()
        self.wfile.write(f"{code}\0{said}\0{errors}\0".encode())

    def _word(self) -> str:
        word = bytearray()
        while (sign := self.rfile.read(1)) not in (b"", b"\0"):
            word += sign
        return word.decode()


def called(name: str, arguments: list[str], path: Path, directory: Path, python_image: str) -> str:
    """What the program prints. It reads and changes the state in the file, and records the call there."""
    state = json.loads(path.read_text())
    state["calls"].append([name, *arguments])
    if state.get("broken"):
        _fail(f"{name} is broken")
    words, flags = _read(arguments)
    try:
        if name == "docker":
            return docker(state, words, flags, directory, python_image)
        return gcloud(state, words, flags)
    finally:
        path.write_text(json.dumps(state))
