"""Schema: the arguments of resources, in the form that Terraform requires from a provider.

A block is {"attributes": {name: {"type", "required"?, "optional"?, "computed"?, "write_only"?, "values"?}}, "blocks":
{name: {"nesting", "min"?, "max"?, "block"}}}. A type is written in Terraform's JSON form.

The bindings lack, and so does this: a maximum of items over one, regular expressions, arguments that exclude one
another, defaults, and what the API itself refuses.
"""

import re
from collections.abc import Mapping
from typing import Any

from tests.infra.offline.bindings import Accessor, Class, Entry, Module, UnknownForm

Block = dict[str, Any]

_PRIMITIVES = {"String": "string", "Number": "number", "Boolean": "bool"}
_HELD = {"string": "string", "number": "number", "boolean": "bool", "stringList": "string", "stringMap": "string"}
_NESTINGS = {"list": "list", "set": "set", "struct": "single", "map": "map"}
_ROOTS = {"TerraformResource": "resources", "TerraformDataSource": "data", "TerraformProvider": "provider"}
_DEEPEST = 40

_OBJECT = re.compile(r'new (\w+)(OutputReference|List|Map)\(this, "(\w+)"(?:, (true|false))?\)')
_MAP = re.compile(r'new cdkt[nf]\.(String|Number|Boolean)Map\(this, "\w+"\)')
_MAPS = re.compile(r'new cdkt[nf]\.(String|Number|Boolean)MapList\(this, "\w+", (true|false)\)')
_PRIMITIVE = re.compile(r"this\.get(String|Number|Boolean)(Map)?Attribute\('\w+'\)")
_LIST = re.compile(r"this\.get(Number)?ListAttribute\('\w+'\)")


def schema_of(modules: Mapping[str, Module], version: str) -> dict[str, Any]:
    """The schema of the resources, data sources and provider that the modules describe. Raises UnknownForm."""
    schema: dict[str, Any] = {"version": version, "provider": None, "resources": {}, "data": {}}
    for name, module in modules.items():
        try:
            kind, type_name, block = _root(module)
        except UnknownForm as error:
            raise UnknownForm(f"{name}: {error}") from error
        if kind == "provider":
            schema["provider"] = block
        else:
            schema[kind][type_name] = block
    return schema


def _root(module: Module) -> tuple[str, str | None, Block]:
    roots = [(name, it) for name, it in module.classes.items() if it.base in _ROOTS]
    if len(roots) != 1:
        raise UnknownForm(f"{len(roots)} classes stand for the whole instead of one.")
    name, root = roots[0]
    values = module.values.get(f"{name}Config", {})
    return _ROOTS[root.base], root.type_name, _Assembly(module, root).block(root.accessors, root.table, values)


class _Assembly:
    """Combines one module's classes and tables."""

    def __init__(self, module: Module, root: Class) -> None:
        self._module = module
        self._of_provider = root.base == "TerraformProvider"

    def block(
        self,
        accessors: Mapping[str, Accessor],
        table: Mapping[str, Entry],
        values: Mapping[str, tuple[str, ...]],
        depth: int = 0,
    ) -> Block:
        if depth > _DEEPEST:
            raise UnknownForm("blocks hold one another without an end.")
        if strays := set(table) - set(accessors):
            raise UnknownForm(f"written but without flags: {', '.join(sorted(strays))}.")
        block: Block = {"attributes": {}, "blocks": {}}
        for name, accessor in accessors.items():
            entry = table.get(name)
            if accessor.settable and entry is None:
                raise UnknownForm(f"{name} can be set but is not written.")
            kind, held = self._held(name, accessor, entry)
            if entry is not None and entry.is_block:
                block["blocks"][name] = self._nested(name, accessor, entry, kind, held, depth)
            else:
                block["attributes"][name] = self._attribute(name, accessor, entry, kind, held, values)
        return block

    def _nested(self, name: str, accessor: Accessor, entry: Entry, kind: str, held: Any, depth: int) -> dict[str, Any]:
        if kind == "type":
            raise UnknownForm(f"{name} is a block here and a value there.")
        table = self._module.tables[held[0].lower() + held[1:]]
        if self._of_provider:  # its blocks have no class of accessors
            accessors: Mapping[str, Accessor] = {it: Accessor(False, True, False, "") for it in table}
        else:
            accessors = self._class(held).accessors
        nesting = _NESTINGS[entry.kind]
        nested: dict[str, Any] = {"nesting": nesting}
        if nesting in ("list", "set"):
            nested |= {"max": 1} if kind == "single" else {}
            nested |= {"min": 1} if accessor.required else {}
        nested["block"] = self.block(accessors, table, self._module.values.get(held, {}), depth + 1)
        return nested

    def _attribute(
        self,
        name: str,
        accessor: Accessor,
        entry: Entry | None,
        kind: str,
        held: Any,
        values: Mapping[str, tuple[str, ...]],
    ) -> dict[str, Any]:
        if kind == "type":
            type_ = held
            if entry is not None and entry.kind in ("list", "set", "map") and type_[0] != entry.kind:
                raise UnknownForm(f"{name} is a {type_[0]} here and a {entry.kind} there.")
        else:  # nested values that only the provider sets are lists, even if there is one
            type_ = ["list" if kind == "single" else kind, self._object(held)]
        attribute: dict[str, Any] = {"type": type_}
        flags = ("computed", accessor.computed), ("optional", accessor.optional), ("required", accessor.required)
        attribute |= {flag: True for flag, on in flags if on}
        if name.endswith("_wo"):
            attribute["write_only"] = True
        if accessor.settable and name in values:
            attribute["values"] = list(values[name])
        return attribute

    def _object(self, class_name: str) -> list[Any]:
        held = {}
        for name, accessor in self._class(class_name).accessors.items():
            kind, of = self._held(name, accessor, None)
            held[name] = of if kind == "type" else self._object(of) if kind == "single" else [kind, self._object(of)]
        return ["object", held]

    def _class(self, name: str) -> Class:
        try:
            return self._module.classes[f"{name}OutputReference"]
        except KeyError:
            raise UnknownForm(f"there is no class for {name}.") from None

    def _held(self, name: str, accessor: Accessor, entry: Entry | None) -> tuple[str, Any]:
        """("type", its type) of a value; (single, list, set or map, its class) of a block with arguments."""
        if self._of_provider and entry is not None:  # its accessors do not say
            if entry.is_block:
                return "single", entry.holds.removesuffix("List")
            return "type", _HELD[entry.holds] if entry.kind == "simple" else [entry.kind, _HELD[entry.holds]]
        code = accessor.code
        if (found := _OBJECT.search(code)) and found[3] == name:
            many = "set" if found[4] == "true" else "list"
            return {"OutputReference": "single", "Map": "map", "List": many}[found[2]], found[1]
        if found := _MAPS.search(code):
            return "type", ["set" if found[2] == "true" else "list", ["map", _PRIMITIVES[found[1]]]]
        if found := _MAP.search(code):
            return "type", ["map", _PRIMITIVES[found[1]]]
        if found := _PRIMITIVE.search(code):
            return "type", ["map", _PRIMITIVES[found[1]]] if found[2] else _PRIMITIVES[found[1]]
        if found := _LIST.search(code):
            return "type", ["set" if "Fn.tolist(" in code else "list", "number" if found[1] else "string"]
        raise UnknownForm(f"{name} is read in an unknown way: {code[:200]}")
