"""The terminal: what a program shows to a person, whatever the encoding and the colours of the place it is shown in;
and what a person has typed there.
"""

import codecs
import io
import json
import os
import sys
from typing import Any

import click

ASCII = "pombo_ascii"
"""ASCII under a name of ours: click writes UTF-8 to a stream that says it is ASCII."""


def begin(program: str) -> list[str]:
    """Make the terminal ready, and give the arguments of the program as text. Call it before anything is printed.

    Ends the program with a sentence and exit code 2 if an argument is not text.
    """
    prepare()
    try:
        return [word if _is_text(word) else _decoded(word) for word in sys.argv[1:]]
    except UnicodeError:
        sys.stderr.write(f"{program}: An argument is not text in UTF-8.\n")
        sys.exit(2)


def prepare() -> None:
    """Let standard output and standard error take any text: a character that their encoding lacks is replaced."""
    codecs.register(_find_ascii)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            is_ascii = codecs.lookup(stream.encoding).name == "ascii"
            stream.reconfigure(encoding=ASCII if is_ascii else None, errors="replace")


def as_json(value: Any) -> str:
    """The value as JSON on one line, for standard output: escaped ASCII unless UTF-8 is shown there."""
    text = json.dumps(value, ensure_ascii=False)
    return text if _is_utf8(sys.stdout) and _is_text(text) else json.dumps(value)


def styled(text: str, **look: Any) -> str:
    """The text in colours, where they are wanted: NO_COLOR (https://no-color.org) or a dumb terminal refuses them.

    click removes them where the output is no terminal.
    """
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return click.style(text, **look)


def native(text: str) -> str:
    """An argument in the form in which the system takes paths and environment variables. It differs from the text only
    in a locale that cannot express it.
    """
    return os.fsdecode(text.encode())


class FilePath(click.Path):
    """A path among the arguments."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(native(value) if isinstance(value, str) else value, param, ctx)


def _decoded(word: str) -> str:
    """An argument that the locale's encoding cannot express, read as UTF-8. Raises UnicodeError."""
    return os.fsencode(word).decode()


def _is_text(text: str) -> bool:
    """Whether no surrogate is in it: half a character, or a byte that Python could not read."""
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
