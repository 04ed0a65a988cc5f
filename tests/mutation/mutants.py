"""Mutants: every small change to a module's text that its tests should notice.

A mutant replaces one stretch of the text, so all else (comments, line breaks) stays as it is. Sentences, docstrings,
annotations and the arguments of @dataclass are left alone: no test has to hold wording, and a type checker holds types.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

COMPARISONS = {
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
ARITHMETIC = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "*"),
    ast.Pow: ("**", "*"),
    ast.BitOr: ("|", "&"),
    ast.BitAnd: ("&", "|"),
}
NEVER_CAUGHT = "()"
"""`except ():` catches nothing."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One replacement in one module. `function` is the outermost function around it, None where an import runs it."""

    operator: str
    start: int
    end: int
    replacement: bytes
    lines: range
    """Of the statement: a test that runs one of them may notice."""
    function: tuple[str, int] | None
    """Its qualified name and its first line, decorators included."""

    def applied(self, text: bytes) -> bytes:
        return text[: self.start] + self.replacement + text[self.end :]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the walk is."""

    line: int = 1
    function: tuple[str, int] | None = None
    scope: str = ""


def mutants_of(text: bytes) -> list[Mutant]:
    """All mutants of a module that compile and mean something else, in the order of the text."""
    original = ast.dump(ast.parse(text))
    found: dict[tuple[int, int, bytes], Mutant] = {}
    for mutant in _Walk(text).module():
        key = (mutant.start, mutant.end, mutant.replacement)
        if key not in found and _means_something_else(mutant.applied(text), original):
            found[key] = mutant
    return [found[key] for key in sorted(found)]


def _means_something_else(changed: bytes, original: str) -> bool:
    try:
        compile(changed, "mutant", "exec")
        return ast.dump(ast.parse(changed)) != original
    except SyntaxError:
        return False


class _Walk:
    def __init__(self, text: bytes) -> None:
        self.text = text
        self.starts = [0]
        for line in text.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))

    def module(self) -> Iterator[Mutant]:
        for statement in _without_docstring(ast.parse(self.text).body):
            yield from self.visit(statement, _Place())

    def span(self, node: ast.AST) -> tuple[int, int]:
        where = node
        assert isinstance(where, ast.expr | ast.stmt | ast.keyword | ast.pattern | ast.ExceptHandler | ast.arg)
        assert where.end_lineno is not None
        assert where.end_col_offset is not None
        return (
            self.starts[where.lineno - 1] + where.col_offset,
            self.starts[where.end_lineno - 1] + where.end_col_offset,
        )

    def source(self, node: ast.AST) -> bytes:
        start, end = self.span(node)
        return self.text[start:end]

    def change(self, operator: str, place: _Place, start: int, end: int, replacement: str | bytes) -> Mutant:
        new = replacement.encode() if isinstance(replacement, str) else replacement
        last = self.text.count(b"\n", 0, end) + 1
        return Mutant(operator, start, end, new, range(place.line, max(place.line, last) + 1), place.function)

    def replace(self, operator: str, place: _Place, node: ast.AST, replacement: str | bytes) -> Mutant:
        return self.change(operator, place, *self.span(node), replacement)

    def between(
        self, operator: str, place: _Place, left: ast.AST, right: ast.AST, was: str, now: str
    ) -> Iterator[Mutant]:
        """The operator's sign between two operands."""
        start, end = self.span(left)[1], self.span(right)[0]
        spelled = r"\s+".join(re.escape(word) for word in was.split())
        pattern = rf"(?<!\w){spelled}(?!\w)" if was[0].isalpha() else spelled
        if match := re.search(pattern.encode(), self.text[start:end]):
            yield self.change(operator, place, start + match.start(), start + match.end(), now)

    # ---- the walk

    def visit(self, node: ast.AST, place: _Place) -> Iterator[Mutant]:
        if isinstance(node, ast.stmt | ast.ExceptHandler):
            place = _Place(node.lineno, place.function, place.scope)
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from self.function(node, place)
                return
            case ast.ClassDef():
                yield from self.class_body(node, place)
                return
            case ast.AnnAssign():
                if node.value:
                    yield from self.visit(node.value, place)
                return
            case ast.JoinedStr() | ast.Import() | ast.ImportFrom() | ast.Assert():
                return
            case ast.Expr(ast.Call(ast.Name("assert_never"))):
                return
            case ast.match_case():
                yield from self.case(node, place)
                return
        yield from self.here(node, place)
        for child in ast.iter_child_nodes(node):
            yield from self.visit(child, place)

    def function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, place: _Place) -> Iterator[Mutant]:
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                yield from self.visit(default, place)
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        name = f"{place.scope}{node.name}"
        inside = _Place(node.lineno, place.function or (name, first), f"{name}.<locals>.")
        for statement in _without_docstring(node.body):
            yield from self.visit(statement, inside)

    def class_body(self, node: ast.ClassDef, place: _Place) -> Iterator[Mutant]:
        inside = _Place(node.lineno, place.function, f"{place.scope}{node.name}.")
        for statement in _without_docstring(node.body):
            yield from self.visit(statement, inside)

    def case(self, node: ast.match_case, place: _Place) -> Iterator[Mutant]:
        place = _Place(node.pattern.lineno, place.function, place.scope)
        end = self.span(node.pattern)[1]
        if node.guard:
            yield self.replace("branch", place, node.guard, b"not (" + self.source(node.guard) + b")")
            yield from self.visit(node.guard, place)
        elif not _is_unreachable(node.body):
            yield self.change("case", place, end, end, " if False")
        yield from self.visit(node.pattern, place)
        for statement in node.body:
            yield from self.visit(statement, place)

    # ---- what can be changed at one node

    def here(self, node: ast.AST, place: _Place) -> Iterator[Mutant]:
        match node:
            case ast.Compare(left, operators, comparators):
                operands = [left, *comparators]
                for at, operator in enumerate(operators):
                    was, now = COMPARISONS[type(operator)]
                    yield from self.between("comparison", place, operands[at], operands[at + 1], was, now)
            case ast.BinOp(left, operator, right) if type(operator) in ARITHMETIC:
                was, now = ARITHMETIC[type(operator)]
                yield from self.between("arithmetic", place, left, right, was, now)
            case ast.AugAssign(target, operator, value) if type(operator) in ARITHMETIC:
                was, now = ARITHMETIC[type(operator)]
                yield from self.between("arithmetic", place, target, value, f"{was}=", f"{now}=")
                yield self.replace("statement", place, node, "pass")
            case ast.BoolOp(operator, values):
                was, now = ("and", "or") if isinstance(operator, ast.And) else ("or", "and")
                for left, right in pairwise(values):
                    yield from self.between("boolean", place, left, right, was, now)
            case ast.UnaryOp(ast.Not() | ast.USub(), operand):
                yield self.replace("boolean", place, node, b"(" + self.source(operand) + b")")
            case ast.Constant():
                yield from self.constant(node, place)
            case ast.Call():
                yield from self.dropped_keywords(node, place)
            case ast.Return(ast.expr() as value) if not _is_none(value):
                yield self.replace("return", place, value, "None")
            case ast.Expr(ast.Call() | ast.Await()) | ast.Break() | ast.Continue() | ast.Delete():
                yield self.replace("statement", place, node, "pass")
            case ast.Assign([ast.Attribute() | ast.Subscript()]):
                yield self.replace("statement", place, node, "pass")
            case ast.Raise(exc):
                yield self.replace("statement", place, node, "pass")
                if isinstance(exc, ast.Call):
                    yield self.replace("exception", place, exc.func, "Exception")
            case ast.If(test) | ast.IfExp(test) | ast.While(test):
                yield self.replace("branch", place, test, b"(not (" + self.source(test) + b"))")
            case ast.comprehension(ifs=conditions):
                for condition in conditions:
                    yield self.replace("branch", place, condition, "True")
            case ast.ExceptHandler(type=ast.expr() as caught):
                yield self.replace("exception", place, caught, NEVER_CAUGHT)

    def constant(self, node: ast.Constant, place: _Place) -> Iterator[Mutant]:
        match node.value:
            case bool(value):
                yield self.replace("constant", place, node, str(not value))
            case int(value) | float(value):
                yield self.replace("constant", place, node, repr(value + 1))
            case str(value) if value and not re.search(r"\s", value) and self.source(node)[-1:] in b"\"'":
                yield self.replace("constant", place, node, repr(f"X{value}"))

    def dropped_keywords(self, node: ast.Call, place: _Place) -> Iterator[Mutant]:
        given: list[ast.AST] = sorted([*node.args, *node.keywords], key=self.span)
        for at, argument in enumerate(given):
            if not isinstance(argument, ast.keyword) or argument.arg is None:
                continue
            start, end = self.span(argument)
            if at + 1 < len(given):
                end = self.span(given[at + 1])[0]
            elif at:
                start = self.span(given[at - 1])[1]
            yield self.change("keyword", place, start, end, b"")


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    """Without strings that stand by themselves: those at the head, and those beneath a constant."""
    return [
        statement
        for statement in body
        if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
    ]


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_unreachable(body: list[ast.stmt]) -> bool:
    match body:
        case [ast.Expr(ast.Call(ast.Name("assert_never")))]:
            return True
    return False
