"""The license: the standard text, the copyright line, and the same name in the package's metadata."""

import hashlib
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
APACHE_2 = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
"""SHA-256 of https://www.apache.org/licenses/LICENSE-2.0.txt."""


def test_license_is_the_unchanged_text_of_apache_2() -> None:
    assert hashlib.sha256((ROOT / "LICENSE").read_bytes()).hexdigest() == APACHE_2


def test_package_metadata_names_the_license_and_includes_its_files() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["license"] == "Apache-2.0"
    assert project["license-files"] == ["LICENSE", "NOTICE"]


def test_notice_and_readme_have_the_copyright_line() -> None:
    line = "opyright 2026 The Pombo authors"
    assert line in (ROOT / "NOTICE").read_text()
    assert line in (ROOT / "README.md").read_text()
    assert "(LICENSE)" in (ROOT / "README.md").read_text()
