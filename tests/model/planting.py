"""Planting: the project's own source with a mistake in it, as it is imported."""

import importlib.abc
import importlib.machinery
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType

ROOT = Path(__file__).parents[2]
_PROJECT = ("shared.", "services.", "tests.model.")
_IMPORT = re.compile(r"^[ \t]*(?:from ([\w.]+) import (\([^)]*\)|.*)|import ([\w.]+))", re.M)


class Rotten(Exception):
    """The code is no longer what a patch was written for."""


@dataclass(frozen=True, slots=True)
class Patch:
    """Replaces `old`, which must stand in the file exactly once. `file` is a path from the root."""

    file: str
    old: str
    new: str

    @property
    def module(self) -> str:
        return self.file.removesuffix(".py").replace("/", ".")

    def apply(self, source: str) -> str:
        """Raises Rotten."""
        if source.count(self.old) != 1:
            raise Rotten(f"{self.file} has this {source.count(self.old)} times instead of once:\n{self.old}")
        return source.replace(self.old, self.new)


def plant(patches: Sequence[Patch]) -> None:
    """From here on these modules are imported with the patches in them. None may have been imported yet."""
    modules = {patch.module: [other for other in patches if other.module == patch.module] for patch in patches}
    too_late = modules.keys() & sys.modules.keys()
    if too_late:
        raise ImportError(f"{', '.join(too_late)} has been imported already.")
    sys.meta_path.insert(0, _Finder(modules))


def forget(names: Collection[str]) -> None:
    """Forget these modules, if they were imported, and all of the project that import them: the next import is anew."""
    imports = {name: set(_imports(module)) for name, module in sys.modules.items() if name.startswith(_PROJECT)}
    gone = set(names) & imports.keys()
    while more := {name for name, its in imports.items() if name not in gone and its & gone}:
        gone |= more
    for name in gone:
        del sys.modules[name]
        package, _, last = name.rpartition(".")
        vars(sys.modules.get(package, ModuleType(package))).pop(last, None)


def _imports(module: ModuleType) -> Iterator[str]:
    """The modules that its source imports, and other names."""
    source = Path(module.__file__).read_text() if module.__file__ else ""
    for package, names, whole in _IMPORT.findall(source):
        yield whole or package
        yield from (f"{package}.{name}" for name in re.findall(r"\w+", names))


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, modules: Mapping[str, Sequence[Patch]]) -> None:
        self._modules = modules

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,  # noqa: ARG002 - the protocol of finders
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in self._modules:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(name, spec.origin, self._modules[name])
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, patches: Sequence[Patch]) -> None:
        super().__init__(name, path)
        self._patches = patches

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002 - the protocol of loaders
        """Always from the source: there may be bytecode of the code without the mistake."""
        source = Path(self.path).read_text()
        for patch in self._patches:
            source = patch.apply(source)
        return compile(source, self.path, "exec", dont_inherit=True)
