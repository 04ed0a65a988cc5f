"""The origin of a failure: the line of the team's code that raised an exception, or that is still running.

It holds only code, by type, file, line and function: an exception's text and the values of variables may be private.
"""

import sysconfig
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from shared import logs
from shared.domain.verdicts import Origin

TYPE_CHARACTERS, PLACE_CHARACTERS, FUNCTION_CHARACTERS = 40, 60, 40
"""Characters kept of each: few enough that a record's attempts have room for more than their origins."""

_ROOT = Path(__file__).parents[2]
_OURS = tuple(f"{_ROOT / folder}/" for folder in ("shared", "services"))
_LIBRARIES = tuple(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_INSTALLED = frozenset({"site-packages", "dist-packages"})


def of_exception(error: BaseException, package: str, handler: Any = None) -> Origin:
    """Where an exception comes from: the innermost line of the team's code. `package` is their handler's top-level
    package, which is theirs wherever it is installed. If the exception passed no line of theirs, the answer of
    `handler` is invalid, and the place is its definition.
    """
    passed = traceback.walk_tb(error.__traceback__)
    place, function = _innermost(passed, package) or _definition(handler) or (None, None)
    return Origin(_type_of(error), place, function, logs.places_of(error))


def of_running(frame: FrameType | None, package: str) -> Origin:
    """The line of the team's code that a thread is running, by its innermost frame."""
    outwards = [*traceback.walk_stack(frame)] if frame else []
    place, function = _innermost(reversed(outwards), package) or (None, None)
    return Origin(None, place, function)


def of_syntax(error: SyntaxError) -> str | None:
    """The line that Python cannot parse."""
    return _file_line(error.filename, error.lineno or 1, "") if error.filename else None


def _type_of(error: BaseException) -> str:
    name = type(error).__name__
    return name[:TYPE_CHARACTERS] if name.isidentifier() else "Exception"


def _innermost(frames: Iterable[tuple[FrameType, int]], package: str) -> tuple[str, str] | None:
    """The last of the team's frames, found by each frame's module, not by its file."""
    for frame, line in reversed([*frames]):
        module = str(frame.f_globals.get("__name__") or "")
        if _is_the_teams(frame.f_code, module, package):
            return _file_line(frame.f_code.co_filename, line, module), _bounded(
                frame.f_code.co_qualname, FUNCTION_CHARACTERS
            )
    return None


def _is_the_teams(code: CodeType, module: str, package: str) -> bool:
    if package and module.partition(".")[0] == package:
        return True
    file = code.co_filename
    is_file = not file.startswith("<")  # <string>, <frozen importlib._bootstrap>
    return is_file and not file.startswith((*_OURS, *_LIBRARIES)) and not _INSTALLED & {*Path(file).parts}


def _definition(handler: Any) -> tuple[str, str] | None:
    """Where the handler is defined: a function, a method, a partial of one, or a callable object."""
    for one in (handler, getattr(handler, "func", None), type(handler).__call__):
        code = getattr(one, "__code__", None)
        if isinstance(code, CodeType):
            module = str(getattr(one, "__module__", ""))
            return _file_line(code.co_filename, code.co_firstlineno, module), _bounded(
                code.co_qualname, FUNCTION_CHARACTERS
            )
    return None


def _file_line(file: str, line: int, module: str) -> str:
    """file:line, relative to the working directory. For a file elsewhere module:line, which names no directory."""
    try:
        where = str(Path(file).relative_to(Path.cwd()))
    except (ValueError, OSError):  # elsewhere; or the directory is gone
        where = module or Path(file).name
    return _bounded(f"{where}:{line}", PLACE_CHARACTERS)


def _bounded(text: str, most: int) -> str:
    """The end of the text, which says more than its beginning, in a form that every store can hold."""
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= most else "…" + text[1 - most :]
