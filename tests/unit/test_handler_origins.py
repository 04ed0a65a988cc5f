"""Origins: which line of the team's own code failed, and nothing of what it failed with."""

import io
import itertools
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shared.domain.record import ERROR_KEPT
from shared.domain.verdicts import Origin
from shared.handlers import Drop, Message
from shared.handlers.hung_threads import HungThreads
from shared.handlers.loader import HandlerNotFound, TeamFunction, load_handler
from shared.handlers.origin import FUNCTION_CHARACTERS, PLACE_CHARACTERS, TYPE_CHARACTERS
from shared.handlers.runner import HandlerRunner
from shared.logs import PLACES_KEPT
from shared.pipeline.ports import BackendUnavailable, HandlerFault
from tests.unit.test_handlers import CALL, MOST, SOON, Unspeakable, a_runner, raising, until

Write = Callable[[str], str]


@pytest.fixture
def team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a module of the team's into the working directory; the name that loads its `handle`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    numbers = itertools.count()

    def write(source: str, folder: str = "") -> str:
        name = f"clinic_{next(numbers)}"
        path = tmp_path / folder / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
        monkeypatch.delitem(sys.modules, name, raising=False)
        return f"{name}:handle"

    return write


def origin_of(handle: Callable[..., Any]) -> Origin:
    with pytest.raises(HandlerFault) as caught:
        a_runner(handle)(CALL)
    return caught.value.origin


def told(name: str) -> tuple[str | None, str | None, str | None]:
    """The type, the place and the function of what this handler raises."""
    origin = origin_of(load_handler(name))
    return origin.type, origin.place, origin.function


# ---- which line it is

BOOKING = """
class Booking:
    def book(self, day):
        return {}[day]

def handle(message):
    return Booking().book("c4n4ry")
"""

SHAPES = {
    "function": "def handle(message):\n    raise KeyError",
    "generator": "def handle(message):\n    yield 'one'; raise KeyError",
    "coroutine": "async def handle(message):\n    raise KeyError",
    "async generator": "async def handle(message):\n    yield 'one'; raise KeyError",
    "method": "class H:\n    def handle(self, message): raise KeyError\nhandle = H().handle",
    "library": "import json\ndef handle(message): json.loads('{')",
    "our code": "from shared.handlers import OutboundMessage\ndef handle(message): return OutboundMessage.text('')",
    "a library calls back": "import functools\ndef handle(message):\n"
    "    return functools.reduce(lambda a, b: {}[a], [1, 2])",
}


def test_exception_is_reported_by_type_line_and_function(team: Write) -> None:
    assert told(team(BOOKING)) == ("KeyError", "clinic_0.py:4", "Booking.book")


@pytest.mark.parametrize(
    ("shape", "place", "function"),
    [
        ("function", "clinic_0.py:2", "handle"),
        ("generator", "clinic_0.py:2", "handle"),
        ("coroutine", "clinic_0.py:2", "handle"),
        ("async generator", "clinic_0.py:2", "handle"),
        ("method", "clinic_0.py:2", "H.handle"),
        ("library", "clinic_0.py:2", "handle"),
        ("our code", "clinic_0.py:2", "handle"),
        ("a library calls back", "clinic_0.py:3", "handle.<locals>.<lambda>"),
    ],
)
def test_innermost_line_of_the_teams_code_is_reported(team: Write, shape: str, place: str, function: str) -> None:
    assert told(team(SHAPES[shape]))[1:] == (place, function)


def test_a_module_that_the_handler_imports_is_the_teams_too(team: Write) -> None:
    other = team("def book():\n\n    return 1 / 0").partition(":")[0]
    assert told(team(f"import {other}\ndef handle(message): {other}.book()"))[1:] == (f"{other}.py:3", "book")


@pytest.mark.parametrize("folder", ["site-packages", "dist-packages"])
def test_installed_package_counts_as_library_unless_it_has_the_handler(
    team: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    monkeypatch.syspath_prepend(tmp_path / folder)
    installed = team("def handle(message):\n    return 1 / 0", folder)
    module = installed.partition(":")[0]
    assert told(installed)[1:] == (f"{folder}/{module}.py:2", "handle")
    assert told(team(f"import {module}\n\ndef handle(message): {module}.handle(message)"))[1:] == (
        "clinic_1.py:3",
        "handle",
    )


def test_file_outside_the_working_directory_is_reported_by_module_only(
    team: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = team(BOOKING)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert told(name)[1] == "clinic_0:4"


def test_deleted_working_directory_hides_no_failure(
    team: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = team(BOOKING)
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert told(name) == ("KeyError", "clinic_0:4", "Booking.book")


@pytest.mark.parametrize(
    ("source", "place", "function"),
    [
        ("def handle(message):\n    return 5", "clinic_0.py:1", "handle"),
        ("\nclass H:\n    def handle(self, message): return 5\nhandle = H().handle", "clinic_0.py:3", "H.handle"),
        ("\nclass H:\n    def __call__(self, message): return 5\nhandle = H()", "clinic_0.py:3", "H.__call__"),
        ("import functools\ndef on(c, message): return 5\nhandle = functools.partial(on, 1)", "clinic_0.py:2", "on"),
    ],
    ids=["function", "method", "callable", "partial"],
)
def test_none_as_answer_is_attributed_to_the_handlers_definition(
    team: Write, source: str, place: str, function: str
) -> None:
    assert told(team(source)) == ("TypeError", place, function)


def test_a_handler_without_a_definition_in_python_has_a_type_alone() -> None:
    origin = origin_of(partial(len))
    assert (origin.type, origin.place, origin.function) == ("TypeError", None, None)


def test_overrun_is_reported_by_the_line_still_running(team: Write) -> None:
    source = "import threading\nheld = threading.Event()\n\ndef handle(message):\n    held.wait(30)"
    handle = load_handler(team(source))
    with pytest.raises(HandlerFault, match="took longer") as caught:
        a_runner(handle, timeout=SOON)(CALL)
    handle.__globals__["held"].set()  # type: ignore[attr-defined] # it is a function
    assert caught.value.origin == Origin(None, "clinic_0.py:5", "handle")


# ---- nothing private, and never much


def test_origin_and_stack_contain_only_code(team: Write) -> None:
    source = "def handle(message):\n    name = 'x' + message.text\n    raise LookupError(name) from KeyError(name)"
    origin = origin_of(load_handler(team(source)))
    assert "xhello" not in str(origin)
    assert origin.stack_trace is not None
    assert 'clinic_0.py", line 3, in handle' in origin.stack_trace
    assert origin.stack_trace.endswith("LookupError\ncaused by KeyError")


def test_the_longest_names_leave_room_for_the_error(team: Write) -> None:
    source = (
        f"class {'E' * 99}(Exception): ...\n\ndef {'f' * 99}(): raise {'E' * 99}\n\ndef handle(message): {'f' * 99}()"
    )
    folder = "/".join(["deep" * 5] * 6)
    name = team(source, folder)
    sys.path.insert(0, str(Path.cwd() / folder))
    try:
        type_, place, function = told(name)
    finally:
        del sys.path[0]
    assert type_ == "E" * TYPE_CHARACTERS
    assert place is not None
    assert function is not None
    assert place.endswith("/clinic_0.py:3")
    assert (place[0], len(place)) == ("…", PLACE_CHARACTERS)
    assert (function[0], len(function)) == ("…", FUNCTION_CHARACTERS)
    assert TYPE_CHARACTERS + PLACE_CHARACTERS + FUNCTION_CHARACTERS < ERROR_KEPT


def test_file_name_that_is_not_text_is_reported_as_storable_text(team: Write) -> None:
    """A name in another encoding than UTF-8 comes with half characters."""
    there: dict[str, Any] = {"__name__": "cafe"}
    exec(compile("def handle(message): raise KeyError", str(Path.cwd() / "caf\udce9.py"), "exec"), there)
    assert origin_of(there["handle"]).place == "caf?.py:1"


def test_exception_type_without_a_valid_name_is_reported_as_exception() -> None:
    """It is made while the program runs, perhaps of a customer's words."""
    assert origin_of(raising(type("call +15550002222", (Exception,), {})())).type == "Exception"


def test_the_stack_of_an_endless_recursion_is_bounded(team: Write) -> None:
    origin = origin_of(load_handler(team("def handle(message):\n    return handle(message)")))
    assert origin.stack_trace is not None
    assert (origin.type, origin.place) == ("RecursionError", "clinic_0.py:2")
    lines = origin.stack_trace.splitlines()
    assert len(lines) == PLACES_KEPT + 3
    assert any(" more)" in line for line in lines)


# ---- whose word counts


@pytest.mark.parametrize("error", [HandlerFault("c4n4ry"), BackendUnavailable("c4n4ry", took=True)], ids=str)
def test_handler_cannot_raise_a_sentence_as_ours(error: HandlerFault) -> None:
    """A sentence without a type may be logged."""
    with pytest.raises(HandlerFault) as caught:
        a_runner(raising(error))(CALL)
    assert not isinstance(caught.value, BackendUnavailable), "there is no backend"
    assert caught.value.origin.type == type(error).__name__


def backend_that(raises: BaseException, **options: Any) -> HandlerRunner:
    def call(_: Any) -> Any:
        raise raises

    class Code(SimpleNamespace):
        __call__ = staticmethod(call)

    code = Code(backend="b" * 40, kinds=frozenset({"*"}), origin_of=lambda _: Origin("ValueError"))
    return HandlerRunner(code, timeout=SOON * 100, hung=HungThreads(2), stopping=lambda: False, **options)


def test_backend_fault_is_passed_on_unchanged() -> None:
    for fault in (HandlerFault("It said 500."), BackendUnavailable("It said 503.", took=False)):
        with pytest.raises(HandlerFault) as caught:
            backend_that(fault)(CALL)
        assert (caught.value, caught.value.origin) == (fault, Origin())


def test_a_bug_on_the_way_to_a_backend_has_a_type_so_that_its_text_is_not_logged() -> None:
    with pytest.raises(HandlerFault, match="ValueError: c4n4ry") as caught:
        backend_that(ValueError("c4n4ry"))(CALL)
    assert caught.value.origin == Origin("ValueError")


def test_a_reply_that_fails_the_plan_has_a_type_so_that_its_sentence_is_not_logged() -> None:
    with pytest.raises(HandlerFault, match="Reply 1 cannot be sent") as caught:
        a_runner(lambda _: [""], all_or_nothing=True)(CALL)
    assert caught.value.origin == Origin("InvalidReply")


def test_exception_that_breaks_its_inspection_is_still_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Origin:
        raise RuntimeError

    monkeypatch.setattr(TeamFunction, "origin_of", broken)
    assert origin_of(raising(LookupError("x"))) == Origin("Exception")


# ---- a module that cannot be imported


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("key = 'c4n4ry'\nraise ValueError(key)", "ValueError at clinic_0.py:2"),
        ("import json\njson.loads('c4n4ry')", "JSONDecodeError at clinic_0.py:2"),
        ("\nimport nowhere_at_all", "ModuleNotFoundError at clinic_0.py:2: No module named 'nowhere_at_all'"),
        ("x = 1\ndef handle(:\n    pass", "SyntaxError at clinic_0.py:2: invalid syntax"),
    ],
)
def test_module_that_fails_at_import_is_reported_by_its_line(team: Write, source: str, why: str) -> None:
    with pytest.raises(HandlerNotFound) as caught:
        load_handler(team(source))
    assert str(caught.value) == f"HANDLER: the module clinic_0 cannot be imported ({why})."


def test_imported_module_that_fails_is_reported_by_its_own_line(team: Write) -> None:
    other = team("\n\n1 / 0").partition(":")[0]
    with pytest.raises(HandlerNotFound, match=rf"\(ZeroDivisionError at {other}\.py:3\)\.$"):
        load_handler(team(f"import {other}"))


def test_missing_module_is_named_without_a_line() -> None:
    with pytest.raises(HandlerNotFound, match=r"\(ModuleNotFoundError: No module named 'nowhere'\)\.$"):
        load_handler("nowhere:handle")


# ---- the traceback


def shown(capsys: pytest.CaptureFixture[str], handle: Callable[..., Any], is_shown: bool = True) -> str:
    runner = HandlerRunner(
        TeamFunction(handle, MOST),
        timeout=SOON * 100,
        hung=HungThreads(2),
        stopping=lambda: False,
        show_traceback=is_shown,
    )
    with pytest.raises((HandlerFault, Drop)):
        runner(CALL)
    said = capsys.readouterr()
    assert said.out == ""
    return said.err


def test_full_traceback_goes_to_standard_error_with_the_message_ids(
    capsys: pytest.CaptureFixture[str], team: Write
) -> None:
    said = shown(capsys, load_handler(team(BOOKING)))
    head, *rest = said.splitlines()
    assert head == f"The handler failed (event {'e' * 40}, correlation id corr_0001, attempt 1)."
    assert rest[0] == "Traceback (most recent call last):"
    assert '    return Booking().book("c4n4ry")' in rest
    assert rest[-1] == "KeyError: 'c4n4ry'"


def test_nothing_goes_to_standard_error_unless_it_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, raising(LookupError("c4n4ry")), is_shown=False) == ""
    with pytest.raises(HandlerFault):
        a_runner(raising(LookupError("c4n4ry")))(CALL)
    assert capsys.readouterr().err == ""


def test_a_drop_and_a_sentence_of_a_backend_leave_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, raising(Drop("spam"))) == ""
    with pytest.raises(HandlerFault):
        backend_that(HandlerFault("It said 500."), show_traceback=True)(CALL)
    assert capsys.readouterr().err == ""


def test_exception_that_cannot_be_shown_is_shown_by_its_type(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Unspeakable: <exception str() failed>" in shown(capsys, raising(Unspeakable()))


def test_failure_is_reported_even_when_standard_error_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    runner = HandlerRunner(
        TeamFunction(raising(LookupError("x")), MOST),
        timeout=SOON * 100,
        hung=HungThreads(2),
        stopping=lambda: False,
        show_traceback=True,
    )
    with pytest.raises(HandlerFault, match="LookupError: x"):
        runner(CALL)


def test_late_exception_of_an_overrun_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    held = threading.Event()

    def handle(_: Message) -> None:
        held.wait()
        raise LookupError("late")

    code = TeamFunction(handle, MOST)
    runner = HandlerRunner(code, timeout=SOON, hung=HungThreads(1), stopping=lambda: False, show_traceback=True)
    with pytest.raises(HandlerFault, match="took longer"):
        runner(CALL)
    held.set()
    until(lambda: not runner.exhausted)
    assert "LookupError: late" in capsys.readouterr().err
