"""gcloud commands in scripts and on pages, and gcloud's own check whether it would accept them.

`gcloud meta lint-gcloud-commands` knows every command and flag without a network. Its help says that it may change.
"""

import json
import re
import shlex
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

_START = re.compile(r"(?:^|[|;&(]|\b(?:do|then|sudo)\b|@)\s*(?=gcloud )")
_VALUE = "value"


def commands_in(shell: str, known: Mapping[str, str] = MappingProxyType({})) -> Iterator[str]:
    """The gcloud commands of a script, each on one line. Each expansion of the shell is replaced by a placeholder, or
    by its value in `known`.
    """
    for line in re.sub(r"\\\n\s*", " ", shell).splitlines():
        if line.lstrip().startswith("#"):
            continue
        for start in _START.finditer(line):
            yield shlex.join(shlex.split(_without_expansions(_until_its_end(line[start.end() :]), known)))


def _until_its_end(text: str) -> str:
    """The text up to where the shell ends the command."""
    depth, quote = 0, ""
    for at, sign in enumerate(text):
        opens = text[at : at + 2] == "$("
        if opens and quote != "'":
            depth += 1
        elif sign == ")" and depth and quote != "'":
            depth -= 1
        elif not depth and sign == quote:
            quote = ""
        elif not depth and not quote and sign in "'\"":
            quote = sign
        elif not depth and not quote and sign in "|;&<>)#":
            return text[:at].rstrip()
    return text


def _without_expansions(text: str, known: Mapping[str, str]) -> str:
    """Replace $NAME, ${NAME}, $(command), and PROJECT (the reader's own) by a word; not within single quotes, which the
    shell does not expand.
    """
    parts = re.split(r"('[^']*')", text)
    for at in range(0, len(parts), 2):
        plain = re.sub(r"\$\([^()]*(?:\([^()]*\)[^()]*)*\)|\bPROJECT\b(?<!\$PROJECT)", _VALUE, parts[at])
        parts[at] = re.sub(r"\$\{?(\w+)\}?", lambda found: known.get(found[1], _VALUE), plain)
    return "".join(parts)


def shell_of_page(markdown: str) -> str:
    """The commands on a page: fenced and indented blocks, and commands named in sentences, one after another."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", markdown, re.M | re.S)
    fenced = [text for language, text in blocks if language in ("", "sh", "bash", "console")]
    rest = re.sub(r"^```.*?^```", "", markdown, flags=re.M | re.S)
    indented = re.findall(r"(?:^ {4,}.*\n)+", rest + "\n", re.M)
    named = re.findall(r"`(gcloud [^`]+)`", rest)
    # A bare command name needs no arguments.
    named = [f"{one} --help" if re.fullmatch(r"[a-z -]+", one) else one for one in named]
    return "\n".join([*fenced, *(re.sub(r"^ {4,}", "", block, flags=re.M) for block in indented), *named])


def complaints(commands: Iterable[str]) -> dict[str, str]:
    """gcloud's complaint about each of these that it would not accept."""
    asked = {str(number): command for number, command in enumerate(dict.fromkeys(commands), 1)}
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "commands.json")
        # It takes what follows a # for a comment, even within quotes.
        path.write_text(json.dumps([{"id": key, "command_string": it.replace("#", "N")} for key, it in asked.items()]))
        done = subprocess.run(
            ["gcloud", "meta", "lint-gcloud-commands", f"--commands-file={path}", "--serialize"],
            capture_output=True,
            text=True,
            timeout=300,
        )
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    assert set(answers) == set(asked), "it has not looked at every command"
    return {
        asked[key]: " ".join((answer["error_message"] or answer["error_type"]).split())
        for key, (answer,) in answers.items()
        if not answer["success"]
    }
