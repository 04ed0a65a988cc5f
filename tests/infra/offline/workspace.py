"""Workspace: a copy of the Terraform files in which commands run, with the state in a file."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.infra.offline.toolchain import Toolchain

TERRAFORM = Path(__file__).resolve().parents[3] / "infra" / "terraform"
_LEFT_OUT = shutil.ignore_patterns(
    ".terraform", ".terraform.lock.hcl", "*.tfstate*", "*_override.tf", "terraform.tfvars"
)
_LOCAL_STATE = 'terraform {\n  backend "local" {}\n}\n'


class TerraformFailed(Exception):
    """Terraform failed. `args[0]` is its output."""


class Workspace:
    """All roots and modules, copied; commands run in one of the folders."""

    def __init__(self, toolchain: Toolchain, folder: Path, source: Path = TERRAFORM) -> None:
        self._toolchain = toolchain
        self.folder = folder
        # Without the lock file: it holds the real provider's hashes.
        shutil.copytree(source, folder, ignore=_LEFT_OUT, dirs_exist_ok=True)

    def run(self, root: str, *words: str) -> str:
        """Terraform's output. Raises TerraformFailed."""
        done = subprocess.run(
            [self._toolchain.terraform, *words],
            cwd=self.folder / root,
            env=self._toolchain.environment(),
            capture_output=True,
            text=True,
            timeout=120,
        )
        if done.returncode:
            raise TerraformFailed(done.stderr or done.stdout)
        return done.stdout

    def environment(self) -> dict[str, str]:
        """The environment of its commands."""
        return self._toolchain.environment()

    def init(self, root: str) -> None:
        """Initialize a root or module, with its state in a file."""
        if not (self.folder / root / ".terraform").exists():
            if "backend" in "".join(path.read_text() for path in (self.folder / root).glob("*.tf")):
                (self.folder / root / "local_override.tf").write_text(_LOCAL_STATE)
            self.run(root, "init", "-input=false", "-no-color")

    def validate(self, root: str) -> None:
        """Raises TerraformFailed."""
        self.init(root)
        self.run(root, "validate", "-no-color")

    def plan(self, root: str, *options: str) -> dict[str, Any]:
        """What an apply would do, as `terraform show -json` prints it. Raises TerraformFailed."""
        self.init(root)
        self.run(root, "plan", "-input=false", "-no-color", "-lock=false", "-out=plan", *options)
        plan: dict[str, Any] = json.loads(self.run(root, "show", "-json", "plan"))
        return plan

    def apply(self, root: str, *options: str) -> None:
        """Apply to the state in a file, with invented answers. Raises TerraformFailed."""
        self.init(root)
        self.run(root, "apply", "-input=false", "-no-color", "-lock=false", "-auto-approve", *options)
