"""Behaviour: what the stand-in does with a resource. Pure; values are as Terraform sends them.

Terraform itself checks a configuration against the schema. This adds what only a provider knows: the values that an
argument may have, arguments that only the provider sets, what is known after a plan, and what a change replaces.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Block = Mapping[str, Any]
Path = tuple[str | int, ...]

PROJECT_NUMBER = "123456789012"
_REPEATED = ("list", "set", "map")


@dataclass(frozen=True, slots=True)
class Refusal:
    """A fault in an argument."""

    path: Path
    sentence: str


def refusals(block: Block, value: Any, is_unknown: Callable[[Any], bool], path: Path = ()) -> Iterator[Refusal]:
    """What the provider would refuse in a configuration."""
    if value is None or is_unknown(value):
        return
    for name, attribute in block["attributes"].items():
        given = value.get(name)
        if given is None or is_unknown(given):
            continue
        if (attribute.get("computed") and not attribute.get("optional")) or (name == "id" and not path):
            yield Refusal((*path, name), f"{name} is decided by the provider: it cannot be set.")
        allowed = attribute.get("values")
        for one in given if isinstance(given, list) else [given]:
            if allowed and isinstance(one, str) and one and one not in allowed:
                yield Refusal((*path, name), f"expected {name} to be one of {', '.join(allowed)}, got {one}")
    for name, nested in block["blocks"].items():
        for step, element in _elements(nested["nesting"], value.get(name), is_unknown):
            yield from refusals(nested["block"], element, is_unknown, (*path, name, *step))


def planned(
    block: Block,
    proposed: Any,
    prior: Any,
    unknown: Any,
    is_unknown: Callable[[Any], bool],
    defaults: Mapping[str, str],
) -> Any:
    """The planned value: what is configured; the rest is the prior value, or known only after the apply."""
    if proposed is None or is_unknown(proposed):
        return proposed
    result = dict(proposed)
    for name, attribute in block["attributes"].items():
        if result.get(name) is None and attribute.get("computed") and prior is None:
            result[name] = defaults.get(name, unknown) if attribute.get("optional") else unknown
        if attribute.get("write_only"):
            result[name] = None
    for name, nested in block["blocks"].items():
        result[name] = _mapped(
            nested["nesting"],
            result.get(name),
            lambda element, inner=nested["block"]: planned(inner, element, prior, unknown, is_unknown, {}),
            is_unknown,
        )
    return result


def settled(
    block: Block,
    value: Any,
    about: str,
    is_unknown: Callable[[Any], bool],
    answers: Mapping[str, Any],
    fill: bool = False,
) -> Any:
    """The value after an apply or a read: unknown values are invented; with `fill`, missing ones too."""
    if value is None:
        return None
    result = dict(value)
    for name, attribute in block["attributes"].items():
        missing = fill and result.get(name) is None and attribute.get("computed")
        if is_unknown(result.get(name)) or missing:
            result[name] = answers.get(name, _invented(attribute["type"], f"{about}-{name}"))
    for name, nested in block["blocks"].items():
        result[name] = _mapped(
            nested["nesting"],
            result.get(name),
            lambda element, inner=nested["block"]: settled(inner, element, about, is_unknown, {}),
            is_unknown,
        )
    return result


def imported(block: Block, identity: str, defaults: Mapping[str, str]) -> dict[str, Any]:
    """The imported state of an existing resource: only its id, the name at the end of it, and its location."""
    known = {"id": identity, "name": identity.rpartition("/")[2], "location": defaults.get("region"), **defaults}
    nothing = {name: [] if it["nesting"] in _REPEATED else None for name, it in block["blocks"].items()}
    return {**{name: known.get(name) for name in block["attributes"]}, **nothing}


def replaced(immutable: frozenset[str], prior: Any, plan: Any, is_unknown: Callable[[Any], bool]) -> list[str]:
    """The arguments whose change replaces the resource. `immutable` are dotted, or "*" for all."""
    if prior is None or plan is None:
        return []
    paths = set(prior) if "*" in immutable else immutable
    return sorted(
        path.split(".")[0] for path in paths if not is_unknown(_at(plan, path)) and _at(prior, path) != _at(plan, path)
    )


def _at(value: Any, path: str) -> Any:
    """The value at a dotted path; for blocks that are lists, that of each."""
    for part in path.split("."):
        if isinstance(value, list):
            value = [element.get(part) if isinstance(element, dict) else None for element in value]
        else:
            value = value.get(part) if isinstance(value, dict) else None
    return value


def _elements(nesting: str, value: Any, is_unknown: Callable[[Any], bool]) -> list[tuple[Path, Any]]:
    """A nested block's elements, each with the step that leads to it; no step leads into a set."""
    if value is None or is_unknown(value):
        return []
    if nesting == "map":
        return [((key,), element) for key, element in value.items()]
    if nesting in _REPEATED:
        return [((index,) if nesting == "list" else (), element) for index, element in enumerate(value)]
    return [((), value)]


def _mapped(nesting: str, value: Any, change: Callable[[Any], Any], is_unknown: Callable[[Any], bool]) -> Any:
    if value is None or is_unknown(value):
        return value
    if nesting == "map":
        return {key: change(element) for key, element in value.items()}
    return [change(element) for element in value] if nesting in _REPEATED else change(value)


def _invented(type_: Any, about: str) -> Any:
    if isinstance(type_, str):
        return {"string": f"invented-{about}", "number": 0, "bool": False}[type_]
    kind, of = type_
    if kind == "object":
        return {name: _invented(it, f"{about}-{name}") for name, it in of.items()}
    return {} if kind == "map" else []
