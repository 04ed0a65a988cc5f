"""The marks of one sender or backend in the form of the Redis store's scripts: a field for each mark."""

from collections.abc import Mapping

from shared.domain.marks import Marks
from shared.stores.codec import from_json, to_json
from shared.stores.marks_codec import KINDS, changes, decode

Value = str | int


def as_marks(fields: Mapping[str, str]) -> Marks:
    """The marks in a hash. Raises UnknownState."""
    version = fields.get("version")
    plain = {name: from_json(fields[name]) for name in KINDS if name in fields}
    return decode(plain, None if version is None else int(version))


def changed(id: str, before: Marks, after: Marks, version: int) -> list[Value]:
    """The arguments of a change of marks."""
    pairs = [(name, "" if mark is None else to_json(mark)) for name, mark in changes(before, after).items()]
    expected = "" if before.version is None else before.version
    return [id, expected, version, *(value for pair in pairs for value in pair)]
