"""A Dockerfile, parsed and executed without Docker: the same commands, in the same order, below a directory.

It supports what our Dockerfiles use and refuses the rest. The base image is this machine: its Python and its pip.
https://docs.docker.com/reference/dockerfile/ (2026-11)
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import translate
from pathlib import Path, PurePosixPath

WORD = re.compile(r"\$\{(\w+)\}|\$(\w+)")


class Unknown(Exception):
    """An instruction, or a form of one, that this reader does not know."""


@dataclass(frozen=True)
class Instruction:
    """One instruction, its continuation lines joined."""

    name: str
    value: str
    line: int

    @property
    def words(self) -> list[str]:
        """The value in words, or the items of its JSON form."""
        return json.loads(self.value) if self.value.startswith("[") else shlex.split(self.value)


def parse(text: str) -> list[Instruction]:
    """The instructions of a Dockerfile. Raises Unknown if the last one is cut off."""
    found, open_line = [], ""
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("#") or (not line.strip() and not open_line):
            continue
        open_line += line
        if open_line.endswith("\\"):
            open_line = open_line[:-1]
            continue
        name, _, value = open_line.strip().partition(" ")
        found.append(Instruction(name.upper(), value.strip(), number))
        open_line = ""
    if open_line:
        raise Unknown("the last line goes on")
    return found


def ignore_rules(text: str) -> list[tuple[bool, re.Pattern[str]]]:
    """The rules of a .dockerignore: whether a rule excludes, and which paths."""
    rules = []
    for line in text.splitlines():
        pattern = line.strip()
        if pattern and not pattern.startswith("#"):
            rules.append((not pattern.startswith("!"), _as_regex(pattern.lstrip("!").strip("/"))))
    return rules


def _as_regex(pattern: str) -> re.Pattern[str]:
    """`*` and `?` stop at a slash, `**` does not. https://docs.docker.com/build/concepts/context/#syntax"""
    parts = []
    for part in pattern.split("/"):
        if part == "**":
            parts.append("(?:[^/]+/)*")
        else:
            parts.append(translate(part)[4:-3].replace(".*", "[^/]*") + "/")
    return re.compile("".join(parts).removesuffix("/"))


def context(root: Path, among: Sequence[Path]) -> dict[str, Path]:
    """The files of `among` that a build sees, by their paths below the root: the last rule that matches decides."""
    rules = ignore_rules((root / ".dockerignore").read_text())
    seen = {}
    for path in among:
        name = path.relative_to(root).as_posix()
        below = [name, *(str(parent) for parent in PurePosixPath(name).parents if str(parent) != ".")]
        out = False
        for takes_out, pattern in rules:
            if any(pattern.fullmatch(each) for each in below):
                out = takes_out
        if not out:
            seen[name] = path
    return seen


@dataclass
class Image:
    """A built image: a directory that stands for /, and how a container starts in it."""

    root: Path
    workdir: str = "/"
    env: dict[str, str] = field(default_factory=dict)
    user: str = "root"
    cmd: list[str] = field(default_factory=list)

    @property
    def directory(self) -> Path:
        return self.root / self.workdir.lstrip("/")

    def environment(self, **more: str) -> dict[str, str]:
        """The environment of its processes: ENV with paths below the root, and the container's own variables."""
        return {name: self.place(value) for name, value in self.env.items()} | more

    def place(self, value: str) -> str:
        """A value that is a path below the WORKDIR, as its real path here."""
        workdir = self.workdir
        return str(self.root) + value if value == workdir or value.startswith(f"{workdir}/") else value


def build(
    text: str,
    files: Mapping[str, Path],
    root: Path,
    base: Mapping[str, str],
    args: Mapping[str, str],
    library: "Library | None" = None,
) -> Image:
    """Execute every stage. `base`: the environment of the base image, on whose PATH `python` and `pip` are found;
    `args`: the --build-arg. Every stage works in the same place, as in Docker; its result is put aside. Builds with the
    same `library` compile that of the base image once.
    """
    image, stages, known = Image(root), {}, {}
    stage = ""
    for instruction in parse(text):
        name, words = instruction.name, instruction.words if instruction.name != "RUN" else []
        if name == "ARG" and not stage:
            (argument,) = words
            if argument not in args:
                raise Unknown(f"ARG {argument} has no value")
            known[argument] = args[argument]
        elif name == "FROM":
            if stage:
                stages[stage] = root.with_name(f"{root.name}-{stage}")
                root.rename(stages[stage])
            stage = words[2] if words[1:2] == ["AS"] else "final"
            if WORD.sub(lambda found: known[found[1] or found[2]], words[0]) not in args.values():
                raise Unknown(f"FROM {words[0]}")
            root.mkdir()
            image = Image(root)
        elif name == "WORKDIR":
            image.workdir = words[0]
            image.directory.mkdir(parents=True)
        elif name == "ENV":
            image.env |= dict(word.split("=", 1) for word in words)
        elif name == "COPY":
            _copy(words, files, stages, image)
        elif name == "RUN":
            _run(instruction.value, image, base, library)
        elif name == "USER":
            image.user = words[0]
        elif name == "CMD" and instruction.value.startswith("["):
            image.cmd = words
        else:
            raise Unknown(f"line {instruction.line}: {name} {instruction.value}")
    return image


class Library:
    """The bytecode of the base image's own library. Every build writes the same, in six seconds of processor time."""

    COMPILED = re.compile(r"python -m compileall [^&]*\bsysconfig\b[^&]*")

    def __init__(self, place: Path) -> None:
        self._place = place
        self._alone = threading.Lock()

    def write(self, command: str, image: Image, environment: Mapping[str, str]) -> None:
        """Run the command, unless another build has; put what it writes into the image."""
        with self._alone:
            if not self._place.exists():
                _shell(command, image, {**environment, "PYTHONPYCACHEPREFIX": str(self._place)})
        goal = environment["PYTHONPYCACHEPREFIX"]
        shutil.copytree(self._place, goal, dirs_exist_ok=True, copy_function=os.link)


def _run(command: str, image: Image, base: Mapping[str, str], library: Library | None) -> None:
    environment = {**base, **image.environment()}
    first, _, rest = command.partition("&&")
    if library and Library.COMPILED.fullmatch(first):
        library.write(first, image, environment)
        command = rest
    _shell(command, image, environment)


def _shell(command: str, image: Image, environment: Mapping[str, str]) -> None:
    subprocess.run(["/bin/sh", "-c", command], cwd=image.directory, env=environment, check=True)


def _copy(words: list[str], files: Mapping[str, Path], stages: Mapping[str, Path], image: Image) -> None:
    if words[0].startswith("--from="):
        source, target = words[1:]
        root = stages[words[0].removeprefix("--from=")]
        goal = Path(image.place(target))
        shutil.copytree(root / source.lstrip("/"), goal, symlinks=True, dirs_exist_ok=True, copy_function=os.link)
        return
    *sources, target = words
    for source in sources:
        copied = list(_copied(source, target, files))
        if not copied:
            raise Unknown(f"COPY {source}: there is no such file in the context")
        for path, place in copied:
            goal = image.directory / place
            goal.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, goal)


def _copied(source: str, target: str, files: Mapping[str, Path]) -> Iterator[tuple[Path, str]]:
    """Each file and its target: for a directory its content; into a target that ends with a slash by its name."""
    pattern = _as_regex(source)
    for name, path in files.items():
        if pattern.fullmatch(name):
            yield path, target + PurePosixPath(name).name if target.endswith("/") else target
        elif name.startswith(f"{source}/"):
            yield path, f"{target.rstrip('/')}/{name.removeprefix(source + '/')}"


def start(image: Image, log: Path, **settings: str) -> subprocess.Popen[bytes]:
    """Start the CMD, as USER if this process may switch to another user, with its output in files next to `log`."""
    identity: dict[str, object] = {}
    if os.geteuid() == 0 and image.user != "root":
        user, _, group = image.user.partition(":")
        identity = {"user": int(user), "group": int(group), "extra_groups": []}
    with log.open("ab") as out, log.with_suffix(".err").open("ab") as err:
        return subprocess.Popen(
            image.cmd, cwd=image.directory, env=image.environment(**settings), stdout=out, stderr=err, **identity
        )
