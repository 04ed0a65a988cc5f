"""Imports point inward: who may import whom is the table below, and every module of the project keeps to it."""

import ast
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TREES = ("services", "shared", "cli", "pombo", "handlers", "local")
PROJECT = {*TREES, "tests", "bench", "examples"}


@dataclass(frozen=True)
class Rule:
    """What modules under a prefix may import of the project, besides what lies under that prefix itself."""

    may: tuple[str, ...] = ()
    third_party: bool = True
    lazily: tuple[str, ...] = ()
    """Inside functions only."""
    never: tuple[str, ...] = ()


PORTS = ("shared.pipeline.ports", "shared.pipeline.intake", "shared.pipeline.registry")
ADAPTER = Rule(may=("shared.domain", *PORTS, "shared.net", "shared.logs"))
SERVICE = Rule(
    may=("shared.bootstrap", "shared.domain", "shared.pipeline", "shared.config", "shared.logs", "shared.signals")
)
SERVICE_COMMON = (
    *("services.task_responses", "services.error_responses", "services.health", "services.serving", "services.server"),
    *("services.async_server", "services.exchange", "services.bounded_worker"),
)

RULES: Mapping[str, Rule] = {
    "shared.domain": Rule(third_party=False),
    "shared.pipeline": Rule(may=("shared.domain", "shared.logs"), third_party=False),
    "shared.operations": Rule(
        may=("shared.domain", "shared.pipeline", "shared.tenants", "shared.logs"), third_party=False
    ),
    "shared.logs": Rule(may=("shared.log_events",)),
    "shared.log_events": Rule(third_party=False),
    "shared.config": Rule(may=("shared.domain", "shared.logs"), third_party=False),
    "shared.signals": Rule(third_party=False),
    "shared.crash": Rule(may=("shared.pipeline", "shared.config"), third_party=False),
    "shared.net": Rule(may=("shared.domain",)),
    "shared.channels": ADAPTER,
    "shared.stores": ADAPTER,
    "shared.queues": ADAPTER,
    "shared.secrets": ADAPTER,
    "shared.tenants": ADAPTER,
    "shared.handlers": ADAPTER,
    "shared.bootstrap": Rule(may=("shared",)),
    "shared": Rule(third_party=False, never=("shared",)),
    "services.webhook": Rule(may=(*SERVICE.may, *SERVICE_COMMON)),
    "services.internal": Rule(may=(*SERVICE.may, *SERVICE_COMMON)),
    "services.api": Rule(may=(*SERVICE.may, *SERVICE_COMMON, "shared.operations", "shared.tenants", "shared.net")),
    "services": Rule(may=SERVICE.may, never=("services.webhook", "services.internal", "services.api")),
    "pombo": Rule(may=("shared.handlers",), third_party=False),
    "handlers": Rule(may=("pombo", "shared.handlers")),
    "local": Rule(may=("shared.config", "shared.crash", "shared.domain", "shared.signals")),
    "cli.chaos": Rule(may=("cli", "shared", "local", "pombo")),
    "cli": Rule(may=(*SERVICE.may, "shared.operations", "local", "pombo.client")),
}
"""The longest prefix of a module's name decides. `shared` stands for its own __init__ alone: whatever else comes to
lie there is a stray until it has a line here."""


@dataclass(frozen=True)
class Import:
    name: str
    line: int
    lazy: bool


@cache
def imports_of(source: str, module: str, package: bool = False) -> tuple[Import, ...]:
    """Every import in a module, the dynamic ones of a literal name too; a relative one by its full name."""
    is_dynamic = "import_module" in source or "__import__" in source

    def walk(node: ast.AST, lazy: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr) and not is_dynamic:
                continue  # nine in ten nodes are, and no statement lies in one
            for name in _names(child, module if package else module.rpartition(".")[0]):
                yield Import(name, child.lineno, lazy)  # type: ignore[attr-defined]
            yield from walk(child, lazy or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda))

    return tuple(walk(ast.parse(source), False))


def _names(node: ast.AST, package: str) -> list[str]:
    match node:
        case ast.Import(names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module, names, level):
            base = package.split(".")[: len(package.split(".")) - (level or 0) + 1] if level else []
            origin = ".".join([*base, *([module] if module else [])])
            return [f"{origin}.{alias.name}" for alias in names]
        case ast.Call(ast.Name("__import__" | "import_module"), [ast.Constant(str(name)), *_]):
            return [name]
        case ast.Call(ast.Attribute(_, "import_module"), [ast.Constant(str(name)), *_]):
            return [name]
    return []


def under(name: str, *prefixes: str) -> bool:
    return any(name == prefix or name.startswith(f"{prefix}.") for prefix in prefixes)


def strays_in(source: str, module: str, package: bool = False) -> list[str]:
    """What a module imports and may not, in words."""
    prefix = max((prefix for prefix in RULES if under(module, prefix)), key=len, default=None)
    if prefix is None or (prefix == "shared" and module != "shared"):
        return [f"{module} has no rule"]
    rule = RULES[prefix]
    return [
        f"{module}:{found.line} imports {found.name}"
        for found in imports_of(source, module, package)
        if not _allowed(found, prefix, rule)
    ]


def _allowed(found: Import, prefix: str, rule: Rule) -> bool:
    root = found.name.partition(".")[0]
    if root not in PROJECT:
        return rule.third_party or root in sys.stdlib_module_names
    if under(found.name, *rule.never):
        return False
    return under(found.name, prefix, *rule.may) or (found.lazy and under(found.name, *rule.lazily))


@cache
def modules() -> Mapping[str, Path]:
    found = {}
    for tree in TREES:
        for path in sorted((ROOT / tree).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


# ---- the project


@pytest.mark.parametrize("module", modules())
def test_a_module_imports_only_what_its_place_allows(module: str) -> None:
    path = modules()[module]
    assert strays_in(path.read_text(), module, path.name == "__init__.py") == []


def test_search_for_modules_finds_the_project() -> None:
    assert {"shared.domain.delivery", "shared.pipeline.ports", "services", "handlers", "local"} <= set(modules())


# ---- the checker itself

STRAYS = {
    "third party in the domain": ("shared.domain.delivery", "import httpx"),
    "the pipeline in the domain": ("shared.domain.delivery", "from shared.pipeline import ports"),
    "logs in the domain": ("shared.domain.delivery", "from shared import logs"),
    "inside a function": ("shared.domain.delivery", "def f():\n    import httpx"),
    "inside a class, a try and a with": (
        "shared.domain.delivery",
        "class A:\n    try:\n        with b:\n            import httpx\n    finally:\n        pass",
    ),
    "for the type checker only": (
        "shared.pipeline.sweep",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from shared.stores.sqlite.store import Store",
    ),
    "by another name": ("shared.pipeline.sweep", "import shared.stores.sqlite.store as harmless"),
    "one of several": ("shared.pipeline.sweep", "import json, shared.config"),
    "one of several from": ("shared.pipeline.sweep", "from shared import logs, config"),
    "all names": ("shared.pipeline.sweep", "from shared.stores import *"),
    "the whole tree": ("shared.pipeline.sweep", "import shared"),
    "relative, one up": ("shared.pipeline.sweep", "from ..stores import sqlite"),
    "relative, two up": ("shared.stores.firestore.store", "from ...config import Config"),
    "relative, nothing but dots": ("shared.pipeline.sweep", "from .. import config"),
    "by import_module": ("shared.pipeline.sweep", "import importlib\nimportlib.import_module('local.stack')"),
    "by __import__": ("shared.pipeline.sweep", "def f():\n    return __import__('cli')"),
    "third party in the pipeline": ("shared.pipeline.sweep", "from google.cloud import tasks_v2"),
    "the pipeline beyond its ports, in a store": (
        "shared.stores.sqlite.store",
        "from shared.pipeline.sweep import Sweep",
    ),
    "the pipeline itself, in a store": ("shared.stores.sqlite.store", "from shared.pipeline import sweep"),
    "a name that only begins like ports": ("shared.stores.sqlite.store", "import shared.pipeline.portsmouth"),
    "a port in the wire": ("shared.net.bounded_http", "from shared.pipeline.ports import Handler"),
    "the wire in the pipeline": ("shared.pipeline.sweep", "from shared.net import bounded_json"),
    "one adapter in another": ("shared.queues.cloud_tasks", "from shared.stores import codec"),
    "crash points in the pipeline": ("shared.pipeline.dispatch", "from shared import crash"),
    "crash points in a service": ("services.internal.main", "from shared.crash import wrap"),
    "a store in the crash points": ("shared.crash", "from shared.stores.sqlite.store import SqliteStore"),
    "bootstrap in a channel": ("shared.channels.meta.channel", "from shared.bootstrap import webhook"),
    "a store in the handlers": ("shared.handlers.loader", "import shared.stores.sqlite.store"),
    "the command line in bootstrap": ("shared.bootstrap", "from cli import main"),
    "services in bootstrap": ("shared.bootstrap", "def f():\n    import services.webhook.main"),
    "a team's handler in bootstrap": ("shared.bootstrap", "from handlers.echo import handle"),
    "a store in the command line": ("cli.trace", "from shared.stores.sqlite.store import SqliteStore"),
    "the command line in local": ("local.stack", "def f():\n    from cli.main import main"),
    "local in the library": ("shared.net.bounded_http", "from local.terminal import styled"),
    "services in the command line": ("cli.up", "def f():\n    from services.webhook import main"),
    "local in a service, lazily": ("services.webhook.main", "def f():\n    from local.faults import FaultBook"),
    "a store in a service": ("services.internal.main", "from shared.stores.sqlite.store import SqliteStore"),
    "the command line in a service": ("services.internal.main", "import cli.main"),
    "a store in the API service": ("services.api.main", "from shared.stores.sqlite.store import SqliteStore"),
    "an operation in the internal service": ("services.internal.main", "from shared.operations.keys import parse_key"),
    "one service in another": ("services.webhook.main", "from services.internal import main"),
    "a service in what services share": ("services.error_responses", "from services.webhook import main"),
    "services in local": ("local.stack", "from services.webhook.main import app"),
    "a store in local": ("local.stack", "from shared.stores.sqlite.store import SqliteStore"),
    "tests in local": ("local.stack", "import tests.support.builders"),
    "the domain in a team's handler": ("handlers.menu", "from shared.domain.messages import Message"),
    "a place that has no rule yet": ("shared.utils", "import json"),
    "a package that has no rule yet": ("shared.media.images", "import json"),
    "anything at all in shared itself": ("shared", "from shared import logs"),
}


@pytest.mark.parametrize("name", STRAYS)
def test_planted_forbidden_import_is_found(name: str) -> None:
    module, source = STRAYS[name]
    assert len(strays_in(source, module)) == 1


ALLOWED = {
    "the domain": ("shared.domain.delivery", "import json\nfrom shared.domain import waits\nfrom . import record"),
    "the future": ("shared.domain.delivery", "from __future__ import annotations"),
    "the pipeline": (
        "shared.pipeline.sweep",
        "from shared import logs\nfrom shared.domain.delivery.sweep import sweep",
    ),
    "a store": (
        "shared.stores.redis.store",
        "import redis\nfrom shared.pipeline.ports import Store\nfrom .codec import x",
    ),
    "ports by their package": ("shared.stores.redis.store", "from shared.pipeline import ports"),
    "a channel": ("shared.channels.meta.channel", "import httpx\nfrom shared.domain.errors import SendError"),
    "the wire in an adapter": ("shared.handlers.url", "from shared.net.bounded_http import Poster"),
    "the crash points": (
        "shared.crash",
        "import os\nfrom shared.config import ConfigError\nfrom shared.pipeline import ports",
    ),
    "bootstrap": ("shared.bootstrap", "def f():\n    from shared.stores.redis.store import RedisStore"),
    "the command line": ("cli.up", "import click\nasync def f():\n    from local.stack import run"),
    "a service": (
        "services.webhook.main",
        "import flask\nfrom services import error_responses\nfrom shared import bootstrap",
    ),
    "a team's handler": ("handlers.menu", "import openai\nfrom shared.handlers import Message"),
    "local": ("local.stack", "import grpc\nfrom shared.config import Config\nfrom local.faults import FaultBook"),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_allowed_import_is_not_a_stray(name: str) -> None:
    module, source = ALLOWED[name]
    assert strays_in(source, module) == []


def test_a_relative_import_of_a_package_begins_at_itself() -> None:
    assert strays_in("from .record import Delivery", "shared.domain", package=True) == []
    assert strays_in("from ..stores import sqlite", "shared.pipeline", package=True) == [
        "shared.pipeline:1 imports shared.stores.sqlite"
    ]


# ---- no circle


def room_of(module: str) -> str:
    """Where a module lies: its folder, or itself where it lies beside the folders of `shared`."""
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] == "shared" else parts[0]


@cache
def rooms() -> Mapping[str, set[str]]:
    """The rooms, and those that each imports from."""
    known = modules()
    arrows: dict[str, set[str]] = {room_of(module): set() for module in known}
    for module, path in known.items():
        for found in imports_of(path.read_text(), module, path.name == "__init__.py"):
            there = next((name for name in (found.name, found.name.rpartition(".")[0]) if name in known), None)
            if there and room_of(there) != room_of(module):
                arrows[room_of(module)].add(room_of(there))
    return arrows


def circle_in(arrows: Mapping[str, set[str]]) -> list[str]:
    """The rooms of a circle, or none: whatever imports nothing that is left is taken away until nothing changes."""
    left = {room: set(others) for room, others in arrows.items()}
    while free := [room for room, others in left.items() if not others & left.keys()]:
        for room in free:
            del left[room]
    return sorted(left)


def test_no_room_imports_itself_by_way_of_another() -> None:
    assert circle_in(rooms()) == []


def test_a_circle_of_rooms_is_found() -> None:
    assert circle_in({"cli": {"local"}, "local": {"shared.config", "cli"}, "shared.config": set()}) == ["cli", "local"]


def test_the_arrows_between_rooms_are_those_of_the_imports() -> None:
    found = rooms()
    assert {"local", "shared.operations"} <= found["cli"]
    assert "shared.domain" in found["shared.pipeline"]
    assert "cli" not in found["local"]
