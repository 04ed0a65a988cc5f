"""Roots: a Terraform root is made ready and applied, without questions at the terminal.

A plan that would destroy or replace a service, or a resource that holds data, is refused. What Google
refuses for a moment only, an API that does not answer everywhere yet or a change beside another, is tried again.
"""

import json
import re
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from infra.release.tools import Failed, Refused, follow, terraform

PASSING = re.compile(
    r"SERVICE_DISABLED|accessNotConfigured|has not been used in project|still does not answer|contention|"
    r"underlying data changed|operation in progress|Service account \S+ does not exist",
    re.I,
)
"""What Google says of something that is true minutes later."""

TIMES = 4
PAUSE_SECONDS = 60.0

KEPT = (
    "google_artifact_registry_repository",
    "google_cloud_run_v2_service",
    "google_cloud_tasks_queue",
    "google_firestore_database",
    "google_redis_instance",
    "google_secret_manager_secret",
    "google_storage_bucket",
)
"""What no apply from here may destroy. (An alert, a binding or an index may go: a change of a variable means it.)"""

_SHOWN = re.compile(r" complete after |: Still \w+\.\.\. \[(?:\S+, )?\d+m00?s |^(?:Apply|Destroy) complete")


@dataclass(frozen=True, slots=True)
class Root:
    """One Terraform root, with the variables that it is given beside its terraform.tfvars."""

    folder: Path
    bucket: str
    given: Mapping[str, str]

    @property
    def options(self) -> list[str]:
        return [f"-var={name}={value}" for name, value in self.given.items()]

    def init(self) -> None:
        terraform(self.folder, "init", "-input=false", "-no-color", f"-backend-config=bucket={self.bucket}")

    def apply(self, pause: float = PAUSE_SECONDS) -> bool:
        """Whether anything was to be changed. Raises Refused."""
        for attempt in range(1, TIMES + 1):
            try:
                return self._applied(attempt > 1)
            except Failed as failed:
                if attempt == TIMES or not PASSING.search(failed.said):
                    raise
                print(f"    Google does not take all of it yet ({failed}). Again in {pause:.0f} s.", flush=True)
                time.sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    def _applied(self, before: bool) -> bool:
        with tempfile.TemporaryDirectory() as folder:
            plan = Path(folder, "plan")
            counts = self._planned(plan)
            if sum(counts.values()) == 0:
                return before
            print(
                f"    {counts['create']} to make, {counts['update']} to change, {counts['delete']} to remove.",
                flush=True,
            )
            follow(
                *("terraform", "apply", "-input=false", "-no-color", "-lock-timeout=120s", str(plan)),
                folder=self.folder,
                shown=lambda line: bool(_SHOWN.search(line)),
            )
        return True

    def _planned(self, plan: Path) -> dict[str, int]:
        """How much an apply would make and change. Raises Refused where it would destroy."""
        terraform(
            self.folder,
            *("plan", "-input=false", "-no-color", "-lock-timeout=120s", f"-out={plan}", *self.options),
        )
        changes = json.loads(terraform(self.folder, "show", "-json", str(plan))).get("resource_changes", [])
        actions = {it["address"]: it["change"]["actions"] for it in changes if it["mode"] == "managed"}
        if gone := [it["address"] for it in changes if it["type"] in KEPT and "delete" in it["change"]["actions"]]:
            raise Refused(
                f"An apply would destroy {', '.join(gone[:5])}. Look at it with terraform plan in {self.folder}, and "
                "apply it yourself if it is what you want."
            )
        return {what: sum(what in done for done in actions.values()) for what in ("create", "update", "delete")}

    def check_unchanged(self) -> None:
        """Raises Refused where an apply would change anything of what is there."""
        try:
            terraform(self.folder, "plan", "-input=false", "-no-color", "-detailed-exitcode", *self.options)
        except Failed as failed:
            changes = re.findall(r"^  # (\S+) (.+)$", failed.said, re.M)
            if not changes and "Changes to Outputs" not in failed.said:
                raise
            first = ", ".join(f"{address} {what}" for address, what in changes[:5]) or "its outputs would change"
            raise Refused(f"The plan of {self.folder.name} is not empty: {first}.") from None

    def destroy(self, left: Sequence[str] = (), pause: float = PAUSE_SECONDS) -> None:
        """All of it but for the resources whose addresses begin so, which are forgotten. Raises Failed."""
        try:
            there = terraform(self.folder, "state", "list").split()
        except Failed as failed:
            if "No state file was found" not in failed.said:
                raise
            return
        if forgotten := [address for address in there if address.startswith(tuple(left))]:
            terraform(self.folder, "state", "rm", *forgotten)
        for attempt in range(1, TIMES + 1):
            try:
                follow(
                    *("terraform", "destroy", "-auto-approve", "-input=false", "-no-color", "-lock-timeout=120s"),
                    *self.options,
                    folder=self.folder,
                    shown=lambda line: bool(_SHOWN.search(line)),
                )
                return
            except Failed as failed:
                if attempt == TIMES:
                    raise
                print(f"    Google does not remove all of it yet ({failed}). Again in {pause:.0f} s.", flush=True)
                time.sleep(pause)

    def output(self, name: str) -> str:
        return terraform(self.folder, "output", "-raw", name)
