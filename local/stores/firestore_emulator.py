"""The Firestore emulator that gcloud installs. It keeps its data in memory."""

import re
import shutil
from pathlib import Path

import click

from local.http_call import NO_ANSWER, call
from local.ports import LOOPBACK
from local.stores.program import ANSWER_SECONDS, Program, last_line

JAR = Path("platform/cloud-firestore-emulator/cloud-firestore-emulator.jar")
MAIN_CLASS = "com.google.cloud.datastore.emulator.firestore.CloudFirestore"
"""Copied from the emulator's own start script. If that script or gcloud started Java, it would be a grandchild, and
survive a kill of its parent.
"""

JVM = ("-Duser.language=en", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
"""From that script. The other options halve its start, from 3.1 s to 1.5 s on two cores (measured 2026-11-28)."""

JAVA_OF_CLASS_FILES = 44
"""Java n reads class files of versions up to n + 44. https://docs.oracle.com/javase/specs/jvms/se21/html/jvms-4.html
(table 4.1-A, 2026-11-28)
"""

DOCUMENTS = "projects/pombo-ready/databases/(default)/documents"
"""A project that nothing else uses: the emulator accepts every project id."""

_OR = "or set FIRESTORE_EMULATOR_HOST"


def _command(port: int, data_dir: Path) -> list[str]:  # noqa: ARG001 - it keeps no files
    gcloud, java = shutil.which("gcloud"), shutil.which("java")
    if gcloud is None:
        raise click.ClickException(
            "--store firestore needs gcloud's emulator, and gcloud is not installed: install it as "
            f"https://cloud.google.com/sdk/docs/install says, {_OR}."
        )
    jar = Path(gcloud).resolve().parents[1] / JAR
    if not jar.is_file():
        raise click.ClickException(
            "--store firestore needs the Firestore emulator: gcloud components install cloud-firestore-emulator "
            f"(Debian: apt-get install google-cloud-cli-firestore-emulator), {_OR}."
        )
    if java is None:
        raise click.ClickException(
            "--store firestore needs Java for Google's emulator, and Java is not installed: "
            f"apt-get install default-jre-headless, {_OR}."
        )
    return [java, *JVM, "-cp", str(jar), MAIN_CLASS, "--host", LOOPBACK, "--port", str(port)]


OWNER = {"Authorization": "Bearer owner"}


def _answers(address: str) -> bool:
    """Whether it writes and looks up. Its first write takes as long as its start, and a customer must not wait for it:
    1.0 s on two idle cores, 9 s on busy ones (measured 2026-11-28).
    """
    documents = f"http://{address}/v1/{DOCUMENTS}"
    write = {"writes": [{"delete": f"{DOCUMENTS}/nothing/here"}]}
    query = {"structuredQuery": {"from": [{"collectionId": "nothing"}], "limit": 1}}
    try:
        is_it = call("GET", f"http://{address}/", timeout=ANSWER_SECONDS)[1].strip() == b"Ok"
        return is_it and all(
            call("POST", f"{documents}:{verb}", document=body, headers=OWNER, timeout=ANSWER_SECONDS)[0] == 200
            for verb, body in (("commit", write), ("runQuery", query))
        )
    except NO_ANSWER:
        return False


def _explain(said: str) -> str:
    versions = re.search(r"class file version (\d+)\.\d+.* up to (\d+)\.\d+", said)
    if versions:
        needed, there = (int(version) - JAVA_OF_CLASS_FILES for version in versions.groups())
        return f"it needs Java {needed} or newer, and this is Java {there}; apt-get install default-jre-headless, {_OR}"
    return last_line(said)


FIRESTORE_EMULATOR = Program(
    what="the Firestore emulator",
    setting="FIRESTORE_EMULATOR_HOST",
    address=lambda port: f"{LOOPBACK}:{port}",
    command=_command,
    answers=_answers,
    explain=_explain,
    forgets=True,
)
