"""The terminal: text that a program shows there, whatever its encoding and colours, and arguments that a user types."""

import codecs
import io
import json
import os
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import click

ASCII = "pombo_ascii"
"""ASCII under a different name: click writes UTF-8 to a stream that says it is ASCII."""


def begin(program: str) -> list[str]:
    """Prepare the terminal, and return the program's arguments as text. Call it before anything is printed.

    Ends the program with a sentence and exit code 2 if an argument is not text.
    """
    prepare()
    try:
        return [word if _is_text(word) else _decoded(word) for word in sys.argv[1:]]
    except UnicodeError:
        sys.stderr.write(f"{program}: An argument is not valid UTF-8.\n")
        sys.exit(2)


def prepare() -> None:
    """Let standard output and standard error take any text: a character that their encoding lacks is replaced. A
    stream that the caller closed, as with `<&-`, is empty and takes everything.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - open until the process ends
    codecs.register(_find_ascii)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            is_ascii = codecs.lookup(stream.encoding).name == "ascii"
            stream.reconfigure(encoding=ASCII if is_ascii else None, errors="replace")


def as_json(value: Any) -> str:
    """The value as JSON on one line, for standard output: escaped ASCII unless the output can show UTF-8."""
    text = json.dumps(value, ensure_ascii=False)
    return text if _is_utf8(sys.stdout) and _is_text(text) else json.dumps(value)


def styled(text: str, **look: Any) -> str:
    """The text in colours, unless NO_COLOR (https://no-color.org) or a dumb terminal refuses them.

    click removes them if the output is not a terminal.
    """
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return click.style(text, **look)


def plain(text: str) -> str:
    """A text on one line, with its control characters spelled out: a customer's text must not control the terminal or
    forge a line of the output.
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. `least`: how many characters it may be cut to; None: it is never cut."""

    title: str
    least: int | None = None


LEAST_ID = 9
"""For a column of ids: 8 characters identify one, and the ellipsis shows that it was cut."""


def table(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int | None = None) -> Iterator[str]:
    """The rows under their titles. On a terminal long cells are cut so that a line fits; `width` sets another width. In
    a file or a pipe nothing is cut.
    """
    width = _width() if width is None else width
    lines = [[column.title for column in columns], *rows]
    widths = [max(_cells(cell) for cell in column) for column in zip(*lines, strict=True)]
    if width is not None:
        widths = _fitted(columns, widths, width - len(_GAP) * (len(columns) - 1))
    for line in lines:
        yield _GAP.join(_padded(cell, wide) for cell, wide in zip(line, widths, strict=True)).rstrip()


_GAP = "  "


def _width() -> int | None:
    """The terminal's width in characters; None if standard output is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _fitted(columns: Sequence[Column], widths: Sequence[int], room: int) -> list[int]:
    """Shrink the widest columns, down to the least of each. If that is not enough, the terminal wraps the lines."""
    fitted = list(widths)
    while sum(fitted) > room:
        spare = [
            (wide, place)
            for place, (column, wide) in enumerate(zip(columns, fitted, strict=True))
            if column.least is not None and wide > column.least
        ]
        if not spare:
            break
        fitted[max(spare)[1]] -= 1
    return fitted


def _padded(cell: str, wide: int) -> str:
    """The cell, this many characters wide on a terminal; an ellipsis replaces what is cut."""
    if _cells(cell) > wide:
        ellipsis = "…" if _shows("…") else "..."
        while cell and _cells(cell) + len(ellipsis) > wide:
            cell = cell[:-1]
        cell += ellipsis
    return cell + " " * (wide - _cells(cell))


def _cells(text: str) -> int:
    """A text's width on a terminal: an ideograph or an emoji takes two columns, a combining accent none."""
    return sum(
        0
        if unicodedata.combining(c) or unicodedata.category(c) == "Mn"
        else 1 + (unicodedata.east_asian_width(c) in "WF")
        for c in text
    )


def _shows(text: str) -> bool:
    """Whether standard output can encode these characters."""
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "ascii")
    except UnicodeError:
        return False
    return True


def native(text: str) -> str:
    """An argument in the form that the system takes paths and environment variables in. It differs from the text only
    in a locale that cannot express it.
    """
    return os.fsdecode(text.encode())


class FilePath(click.Path):
    """A path as an argument."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(native(value) if isinstance(value, str) else value, param, ctx)


def _decoded(word: str) -> str:
    """An argument that the locale's encoding cannot express, read as UTF-8. Raises UnicodeError."""
    return os.fsencode(word).decode()


def _is_text(text: str) -> bool:
    """Whether it contains no surrogate: half a character, or a byte that Python could not decode."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _is_utf8(stream: Any) -> bool:
    encoding = getattr(stream, "encoding", None)
    return encoding is not None and codecs.lookup(encoding).name == "utf-8"


def _find_ascii(name: str) -> codecs.CodecInfo | None:
    if name != ASCII:
        return None
    found = codecs.lookup("ascii")
    return codecs.CodecInfo(
        name=ASCII,
        encode=found.encode,
        decode=found.decode,
        incrementalencoder=found.incrementalencoder,
        incrementaldecoder=found.incrementaldecoder,
        streamreader=found.streamreader,
        streamwriter=found.streamwriter,
    )


class WrongSettings(click.ClickException):
    """The environment cannot be used. `faults` are sentences, one for each line on standard error."""

    def __init__(self, faults: Iterable[str]) -> None:
        self.faults = tuple(faults)
        super().__init__(" ".join(self.faults))


def step(sentence: str) -> None:
    """Print what is being done."""
    click.echo(styled("• ", fg="cyan") + sentence)


def shout(sentence: str) -> str:
    """The sentence, styled so that it is not overlooked."""
    return styled(sentence, fg="red", bold=True)
