"""Unguarded: a copy of the repository whose Terraform can be destroyed, for what is not to stay."""

import re
import shutil
from pathlib import Path

from infra.release.tools import Refused

PARTS = ("infra", "services", "shared", "handlers", "pombo")
LEFT_OUT = ("__pycache__", ".terraform", ".terraform.lock.hcl", "*.tfstate*", "*_override.tf", "terraform.tfvars")

GUARDS = {
    r"prevent_destroy(\s*)= true": r"prevent_destroy\1= false",
    r"deletion_protection(\s*)= true": r"deletion_protection\1= false",
    r'deletion_policy(\s*)= "PREVENT"': r'deletion_policy\1= "DELETE"',
    r"DELETE_PROTECTION_ENABLED": "DELETE_PROTECTION_DISABLED",
    r"force_destroy(\s*)= false": r"force_destroy\1= true",
}
"""What stands in the way of terraform destroy (infra/terraform/README.md, What is guarded), and the same without."""

STATE_BUCKET = r'^(?:import|resource "google_storage_bucket" "state"|output "state_bucket") \{\n.*?^\}\n'


def copy(root: Path, folder: Path) -> None:
    """Raises Refused where a guard is written otherwise than here: then a destroy would stop half way."""
    for part in PARTS:
        shutil.copytree(root / part, folder / part, ignore=shutil.ignore_patterns(*LEFT_OUT))
    found = dict.fromkeys(GUARDS, 0)
    for path in sorted((folder / "infra" / "terraform").rglob("*.tf")):
        text = path.read_text(encoding="utf-8")
        for guard, without in GUARDS.items():
            text, times = re.subn(guard, without, text)
            found[guard] += times
        path.write_text(text, encoding="utf-8")
    if none := [guard for guard, times in found.items() if times == 0]:
        raise Refused(f"infra/terraform no longer has {none[0]}, which infra/release/unguarded.py removes.")


def without_the_state_bucket(bootstrap: Path) -> None:
    """The state lies in it until the destroy has ended, so that it stays, and is taken over again the next time."""
    for path in sorted(bootstrap.glob("*.tf")):
        text = path.read_text(encoding="utf-8")
        path.write_text(re.sub(STATE_BUCKET, "", text, flags=re.M | re.S), encoding="utf-8")
