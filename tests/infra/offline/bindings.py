"""Bindings: what the generated TypeScript of the google provider's cdktn bindings says about a resource.

For each resource, the package holds a module whose inline source map carries the original TypeScript. There each
argument occurs twice: as an accessor under a comment with its flags, and in a table of its HCL form. Both are read and
compared; an unknown form is an error, never a guess.
"""

import base64
import io
import json
import re
import tarfile
import zipfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

PROVIDER = "hashicorp/google"

_PACKAGE = "package/package.json"
_SOURCE_MAP = "sourceMappingURL=data:application/json;base64,"

_CLASS = re.compile(r"^export class (\w+) extends cdkt[nf]\.(\w+) \{\n(.*?)^\}", re.S | re.M)
_TABLE = re.compile(r"^export function (\w+)ToHclTerraform\([^\n]*\n(.*?)^\}", re.S | re.M)
_OWN_TABLE = re.compile(r"^  protected synthesizeHclAttributes\(\)[^\n]*\n(.*?)^  \}", re.S | re.M)
_INTERFACE = re.compile(r"^export interface (\w+)[^\n]*\{\n(.*?)^\}", re.S | re.M)
_ACCESSOR = re.compile(
    r"^  // (\w+) - computed: (true|false), optional: (true|false), required: (true|false)\n"
    r"(.*?)(?=^  //|^  protected|\Z)",
    re.S | re.M,
)
_ENTRY = re.compile(
    r'^ +(\w+): \{\n +value: [^\n]*\n +isBlock: (true|false),\n +type: "(\w+)",\n +storageClassType: "(\w+)",\n +\},',
    re.M,
)
_ENTRIES = re.compile(r"^ +isBlock: ", re.M)
_TYPE_NAME = re.compile(r'public static readonly tfResourceType = "(\w+)"')
_DOCUMENTED = re.compile(r"/\*\*(.*?)\*/", re.S)
_WHOSE = re.compile(r"#(\w+) \w+#\1\}")
_VALUES = re.compile(r'Possible values(?: are)?: \[((?:"[^"\]]*"(?:, )?)+)\]')


class UnknownForm(Exception):
    """The bindings contain a form that this parser does not know."""


@dataclass(frozen=True, slots=True)
class Accessor:
    """An argument as a class gives access to it."""

    computed: bool
    optional: bool
    required: bool
    code: str

    @property
    def settable(self) -> bool:
        return self.optional or self.required


@dataclass(frozen=True, slots=True)
class Entry:
    """An argument in its HCL form. `holds` names the class of a block, or a primitive type."""

    is_block: bool
    kind: str
    holds: str


@dataclass(frozen=True, slots=True)
class Class:
    """A resource, data source, provider (`base` says which), or a block of one."""

    base: str
    accessors: Mapping[str, Accessor]
    table: Mapping[str, Entry]
    type_name: str | None


@dataclass(frozen=True, slots=True)
class Module:
    """Everything in one module of the bindings."""

    classes: Mapping[str, Class]
    tables: Mapping[str, Mapping[str, Entry]]
    """How each block is written, by the name of its class with a lower-case initial."""
    values: Mapping[str, Mapping[str, tuple[str, ...]]]
    """The values that an argument may have, if its documentation lists them; by interface and argument."""


def module_of(name: str) -> str:
    """The module of `google_x`, `data.google_x` or `provider`."""
    if name == "provider":
        return name
    prefix = "data-google-" if name.startswith("data.") else ""
    return prefix + name.removeprefix("data.").removeprefix("google_").replace("_", "-")


def read(wheel: Path, names: Collection[str]) -> tuple[str, dict[str, Module]]:
    """The provider's version, and the bindings of each of `names`. Raises UnknownForm."""
    wanted = {module_of(name): name for name in names}
    version, sources = None, dict[str, list[str]]()
    for path, content in _files(wheel, wanted):
        if path == _PACKAGE:
            version = _version(json.loads(content))
        elif _SOURCE_MAP in content:
            sources.setdefault(wanted[path.split("/")[2]], []).append(_typescript(content))
    if missing := sorted(set(names) - set(sources)):
        raise UnknownForm(f"{wheel.name} knows no {', '.join(missing)}.")
    if version is None:
        raise UnknownForm(f"{wheel.name} does not say which version of {PROVIDER} it was made from.")
    return version, {name: parse("\n".join(texts)) for name, texts in sources.items()}


def parse(typescript: str) -> Module:
    """Parse one module."""
    classes = {}
    for name, base, body in _CLASS.findall(typescript):
        accessors = {
            argument: Accessor(computed == "true", optional == "true", required == "true", code)
            for argument, computed, optional, required, code in _ACCESSOR.findall(body)
        }
        own = _OWN_TABLE.search(body)
        type_name = _TYPE_NAME.search(body)
        classes[name] = Class(base, accessors, _entries(own[1]) if own else {}, type_name[1] if type_name else None)
    return Module(
        classes,
        {name: _entries(body) for name, body in _TABLE.findall(typescript)},
        {name: _values(body) for name, body in _INTERFACE.findall(typescript)},
    )


def _entries(body: str) -> dict[str, Entry]:
    found = {name: Entry(block == "true", kind, holds) for name, block, kind, holds in _ENTRY.findall(body)}
    if len(found) != len(_ENTRIES.findall(body)):
        raise UnknownForm(f"A table of how arguments are written has an unknown form: {body[:200]}")
    return found


def _values(body: str) -> dict[str, tuple[str, ...]]:
    found = {}
    for text in _DOCUMENTED.findall(body):
        whose, values = _WHOSE.search(text), _VALUES.search(text)
        if whose and values:
            found[whose[1]] = tuple(re.findall(r'"([^"]*)"', values[1]))
    return found


def _files(wheel: Path, modules: Collection[str]) -> Iterator[tuple[str, str]]:
    """From the package in the wheel: its metadata, and the code of these modules."""
    with zipfile.ZipFile(wheel) as outer:
        inner = [name for name in outer.namelist() if name.endswith(".jsii.tgz")]
        if len(inner) != 1:
            raise UnknownForm(f"{wheel.name} holds {len(inner)} packages instead of one.")
        with tarfile.open(fileobj=io.BytesIO(outer.read(inner[0])), mode="r:gz") as package:
            for member in package:
                parts = member.name.split("/")
                is_code = len(parts) > 3 and parts[1] == "lib" and parts[2] in modules and parts[-1].endswith(".js")
                if is_code or member.name == _PACKAGE:
                    content = package.extractfile(member)
                    assert content is not None
                    yield member.name, content.read().decode()


def _version(package: Mapping[str, Mapping[str, Mapping[str, str]]]) -> str:
    provider = (package.get("cdktn") or package.get("cdktf") or {}).get("provider", {})
    if not provider.get("name", "").endswith(PROVIDER):
        raise UnknownForm(f"The package was made from {provider.get('name')}, not from {PROVIDER}.")
    return provider["version"]


def _typescript(javascript: str) -> str:
    """The original, from the source map: the compiled form lacks some of the comments."""
    encoded = javascript.rsplit(_SOURCE_MAP, 1)[1]
    return "\n".join(json.loads(base64.b64decode(encoded))["sourcesContent"])
