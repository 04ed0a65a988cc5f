"""Plant small mistakes, one at a time, and see whether a test notices.

python -m tests.mutation                        all of the domain, and 300 mutants of the rest by a fixed seed
python -m tests.mutation --domain               the domain alone
python -m tests.mutation --sample 50 --seed 2   other mutants of the rest
python -m tests.mutation --only 'shared/domain/waits.py'
python -m tests.mutation --target programs      of the sample, the mutants of one part
python -m tests.mutation --report               what is known so far

It works on a copy of the tree, in .cache/mutation, where each result is written as it comes: a run that was stopped
goes on where it stopped. Exit 1 where a mutant survived that equivalents.toml does not name.
"""

import argparse
import ast
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from tests.mutation import session
from tests.mutation.mutants import Mutant, mutants_of
from tests.mutation.targets import PRELOADED, TARGETS, Target

SAMPLE, SEED = 300, 1
BUDGET = 10.0
"""Seconds that the tests for one mutant take where nothing is wrong, quickest first; no more of them are run."""
PATIENCE, TIMES = 20.0, 8
"""A mutant hangs after PATIENCE and TIMES as long as its tests take by themselves."""
NO_TEST = "no test"
NOTICED = (session.KILLED, session.TIMEOUT)
EQUIVALENTS = Path(__file__).with_name("equivalents.toml")


@dataclass(frozen=True, slots=True)
class Case:
    """One mutant of one module."""

    target: Target
    path: Path
    name: str
    text: bytes
    mutant: Mutant

    @property
    def key(self) -> str:
        """The same as long as its module and its tests' names stay."""
        what = (self.name, self.mutant.start, self.mutant.end, self.mutant.replacement.decode())
        return hashlib.sha256(self.text + repr(what).encode()).hexdigest()[:24]

    def described(self) -> dict[str, Any]:
        """What a person needs to find it."""
        line = self.text.count(b"\n", 0, self.mutant.start) + 1
        return {
            "file": self.name,
            "line": line,
            "operator": self.mutant.operator,
            "was": _around(self.text, self.mutant.start, self.mutant.end),
            "now": _around(
                self.mutant.applied(self.text), self.mutant.start, self.mutant.start + len(self.mutant.replacement)
            ),
        }


def _around(text: bytes, start: int, end: int) -> str:
    """The lines that a stretch lies in, in one."""
    first = text.rfind(b"\n", 0, start) + 1
    last = text.find(b"\n", end)
    return " ".join(text[first : last if last >= 0 else None].decode().split())


@dataclass
class Results:
    """A file of one line a mutant; the newest line counts."""

    file: Path
    tests: str
    """The tests' fingerprint: what they did not notice is looked at again once they changed."""
    known: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.read()

    def read(self) -> None:
        if self.file.exists():
            found = [json.loads(line) for line in self.file.read_text().splitlines() if line.endswith("}")]
            self.known = {result["key"]: result for result in found}

    def is_decided(self, case: Case) -> bool:
        result = self.known.get(case.key)
        return result is not None and (result["outcome"] in NOTICED or result["tests"] == self.tests)

    def write(self, case: Case, outcome: str, by: str = "") -> None:
        result = {"key": case.key, "tests": self.tests, "outcome": outcome, "by": by, **case.described()}
        self.known[case.key] = result
        with self.file.open("a") as file:
            file.write(json.dumps(result) + "\n")


class Progress:
    """One line a mutant that survives, and one every 25."""

    def __init__(self, total: int) -> None:
        self.total, self.done, self.began = total, 0, time.monotonic()
        self.screen = os.fdopen(os.dup(2), "w", buffering=1)

    def tell(self, case: Case, outcome: str) -> None:
        self.done += 1
        if outcome not in NOTICED:
            what = case.described()
            print(f"{outcome}: {what['file']}:{what['line']}  {what['was']}  ->  {what['now']}", file=self.screen)
        if self.done % 25 == 0:
            print(f"  {self.done} of {self.total}, {time.monotonic() - self.began:.0f} s", file=self.screen)


class Run:
    """All mutants of one target."""

    def __init__(self, tree: Path, target: Target, results: Results, scratch: Path, patience: float) -> None:
        self.tree, self.target, self.results, self.scratch, self.patience = tree, target, results, scratch, patience

    def of(self, cases: Sequence[Case]) -> None:
        cases = [case for case in cases if not self.results.is_decided(case)]
        if not cases:
            return
        self.covered = self._covered()
        self.progress = Progress(len(cases))
        inside = [case for case in cases if case.mutant.function and self._chosen(case)]
        session.in_fork(lambda: self._swapped(inside), 1e6, says=self.progress.screen.fileno())
        self.results.read()
        for case in cases:
            if not self.results.is_decided(case):
                self._patched(case)

    def _covered(self) -> Mapping[str, Any]:
        file = self.results.file.with_name(f"covering-{self.target.name.replace(' ', '-')}.json")
        known = json.loads(file.read_text()) if file.exists() else {}
        fingerprint = self.results.tests + _fingerprint(self.target.paths(self.tree))
        if known.get("fingerprint") != fingerprint:
            print(f"{self.target.name}: looking which test runs which line", file=sys.stderr)

            def do() -> int:
                found = session.covering(self.target.tests, self.target.paths(self.tree), self.scratch)
                file.write_text(json.dumps({**found, "fingerprint": fingerprint}))
                return 0

            outcome, said = session.in_fork(do, 3600)
            if outcome != session.SURVIVED:
                raise SystemExit(f"pombo: the covering run broke: {outcome} {said}")
            known = json.loads(file.read_text())
        if known["failed"]:
            print(f"these tests fail without any mutant, and are left out: {known['failed']}", file=sys.stderr)
        return known

    # ---- in functions: swapped in place, in a fork of a session that has collected everything

    def _swapped(self, cases: Sequence[Case]) -> int:
        if cases:
            session.pytest_session(self.target.tests, self.scratch, lambda collected: self._each(cases, collected))
        return 0

    def _each(self, cases: Sequence[Case], collected: session.Session) -> None:
        functions = session.Functions()
        unsteady = self._unsteady(cases, collected)
        for case in cases:
            names = [name for name in self._chosen(case) if name not in unsteady]

            def do(case: Case = case, names: Sequence[str] = names) -> int:
                assert case.mutant.function
                if not functions.swap(case.path, case.mutant.applied(case.text), case.mutant.function):
                    return 5
                collected.run(names)
                session.note("".join(collected.failed[:1]))
                return collected.verdict()

            outcome, said = session.in_fork(do, self._patience(names))
            if outcome in (*NOTICED, session.BROKEN):  # or else it is imported: what tests computed early is old
                self.results.write(case, outcome, said)
                self.progress.tell(case, outcome)

    def _unsteady(self, cases: Sequence[Case], collected: session.Session) -> set[str]:
        """The tests that fail in this order without any mutant: they would pass for tests that noticed one."""
        names = self._affordable({name for case in cases for name in self._chosen(case)}, float("inf"))

        def do() -> int:
            collected.run(names, stop_early=False)
            session.note(json.dumps(collected.failed[:20]))
            return 0

        outcome, said = session.in_fork(do, self._patience(names))
        if outcome != session.SURVIVED:
            raise RuntimeError(f"the tests do not pass without a mutant: {outcome} {said}")
        if failed := json.loads(said):
            print(f"left out, for they fail without a mutant: {failed}", file=self.progress.screen)
        return set(failed)

    def _chosen(self, case: Case) -> list[str]:
        """The tests that run a line of the mutant, quickest first."""
        lines: Mapping[str, Sequence[str]] = self.covered["lines"].get(str(case.path), {})
        return self._affordable({name for line in case.mutant.lines for name in lines.get(str(line), ())})

    def _affordable(self, names: Iterable[str], left: float = BUDGET) -> list[str]:
        seconds: Mapping[str, float] = self.covered["seconds"]
        chosen: list[str] = []
        for name in sorted(names, key=lambda name: (seconds.get(name, 0), name)):
            left -= seconds.get(name, 0)
            if chosen and left < 0:
                break
            chosen.append(name)
        return chosen

    def _patience(self, names: Iterable[str]) -> float:
        return self.patience + TIMES * sum(self.covered["seconds"].get(name, 0) for name in names)

    # ---- elsewhere: written into the copy, and imported by a session of its own

    def _patched(self, case: Case) -> None:
        outcome, said = NO_TEST, ""
        kept = case.path.stat()
        case.path.write_bytes(case.mutant.applied(case.text))
        _patched_times.append(max([kept.st_mtime, *_patched_times[-1:]]) + 2)  # or an old .pyc would pass for its own
        os.utime(case.path, (kept.st_atime, _patched_times[-1]))
        try:
            for tests, names in self._stages(case):
                outcome, said = session.in_fork(lambda t=tests, n=names: self._imported(t, n), self._wait(tests, names))
                if outcome in NOTICED:
                    break
        finally:
            case.path.write_bytes(case.text)
            os.utime(case.path, (kept.st_atime, kept.st_mtime))
        self.results.write(case, outcome, said)
        self.progress.tell(case, outcome)

    def _stages(self, case: Case) -> Iterator[tuple[Sequence[str], Sequence[str] | None]]:
        """The tests that import the module by its name, then the others that run anything of it, then its programs'."""
        seconds: Mapping[str, float] = self.covered["seconds"]
        failed = set(self.covered["failed"])
        near = set(_importing(self.tree, case.name, {name.split("::")[0] for name in seconds}))
        lines: Mapping[str, Sequence[str]] = self.covered["lines"].get(str(case.path), {})
        by_name = [name for name in seconds if name.split("::")[0] in near and name not in failed]
        running = {name for names in lines.values() for name in names} - set(by_name)
        stages = [self._affordable(by_name)]
        if case.mutant.function is None:
            stages.append(self._affordable(running))
        for names in stages:
            if names:
                yield sorted({name.split("::")[0] for name in names}), names
        if programs := self.target.programs_of(case.name):
            yield programs, None

    def _wait(self, tests: Sequence[str], names: Sequence[str] | None) -> float:
        return self._patience(names) if names is not None else 300.0 * len(tests)

    def _imported(self, tests: Sequence[str], names: Sequence[str] | None) -> int:
        def work(collected: session.Session) -> None:
            changed = [name for name in collected.items if name not in self.covered["seconds"]]
            if not collected.failed:  # a parameter's mutant changes the name of its test
                collected.run(list(collected.items) if names is None else [*changed, *names])

        ended = session.pytest_session(tests, self.scratch, work)
        session.note("".join(ended.failed[:1]))
        return ended.verdict()


_patched_times: list[float] = []


def _importing(tree: Path, name: str, files: Iterable[str]) -> Iterator[str]:
    """The files of tests that import this module, or something of it."""
    module = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    for file in files:
        imported = set()
        for node in ast.walk(ast.parse((tree / file).read_bytes())):
            if isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        if module in imported:
            yield file


def _fingerprint(paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(str(path).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:24]


def copied(root: Path, tree: Path) -> None:
    """The tree's files, without what git ignores."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        check=True,
    )
    names = {name for name in listed.stdout.decode().split("\0") if name and (root / name).is_file()}
    for there in tree.rglob("*"):
        if there.is_file() and there.relative_to(tree).as_posix() not in names and "__pycache__" not in there.parts:
            there.unlink()
    for name in names:
        source, copy = root / name, tree / name
        if not copy.exists() or copy.read_bytes() != source.read_bytes():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy)


def drawn(tree: Path, targets: Sequence[Target], sample: int, seed: int, only: str) -> list[Case]:
    """All mutants of what is whole, and a sample of all others together, in the order of their files."""
    whole: list[Case] = []
    others: list[Case] = []
    for target in targets:
        for path in target.paths(tree):
            name, text = path.relative_to(tree).as_posix(), path.read_bytes()
            if fnmatch(name, only):
                cases = [Case(target, path, name, text, mutant) for mutant in mutants_of(text)]
                (whole if target.is_whole else others).extend(cases)
    chosen = random.Random(seed).sample(range(len(others)), min(sample, len(others)))
    return whole + [others[at] for at in sorted(chosen)]


def equivalents(file: Path = EQUIVALENTS) -> dict[tuple[str, str, str], str]:
    """The mutants that change nothing that anybody could notice, with the reason."""
    named = tomllib.loads(file.read_text()).get("mutant", [])
    return {(one["file"], one["was"], one["now"]): one["why"] for one in named}


def report(cases: Sequence[Case], results: Results) -> int:
    """Print the survivors and the numbers. 1 where one survived that has no reason to."""
    named = equivalents()
    counts: dict[str, Counter[str]] = {}
    open_ones = []
    for case in cases:
        result = results.known.get(case.key)
        outcome = result["outcome"] if result else "not tried"
        what = case.described()
        if outcome not in NOTICED and (what["file"], what["was"], what["now"]) in named:
            outcome = "equivalent"
        elif outcome not in NOTICED and result:
            open_ones.append(f"{what['file']}:{what['line']} ({outcome})  {what['was']}  ->  {what['now']}")
        counts.setdefault(case.target.name, Counter())[outcome] += 1
        counts.setdefault(f"  {case.name}", Counter())[outcome] += 1
    for sentence in open_ones:
        print(sentence)
    for name, count in counts.items():
        tried = sum(count.values()) - count["not tried"] - count["equivalent"]
        noticed = sum(count[outcome] for outcome in NOTICED)
        share = f"{100 * noticed / tried:.1f} %" if tried else "-"
        print(f"{name}: {noticed} of {tried} noticed ({share}); {dict(count)}")
    return 1 if open_ones else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        "python -m tests.mutation", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--domain", action="store_true", help="the domain alone")
    parser.add_argument("--sample", type=int, default=SAMPLE, help="how many mutants of the rest (%(default)s)")
    parser.add_argument("--seed", type=int, default=SEED, help="which ones (%(default)s)")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="of these files")
    parser.add_argument("--target", choices=[target.name for target in TARGETS], help="this part of the same sample")
    parser.add_argument("--report", action="store_true", help="try nothing; print what is known")
    parser.add_argument("--tree", type=Path, help=argparse.SUPPRESS)  # another project, for the tests of this one
    parser.add_argument("--patience", type=float, default=PATIENCE, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    root = (asked.tree or Path(__file__).parents[2]).resolve()
    targets = [Target("tree", ("*.py",), ("tests",), is_whole=True)] if asked.tree else TARGETS
    if asked.domain:
        targets = [target for target in targets if target.is_whole]
    cache = root / ".cache" / "mutation"
    tree = cache / "tree"
    if asked.report:
        tree = root  # another run may be at work in the copy
    else:
        tree.mkdir(parents=True, exist_ok=True)
        copied(root, tree)
    results = Results(cache / "results.jsonl", _fingerprint(sorted((tree / "tests").rglob("*.py"))))
    cases = drawn(tree, targets, asked.sample, asked.seed, asked.only)
    if asked.target:
        cases = [case for case in cases if case.target.name == asked.target]
    if not asked.report:
        _work_in(tree, () if asked.tree else PRELOADED)
        with tempfile.TemporaryDirectory(prefix="pombo-mutation-") as scratch:
            for target in targets:
                run = Run(tree, target, results, Path(scratch, "tests"), asked.patience)
                run.of([case for case in cases if case.target is target])
    return report(cases, results)


def _work_in(tree: Path, preloaded: Sequence[str]) -> None:
    os.chdir(tree)
    sys.path.insert(0, str(tree))
    os.environ |= {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    session.preload(preloaded)


if __name__ == "__main__":
    sys.exit(main())
