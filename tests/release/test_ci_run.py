""".ci/run ends by itself, however long its tests would take."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.tree import ROOT

STANDS_IN = ("redis-server", "java", "promtool", "terraform", "gcloud")
SLEEPS = """test:
\t@echo begun
\t@sleep 300 & echo $$! > child; wait
"""


def ci_run(clone: Path, makefile: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Of a clone with this Makefile, on a machine that lacks nothing."""
    (clone / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", clone / ".ci" / "run")
    (clone / "Makefile").write_text(makefile)
    (clone / "bin").mkdir()
    for name in STANDS_IN:
        (clone / "bin" / name).write_text("#!/bin/sh\n")
        (clone / "bin" / name).chmod(0o755)
    outer = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    environ = {**outer, "PATH": f"{clone / 'bin'}:{os.environ['PATH']}", **settings}
    return subprocess.run([clone / ".ci" / "run"], env=environ, capture_output=True, text=True, timeout=60)


def test_a_run_that_takes_too_long_is_ended_with_all_it_started(tmp_path: Path) -> None:
    began = time.monotonic()
    ended = ci_run(tmp_path, SLEEPS, CI_LIMIT="2s")
    assert time.monotonic() - began < 30
    assert (ended.returncode, ended.stdout.splitlines()[0]) == (124, "begun")
    assert ended.stderr.endswith(
        "pombo: make test was stopped after 2s (CI_LIMIT): the last lines above show where it was\n"
    )
    child = (tmp_path / "child").read_text().strip()
    state = subprocess.run(["ps", "-o", "stat=", "-p", child], capture_output=True, text=True).stdout.strip()
    assert state == "" or state.startswith("Z"), "it is gone, or its parent has yet to notice"


@pytest.mark.parametrize(("recipe", "code"), [("@true", 0), ("@exit 1", 2)])
def test_a_run_in_time_ends_as_its_tests_do(tmp_path: Path, recipe: str, code: int) -> None:
    ended = ci_run(tmp_path, f"test:\n\t{recipe}\n")
    assert ended.returncode == code
    assert "was ended" not in ended.stderr


def test_an_hour_is_the_bound_where_none_is_given(tmp_path: Path) -> None:
    (tmp_path / "asked").mkdir()
    timeout = tmp_path / "asked" / "timeout"
    timeout.write_text('#!/bin/sh\necho "$@"\n')
    timeout.chmod(0o755)
    path = f"{timeout.parent}:{os.environ['PATH']}"
    ended = ci_run(tmp_path, "test:\n", PATH=f"{tmp_path / 'bin'}:{path}")
    assert ended.stdout.startswith("--signal=INT --kill-after=60s 60m ")


def test_builder_image_installs_nothing_and_reports_what_it_lacks(tmp_path: Path) -> None:
    """A PATH on which all is there but promtool."""
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("bash", "env", "dirname", "make", "git", "apt-get", "mktemp"):
        (bare / name).symlink_to(shutil.which(name) or "/bin/false")
    for name in ("python3", *STANDS_IN):
        if name != "promtool":
            (bare / name).symlink_to("/bin/true")
    (bare / "apt-get").unlink()
    (bare / "apt-get").write_text(f"#!/bin/sh\ntouch {tmp_path}/installed\n")
    (bare / "apt-get").chmod(0o755)
    ended = subprocess.run(
        [bare / "bash", ROOT / ".ci" / "run"],
        cwd=tmp_path,
        env={"PATH": str(bare), "CI_INSTALLS": "never"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 1
    assert ended.stderr.startswith("pombo: this image lacks prometheus and must not install anything (CI_INSTALLS)")
    assert not (tmp_path / "installed").exists()
