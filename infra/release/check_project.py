"""Check a project: all of Pombo in a real project, from nothing to nothing: apply, build, one message through, an empty
plan, destroy. For a project of its own, which holds nothing else; turn it on nightly.

python3 -m infra.release.check_project --project=my-check-project --region=europe-west1
python3 -m infra.release.check_project --project=my-check-project --region=europe-west1 --only-destroy

The project has to say that everything of Pombo's in it may be destroyed:

gcloud alpha projects update my-check-project --update-labels=pombo-check=allowed

It deploys a copy of this folder without the guards against a destroy, with secrets of its own making. The message is
signed with such an app secret; its reply ends where Meta refuses an invented token. docs/check-project.md says what
that shows.
"""

import argparse
import json
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from infra.release import one_message, place, unguarded, variables
from infra.release.deploy import REPOSITORY, deploy, ended, parser_of
from infra.release.place import Place
from infra.release.roots import PAUSE_SECONDS, Root
from infra.release.tools import Failed, Refused, gcloud

LABEL, ALLOWED = "pombo-check", "allowed"
GO_WITH_THE_DATABASE = (
    "module.pombo.module.firestore.google_firestore_field.",
    "module.pombo.module.firestore.google_firestore_index.",
)
"""Deleting a policy or an index takes minutes; deleting their database deletes them at once."""


class ProjectCheck:
    """One run: its steps, and how long each took."""

    def __init__(self, where: Place, pause: float, longest: float) -> None:
        self.where, self.pause, self.longest = where, pause, longest
        self.took: dict[str, float] = {}

    def step(self, name: str, work: Callable[[], str | None]) -> None:
        print(f"== {name}", flush=True)
        begun = time.monotonic()
        try:
            said = work()
        except Refused as refusal:
            print(f"   Not as it must be: {refusal}", flush=True)
            raise
        finally:
            self.took[name] = round(time.monotonic() - begun, 1)
        print(f"   {said or 'Done.'} ({self.took[name]} s)", flush=True)

    def root(self, folder: Path, told: dict[str, str]) -> Root:
        return Root(folder, self.where.state_bucket, told)

    @property
    def roots(self) -> tuple[Root, Root]:
        """bootstrap and the environment."""
        where = self.where
        return self.root(where.bootstrap, variables.of_bootstrap(where)), self.root(where.environment_root, {})

    def through(self) -> None:
        """From an empty project to an empty plan. Raises Refused."""
        app_secret, since = secrets.token_hex(16), datetime.now(UTC).isoformat(timespec="seconds")
        os.environ |= {"META_APP_SECRET": app_secret, "WHATSAPP_ACCESS_TOKEN": f"invented{secrets.token_hex(16)}"}
        url = list[str]()

        def deployed() -> None:
            asked = argparse.Namespace(secrets_from=None, phone_number_id=None, handler=None, pause=self.pause)
            url.append(deploy(self.where, asked))

        self.step("Apply, build and deploy", deployed)
        self.step("Send a message, twice", lambda: one_message.send(url[0], app_secret))
        self.step(
            "Follow it in the log",
            lambda: one_message.follow_it(self.where, since, self.longest, min(self.pause, one_message.PAUSE_SECONDS)),
        )
        self.step("Plan again", self.planned)

    def planned(self) -> str:
        for root in self.roots:
            root.check_unchanged()
        return "Both plans are empty."

    def destroy(self) -> str:
        """All but the bucket of the state. What does not exist counts as deleted. Raises Refused."""
        if not self._has_state():
            return "Nothing is there."
        bootstrap, environment = self.roots
        environment.init()
        environment.destroy(GO_WITH_THE_DATABASE, self.pause)
        bootstrap.init()
        unguarded.without_the_state_bucket(self.where.bootstrap)
        bootstrap.destroy(("google_storage_bucket.state",), self.pause)
        return f"Only gs://{self.where.state_bucket} is left."

    def _has_state(self) -> bool:
        try:
            gcloud("storage", "buckets", "describe", f"gs://{self.where.state_bucket}", "--format=value(name)")
        except Failed:
            return False
        return True


def check_label(where: Place) -> None:
    """Raises Refused unless the project says that all of Pombo in it may be destroyed."""
    labels = json.loads(gcloud("projects", "describe", where.project, "--format=json")).get("labels") or {}
    if labels.get(LABEL) != ALLOWED:
        raise Refused(
            f"{where.project} does not say that it may be destroyed. If nothing of Pombo's in it is to stay: "
            f"gcloud alpha projects update {where.project} --update-labels={LABEL}={ALLOWED}"
        )


def copied(where: Place, folder: Path) -> Place:
    """The copy that is deployed, with the variables of this night. Queues cannot have yesterday's names for 7 days."""
    unguarded.copy(where.root, folder)
    here = Place(where.project, where.region, where.environment, folder)
    variables.write(here, one_message.PHONE_NUMBER_ID, "handlers.echo:handle", None)
    with here.variables.open("a", encoding="utf-8") as file:
        file.write(f'queue_suffix = "-{datetime.now(UTC):%y%m%d%H%M%S}"\n')
    return here


def run(where: Place, asked: argparse.Namespace) -> None:
    """Raises Refused with the first thing that was not as it must be; the project is empty again by then."""
    place.check_words(where)
    place.check_tools()
    place.check_project(where)
    check_label(where)
    with tempfile.TemporaryDirectory() as name:
        check = ProjectCheck(copied(where, Path(name, "pombo")), asked.pause, asked.longest)
        check.step("Destroy what an earlier run has left", check.destroy)
        if asked.only_destroy:
            return
        # The destroy has taken the bucket's resource out of the copy.
        check = ProjectCheck(copied(where, Path(name, "fresh")), asked.pause, asked.longest)
        try:
            check.through()
        finally:
            if not asked.keep and not isinstance(sys.exc_info()[1], KeyboardInterrupt):
                check.step("Destroy", check.destroy)
        print(json.dumps({"checked": where.project, "seconds": check.took}), flush=True)


def main(given: Sequence[str] | None = None) -> None:
    """Exit 0 if all of it was as it must be."""
    parser = parser_of("check_project", __doc__)
    parser.add_argument("--keep", action="store_true", help="leave it there, to look at it; the next run destroys it")
    parser.add_argument("--only-destroy", action="store_true", help="destroy what an earlier run has left")
    parser.add_argument("--pause", type=float, default=PAUSE_SECONDS, help=argparse.SUPPRESS)
    parser.add_argument("--longest", type=float, default=one_message.LONGEST_SECONDS, help=argparse.SUPPRESS)
    asked = parser.parse_args(given)
    where = Place(asked.project, asked.region, "staging", REPOSITORY)
    ended(lambda: run(where, asked))


if __name__ == "__main__":
    main()
