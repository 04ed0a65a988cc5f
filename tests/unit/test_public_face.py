"""The public face: `pombo` is what a handler imports, with the very names of `shared.handlers`."""

import subprocess
import sys
from pathlib import Path

import pombo
from shared import handlers

ROOT = Path(__file__).parents[2]


def test_pombo_has_every_name_of_shared_handlers() -> None:
    assert pombo.__all__ == handlers.__all__
    assert {name: getattr(pombo, name) for name in pombo.__all__} == {
        name: getattr(handlers, name) for name in handlers.__all__
    }


def test_pombo_is_marked_as_typed() -> None:
    assert (ROOT / "pombo" / "py.typed").is_file()


def test_pombo_needs_no_library() -> None:
    """A handler is tested where nothing of Pombo is installed but its code."""
    done = subprocess.run(
        [
            sys.executable,
            "-IS",
            "-c",
            f"import sys; sys.path.append({str(ROOT)!r})\nimport pombo; pombo.message('hi')",
        ],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.returncode, done.stderr) == (0, "")
