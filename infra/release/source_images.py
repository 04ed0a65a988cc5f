"""Source images: a service is built by Google from a folder of source, and deployed: gcloud run deploy --source.

That command takes the Dockerfile at the top of the folder, and no build argument (gcloud 528, command_lib/run/
sourcedeploys/deployer.py: an empty dockerBuild). So the folder is put together here: what the service's Dockerfile
copies, and that Dockerfile with the base image written into it.

The image carries a tag that is a hash of that folder, so that what has not changed is not built again.
"""

import hashlib
import json
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from infra.release.cloud_run import CloudRunService
from infra.release.place import Place
from infra.release.tools import Failed, Refused, follow, gcloud

FOLDERS = ("services", "shared", "handlers", "pombo")
LEFT_OUT = ("__pycache__",)
"""What .dockerignore says, in Python's words. A test holds the two together."""


@dataclass(frozen=True, slots=True)
class SourceService:
    """One service that is built from source."""

    kind: str
    place: Place

    @property
    def name(self) -> str:
        return f"pombo-{self.kind}"

    @property
    def repository(self) -> str:
        """Of all images: Terraform made it, and Cloud Run may read it."""
        return f"{self.place.region}-docker.pkg.dev/{self.place.project}/pombo"

    @property
    def image(self) -> str:
        """Where gcloud run deploy puts what it built: the repository, then the service's name."""
        return f"{self.repository}/{self.name}"

    def running(self) -> CloudRunService:
        """The service as Cloud Run describes it now. Raises Refused."""
        return CloudRunService.described(self.kind, self.place.project, self.place.region)


def put_together(service: SourceService, folder: Path) -> None:
    """The source of a service: what its Dockerfile copies, and the Dockerfile. Raises Refused."""
    root = service.place.root
    dockerfile = (root / "services" / service.kind / "Dockerfile").read_text(encoding="utf-8")
    for pattern in _copied(dockerfile):
        for path in sorted(root.glob(pattern)):
            _copy(path, root, folder)
    if len(re.findall(r"^ARG PYTHON_IMAGE$", dockerfile, re.M)) != 1:
        raise Refused(f"The Dockerfile of {service.kind} does not take its base image as the argument PYTHON_IMAGE.")
    base = (root / "services" / "base-image.txt").read_text(encoding="utf-8").strip()
    dockerfile = re.sub(r"^ARG PYTHON_IMAGE$", f"ARG PYTHON_IMAGE={base}", dockerfile, flags=re.M)
    (folder / "Dockerfile").write_text(dockerfile, encoding="utf-8")
    # gcloud leaves out what a .gitignore says where there is no .gcloudignore; here all of it must be sent.
    (folder / ".gcloudignore").write_text("# everything\n", encoding="utf-8")


def _copied(dockerfile: str) -> list[str]:
    """What the Dockerfile takes from the context."""
    lines = [words.split()[:-1] for words in re.findall(r"^COPY (?!--from=)(.*)$", dockerfile, re.M)]
    return [word for words in lines for word in words]


def _copy(path: Path, root: Path, folder: Path) -> None:
    """To the same place under another folder, without what .dockerignore leaves out."""
    if path.relative_to(root).parts[0] not in FOLDERS:
        raise Refused(f"A Dockerfile copies {path.relative_to(root)}, which .dockerignore does not let in.")

    def ignored(directory: str, names: list[str]) -> set[str]:
        inside = Path(directory).relative_to(root)
        return {name for name in names if name in LEFT_OUT or (inside / name).as_posix() in LEFT_OUT}

    to = folder / path.relative_to(root)
    if path.is_dir():
        shutil.copytree(path, to, ignore=ignored, dirs_exist_ok=True)
    else:
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, to)


def hash_of(folder: Path) -> str:
    """One for the names and contents of all files."""
    whole = hashlib.sha256()
    for path in sorted(it for it in folder.rglob("*") if it.is_file()):
        content = path.read_bytes()
        whole.update(f"{path.relative_to(folder).as_posix()}\0{len(content)}\0".encode() + content)
    return whole.hexdigest()[:32]


def deploy(service: SourceService) -> str:
    """Have it serve this source; says what was done. Raises Refused; then the old image still serves."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, service.kind)
        folder.mkdir()
        put_together(service, folder)
        tag = f"source-{hash_of(folder)}"
        running = service.running()
        built = _built(service, running, tag)
        if built and built == running.image_of(running.serving) and running.follows_the_latest and not running.has_tags:
            return f"{service.name} serves this source already."
        if built:
            gcloud("run", "services", "update", service.name, *service.place.options, f"--image={built}")
        else:
            _build(service, folder)
    # Ends a pinning of the traffic and an old revision's address too, as a broken deployment may have left them.
    gcloud("run", "services", "update-traffic", service.name, *service.place.options, "--to-latest", "--clear-tags")
    running = service.running()
    serves = running.image_of(running.serving)
    if not built and serves.startswith(f"{service.image}@sha256:"):
        gcloud("artifacts", "docker", "tags", "add", serves, f"{service.image}:{tag}")
    return f"{service.name} serves {serves.partition('@')[2][:19] or serves}."


def _built(service: SourceService, running: CloudRunService, tag: str) -> str | None:
    """The image of this very source, if the service has run it. (Where the registry does not say, it is built again.)

    pombo-build may push, and so move the tag to a foreign image: the tag alone is not trusted.
    """
    try:
        tags = json.loads(gcloud("artifacts", "docker", "tags", "list", service.image, "--format=json"))
    except Failed:
        return None
    versions = [it["version"].rpartition("/")[2] for it in tags if it["tag"].rpartition("/")[2] == tag]
    image = f"{service.image}@{versions[0]}" if versions else ""
    return image if image and running.has_run(image) else None


def _build(service: SourceService, folder: Path) -> None:
    """Built as the account that may build and nothing else, not as the Compute Engine default account."""
    project = service.place.project
    follow(
        *("gcloud", "run", "deploy", service.name, f"--source={folder}", f"--image={service.repository}"),
        f"--build-service-account=projects/{project}/serviceAccounts/pombo-build@{project}.iam.gserviceaccount.com",
        *service.place.options,
        "--quiet",
    )
