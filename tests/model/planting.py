"""Planting: the project's own source with a mistake in it, as it is imported."""

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType

ROOT = Path(__file__).parents[2]


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
