"""Handlers: how a team's function is found, called, and understood, whatever it does."""

import asyncio
import inspect
import itertools
import re
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from handlers import echo
from shared.domain.message_kinds import KINDS
from shared.domain.outbound.messages import InvalidReply
from shared.handlers import DEFAULT_KINDS, Contact, Drop, Message, OutboundMessage, handles
from shared.handlers.hung_threads import HungThreads
from shared.handlers.loader import HandlerNotFound, TeamFunction, load_handler
from shared.handlers.runner import ERROR_CHARACTERS, HandlerRunner
from shared.pipeline.ports import BackendUnavailable, HandlerCall, HandlerFault, HandlerInterrupted

MESSAGE = Message(
    kind="text",
    text="hello",
    id="wamid.1",
    contact=Contact("15550002222", phone="15550002222"),
    sender="100000000000001",
    tenant="default",
    received_at=datetime(2026, 3, 1, 12, tzinfo=UTC),
)
CALL = HandlerCall("e" * 40, "corr_0001", 1, MESSAGE)
MOST = 30
SOON = timedelta(milliseconds=20)
LONG = timedelta(seconds=30)


def a_runner(
    handle: Callable[..., Any],
    *,
    timeout: timedelta = LONG,
    threads: int = 2,
    stopping: Callable[[], bool] = lambda: False,
    **more: bool,
) -> HandlerRunner:
    return HandlerRunner(
        TeamFunction(handle, MOST), timeout=timeout, hung=HungThreads(threads), stopping=stopping, **more
    )


def texts(handle: Callable[..., Any]) -> list[str]:
    return [reply.content["body"] for reply in a_runner(handle)(CALL)]


def fault_of(handle: Callable[..., Any], **options: Any) -> str:
    with pytest.raises(HandlerFault) as caught:
        a_runner(handle, **options)(CALL)
    return str(caught.value)


def until(condition: Callable[[], bool]) -> None:
    """Wait until it is so, ten seconds at most."""
    for _ in range(1000):
        if condition():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it did not come about")


# ---- the loader


def test_a_handler_is_found_by_module_and_function() -> None:
    assert load_handler("handlers.echo:handle") is echo.handle


@pytest.fixture
def team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Writes a module of the team's; the name that loads its `handle`."""
    monkeypatch.syspath_prepend(tmp_path)
    numbers = itertools.count()

    def write(source: str) -> str:
        name = f"team_{next(numbers)}_{tmp_path.name.replace('-', '_')}"
        (tmp_path / f"{name}.py").write_text(source)
        monkeypatch.delitem(sys.modules, name, raising=False)
        return f"{name}:handle"

    return write


@pytest.mark.parametrize("name", ["", ":", "handlers.echo", "handlers.echo:", ":handle"])
def test_a_name_of_the_wrong_shape_is_refused_with_an_example(name: str) -> None:
    with pytest.raises(HandlerNotFound, match=r"module:function, like handlers\.echo:handle"):
        load_handler(name)


@pytest.mark.parametrize("name", ["handlers.nowhere:handle", "nowhere:handle", "..:handle"])
def test_missing_module_is_named(name: str) -> None:
    with pytest.raises(HandlerNotFound, match="cannot be imported"):
        load_handler(name)


@pytest.mark.parametrize("source", ["1 / 0", "this is no Python", "import nowhere_at_all", "raise RuntimeError('x')"])
def test_a_module_that_fails_is_not_found_either(team: Callable[[str], str], source: str) -> None:
    with pytest.raises(HandlerNotFound, match="cannot be imported"):
        load_handler(team(source))


@pytest.mark.parametrize("source", ["", "handle = 5", "handle = None"])
def test_object_that_is_not_callable_is_not_a_handler(team: Callable[[str], str], source: str) -> None:
    with pytest.raises(HandlerNotFound, match="has no function handle"):
        load_handler(team(source))


@pytest.mark.parametrize(
    "source",
    [
        "def handle(): ...",
        "def handle(message, context): ...",
        "def handle(*, message): ...",
        "def handle(message, *, context): ...",
        "def handle(**anything): ...",
        "async def handle(): ...",
        "class Handler:\n    def __call__(self): ...\nhandle = Handler()",
        "class Handler:\n    def handle(self, message): ...\nhandle = Handler.handle",
        "from os import getcwd as handle",
    ],
)
def test_function_that_does_not_take_one_message_is_refused(team: Callable[[str], str], source: str) -> None:
    name = team(source)
    module = name.partition(":")[0]
    with pytest.raises(HandlerNotFound) as caught:
        load_handler(name)
    assert str(caught.value) == f"HANDLER: the function handle of module {module} does not take one message."


@pytest.mark.parametrize(
    "source",
    [
        "def handle(message, /): ...",
        "def handle(message, context=None, *, more=None): ...",
        "def handle(*anything): ...",
        "async def handle(message): ...",
        "handle = lambda message: None",
        "class Handler:\n    def __call__(self, message): ...\nhandle = Handler()",
        "class Handler:\n    def handle(self, message): ...\nhandle = Handler().handle",
        "from functools import partial\nhandle = partial(lambda context, message: None, 'context')",
    ],
)
def test_any_callable_of_one_message_is_a_handler(team: Callable[[str], str], source: str) -> None:
    assert callable(load_handler(team(source)))


def test_decorator_can_supply_other_handler_arguments(team: Callable[[str], str]) -> None:
    source = """
import functools

def with_context(function):
    @functools.wraps(function)
    def wrapper(message):
        return function(message, "context")
    return wrapper

@with_context
def handle(message, context):
    return context
"""
    assert texts(load_handler(team(source))) == ["context"]


@pytest.mark.parametrize(
    "source",
    [
        "handle = iter",
        "class Handler:\n    __signature__ = 'none'\n    def __call__(self, message): ...\nhandle = Handler()",
    ],
)
def test_callable_without_a_signature_is_accepted(team: Callable[[str], str], source: str) -> None:
    handle = load_handler(team(source))
    with pytest.raises((TypeError, ValueError)):
        inspect.signature(handle)


# ---- kinds


def test_handler_is_called_for_the_default_kinds() -> None:
    runner = a_runner(lambda _: None)
    assert {kind for kind in (*DEFAULT_KINDS, "reaction", "unsupported", "system") if runner.handles(kind)} == set(
        DEFAULT_KINDS
    )


def test_handler_can_choose_its_kinds() -> None:
    @handles("text", "reaction")
    def handle(message: Message) -> str:
        return "yes"

    runner = a_runner(handle)
    assert [runner.handles(kind) for kind in ("text", "reaction", "media")] == [True, True, False]
    assert texts(handle) == ["yes"]


@pytest.mark.parametrize("kinds", [("*",), ("*", "text")])
def test_a_handler_of_every_kind_is_called_for_those_that_are_added_later_too(kinds: tuple[str, ...]) -> None:
    @handles(*kinds)
    def handle(message: Message) -> str:
        return "yes"

    assert all(a_runner(handle).handles(kind) for kind in (*KINDS, "a kind of tomorrow"))


@pytest.mark.parametrize(
    "kinds",
    [("txt",), ("text", "txt"), ("Text",), (" text",), ("",), (), ("voice",), (None,), (7,), (["text"],), (print,)],
)
def test_invalid_kind_is_refused_with_the_list_of_kinds(kinds: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError) as caught:
        handles(*kinds)
    start = f"@handles must name one or more of the kinds {', '.join(sorted(KINDS))}, or * for every kind"
    assert str(caught.value).startswith(start)


@pytest.mark.parametrize(
    ("kinds", "named"),
    [
        (("text", "reactoin"), '; it names "reactoin".'),
        (("txt", "Text"), '; it names "txt", "Text".'),
        ((print,), "; it names a builtin_function_or_method."),
        ((), "every kind."),
    ],
)
def test_invalid_kind_is_named(kinds: tuple[Any, ...], named: str) -> None:
    with pytest.raises(ValueError) as caught:
        handles(*kinds)
    assert str(caught.value).endswith(named)


@pytest.mark.parametrize("line", ["@handles('txt')", "@handles()", "@handles"])
def test_a_handler_of_no_kind_stops_the_start_with_the_kinds_there_are(team: Callable[[str], str], line: str) -> None:
    """The bare decorator would make its own inner function the handler, which answers nothing ever."""
    source = f"from shared.handlers import handles\n\n{line}\ndef handle(message): ...\n"
    with pytest.raises(HandlerNotFound) as caught:
        load_handler(team(source))
    assert str(caught.value).startswith("HANDLER: @handles must name one or more of the kinds button, contacts, ")
    assert re.search(r"\(\S+\.py:3\)\.$|\(\w+:3\)\.$", str(caught.value)), "the line of the decorator"


@pytest.mark.parametrize(
    "source",
    [
        "@handles('reaction')\ndef handle(message): ...",
        "class Handler:\n    @handles('reaction')\n    def __call__(self, message): ...\nhandle = Handler()",
        "class Handler:\n    @handles('reaction')\n    def on(self, message): ...\nhandle = Handler().on",
        "import functools\n@handles('reaction')\ndef on(context, message): ...\nhandle = functools.partial(on, 'c')",
        "import functools\n@handles('reaction')\ndef on(message): ...\n"
        "@functools.wraps(on)\ndef handle(message): return on(message)",
    ],
    ids=["function", "callable", "method", "partial", "wrapped"],
)
def test_a_handler_chooses_its_kinds_wherever_the_decorator_stands(team: Callable[[str], str], source: str) -> None:
    runner = a_runner(load_handler(team(f"from shared.handlers import handles\n{source}\n")))
    assert {kind for kind in KINDS if runner.handles(kind)} == {"reaction"}


# ---- every shape of answer


def generator(_: Message) -> Iterator[str | OutboundMessage]:
    yield "one"
    yield OutboundMessage.text("two")


async def coroutine(_: Message) -> list[str]:
    await asyncio.sleep(0)
    return ["one", "two"]


async def async_generator(_: Message) -> AsyncIterator[str]:
    yield "one"
    await asyncio.sleep(0)
    yield "two"


async def coroutine_of_an_async_generator(message: Message) -> AsyncIterator[str]:
    return async_generator(message)


async def coroutine_of_a_generator(message: Message) -> Iterator[str | OutboundMessage]:
    return generator(message)


class Handler:
    def __call__(self, _: Message) -> tuple[str, ...]:
        return ("one", "two")

    async def method(self, _: Message) -> tuple[str, ...]:
        return ("one", "two")


@pytest.mark.parametrize(
    "handle",
    [
        lambda _: ["one", "two"],
        lambda _: ("one", OutboundMessage.text("two")),
        lambda _: iter(["one", "two"]),
        lambda _: {"one": 1, "two": 2}.keys(),
        lambda _: map(str, ["one", "two"]),
        generator,
        coroutine,
        async_generator,
        coroutine_of_an_async_generator,
        coroutine_of_a_generator,
        Handler(),
        Handler().method,
    ],
)  # fmt: skip
def test_several_replies_come_in_their_order_however_they_are_given(handle: Callable[..., Any]) -> None:
    assert texts(handle) == ["one", "two"]


@pytest.mark.parametrize(
    "handle", [lambda _: "one", lambda _: OutboundMessage.text("one"), lambda _: ["one"], lambda _: {"one": 1}.keys()]
)
def test_a_single_reply_is_one_reply(handle: Callable[..., Any]) -> None:
    """A str is itself iterable, and is not taken for several."""
    assert texts(handle) == ["one"]


async def nothing_async(_: Message) -> None:
    return None


@pytest.mark.parametrize("handle", [lambda _: None, lambda _: [], lambda _: iter(()), nothing_async])
def test_no_reply_is_an_answer(handle: Callable[..., Any]) -> None:
    assert texts(handle) == []


@pytest.mark.parametrize(
    ("handle", "error"),
    [
        (lambda _: 5, "TypeError"),
        (lambda _: True, "TypeError"),
        (lambda _: b"bytes", "TypeError"),
        (lambda _: {"text": "x"}, "TypeError"),
        (lambda _: object(), "TypeError"),
        (lambda _: "", "ValueError"),
        (lambda _: "   ", "ValueError"),
        (lambda _: "x" * 4097, "ValueError"),
        (lambda _: "half a character \ud83d", "ValueError"),
        (lambda: "takes no message", "TypeError"),
    ],
)  # fmt: skip
def test_invalid_answer_counts_as_raised(handle: Callable[..., Any], error: str) -> None:
    assert fault_of(handle).startswith(f"{error}: ")


def test_a_fault_does_not_repeat_the_text_that_it_choked_on() -> None:
    """It is kept for the timeline; what it may hold of a message it has from the team's own words alone."""
    assert "c4n4ry" not in fault_of(lambda _: {"c4n4ry": "c4n4ry"}) + fault_of(lambda _: "c4n4ry " * 1000)
    (invalid,) = a_runner(lambda _: ["c4n4ry " * 1000])(CALL)
    assert isinstance(invalid, InvalidReply)
    assert "c4n4ry" not in invalid.sentence


# ---- an item that cannot be sent


def wrong_in_a_generator(_: Message) -> Iterator[Any]:
    yield from ("one", 5, "two")


async def wrong_in_an_async_generator(_: Message) -> AsyncIterator[Any]:
    for item in ("one", 5, "two"):
        yield item


async def wrong_in_a_list_of_a_coroutine(_: Message) -> list[Any]:
    return ["one", 5, "two"]


WRONG_IN_THE_MIDST = [
    lambda _: ["one", 5, "two"],
    lambda _: iter(("one", 5, "two")),
    wrong_in_a_generator,
    wrong_in_an_async_generator,
    wrong_in_a_list_of_a_coroutine,
]


@pytest.mark.parametrize("handle", WRONG_IN_THE_MIDST)
def test_an_item_that_cannot_be_sent_keeps_its_place_among_the_others(handle: Callable[..., Any]) -> None:
    invalid = InvalidReply("A reply is a str or an OutboundMessage, not int.", 5)
    assert a_runner(handle)(CALL) == [OutboundMessage.text("one"), invalid, OutboundMessage.text("two")]


@pytest.mark.parametrize("handle", WRONG_IN_THE_MIDST)
def test_a_plan_that_is_all_or_nothing_counts_as_raised(handle: Callable[..., Any]) -> None:
    said = fault_of(handle, all_or_nothing=True)
    assert said == "Reply 2 cannot be sent: A reply is a str or an OutboundMessage, not int."


def test_valid_plan_passes_all_or_nothing() -> None:
    assert len(a_runner(lambda _: ["one", "two"], all_or_nothing=True)(CALL)) == 2


class Strange:
    pass


UNSENDABLE: dict[str, tuple[Any, str, Any]] = {
    "nothing": (None, "A reply is a str or an OutboundMessage, not NoneType.", None),
    "a list": (["nested"], "A reply is a str or an OutboundMessage, not list.", ["nested"]),
    "a mapping": ({"type": "text"}, "A reply is a str or an OutboundMessage, not dict.", {"type": "text"}),
    "an empty text": (" ", "The text of a message is empty.", " "),
    "too long a text": ("x" * 5000, "The text of a message has 5000 characters; WhatsApp takes 4096.", "x" * 5000),
    "half a character": ("\ud83d", "The message has a lone surrogate (half a character).", None),
    "a NUL": ("a\0", "The message holds a NUL (U+0000); no text may have one.", None),
    "an object": (Strange(), "A reply is a str or an OutboundMessage, not Strange.", None),
    "no number": (float("nan"), "A reply is a str or an OutboundMessage, not float.", None),
    "more than a record holds": (["x" * 70_000], "A reply is a str or an OutboundMessage, not list.", None),
}


@pytest.mark.parametrize("name", UNSENDABLE)
def test_invalid_item_has_a_reason_and_is_stored_if_possible(name: str) -> None:
    item, sentence, given = UNSENDABLE[name]
    assert a_runner(lambda _: ["one", item])(CALL)[1] == InvalidReply(sentence, given)


def test_the_sentence_of_an_item_is_never_long() -> None:
    item = type("T" * 2000, (), {})()
    (invalid,) = a_runner(lambda _: [item])(CALL)
    assert isinstance(invalid, InvalidReply)
    assert len(invalid.sentence) == 500


def test_stored_item_is_a_copy() -> None:
    item = {"a": [1]}
    (invalid,) = a_runner(lambda _: [item])(CALL)
    item["a"].append(2)
    assert isinstance(invalid, InvalidReply)
    assert invalid.given == {"a": [1]}


def test_a_maker_that_raises_between_two_items_fails_the_handler() -> None:
    def handle(_: Message) -> Iterator[Any]:
        yield "one"
        yield OutboundMessage.text("")

    assert fault_of(handle) == "ValueError: The text of a message is empty."


def test_wrong_items_count_like_others() -> None:
    assert len(a_runner(lambda _: [5] * MOST)(CALL)) == MOST
    assert fault_of(lambda _: [5] * (MOST + 1)) == "ValueError: A handler may give 30 replies; this one gave more."


# ---- how many


def endless(_: Message) -> Iterator[str]:
    while True:
        yield "more"


async def endless_async(_: Message) -> AsyncIterator[str]:
    while True:
        yield "more"


def test_thirty_replies_are_accepted() -> None:
    assert len(texts(lambda _: ["more"] * MOST)) == MOST
    assert len(texts(lambda _: itertools.islice(endless(MESSAGE), MOST))) == MOST


@pytest.mark.parametrize("handle", [lambda _: ["more"] * (MOST + 1), endless, endless_async])
def test_more_than_thirty_replies_are_refused(handle: Callable[..., Any]) -> None:
    assert fault_of(handle) == "ValueError: A handler may give 30 replies; this one gave more."


# ---- what a handler raises


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def raising(error: BaseException) -> Callable[[Message], Any]:
    def handle(_: Message) -> Any:
        raise error

    return handle


def generator_raising(error: BaseException) -> Callable[[Message], Any]:
    def handle(_: Message) -> Iterator[str]:
        yield "one"
        raise error

    return handle


def coroutine_raising(error: BaseException) -> Callable[[Message], Any]:
    async def handle(_: Message) -> None:
        raise error

    return handle


each_way_to_raise = pytest.mark.parametrize("way", [raising, generator_raising, coroutine_raising])


@each_way_to_raise
def test_exception_becomes_a_fault_with_its_type_and_text(way: Callable[..., Any]) -> None:
    assert fault_of(way(LookupError("no such customer"))) == "LookupError: no such customer"


@each_way_to_raise
def test_a_drop_is_a_drop_however_late(way: Callable[..., Any]) -> None:
    with pytest.raises(Drop) as caught:
        a_runner(way(Drop("spam")))(CALL)
    assert caught.value.reason == "spam"


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), BaseException("base")])
def test_exit_in_a_handler_ends_only_its_call(error: BaseException) -> None:
    assert fault_of(raising(error)).startswith(f"{type(error).__name__}: ")


def test_exception_that_cannot_be_shown_is_still_a_fault() -> None:
    assert fault_of(raising(Unspeakable())) == "Unspeakable: (it cannot be shown)"


@pytest.mark.parametrize("said", ["half \ud83d", "\x00", "é" * 3000, "🙂" * 3000])
def test_stored_error_text_is_bounded_and_storable(said: str) -> None:
    fault = fault_of(raising(ValueError(said)))
    fault.encode()
    assert len(fault) <= ERROR_CHARACTERS


@pytest.mark.parametrize(
    ("reason", "kept"), [(5, "5"), (None, "None"), ("half \ud83d", "half ?"), ("x" * 9999, "x" * ERROR_CHARACTERS)]
)
def test_the_reason_of_a_drop_is_made_a_text_that_can_be_stored(reason: Any, kept: str) -> None:
    with pytest.raises(Drop) as caught:
        a_runner(raising(Drop(reason)))(CALL)
    assert caught.value.reason == kept


def test_a_drop_of_the_teams_own_kind_needs_no_reason() -> None:
    class Ours(Drop):
        def __init__(self) -> None:
            pass

    with pytest.raises(Drop) as caught:
        a_runner(raising(Ours()))(CALL)
    assert caught.value.reason == ""


# ---- time


@pytest.fixture
def held() -> Iterator[threading.Event]:
    """What a hanging handler waits for; set at the end of the test, so that no thread is left."""
    event = threading.Event()
    yield event
    event.set()


def test_a_handler_that_overruns_is_a_fault_and_counts_as_hung(held: threading.Event) -> None:
    runner = a_runner(lambda _: held.wait(), timeout=SOON, threads=1)
    with pytest.raises(HandlerFault, match=r"took longer than 0\.02 s") as caught:
        runner(CALL)
    assert not isinstance(caught.value, BackendUnavailable), "there is no backend"
    assert runner.exhausted


def test_no_call_starts_while_every_thread_hangs(held: threading.Event) -> None:
    called = []

    def handle(_: Message) -> None:
        called.append(True)
        held.wait()

    runner = a_runner(handle, timeout=SOON, threads=2)
    for hangs in (1, 2):
        with pytest.raises(HandlerFault, match="took longer"):
            runner(CALL)
        assert runner.exhausted is (hangs == 2)
    with pytest.raises(HandlerInterrupted):
        runner(CALL)
    assert len(called) == 2


def test_hung_call_that_returns_frees_its_thread(held: threading.Event) -> None:
    runner = a_runner(lambda _: held.wait() and "late", timeout=SOON, threads=1)
    with pytest.raises(HandlerFault):
        runner(CALL)
    held.set()
    until(lambda: not runner.exhausted)
    assert [reply.content["body"] for reply in runner(CALL)] == ["late"]


def test_hung_call_that_raises_frees_its_thread_too(held: threading.Event) -> None:
    def handle(_: Message) -> None:
        held.wait()
        raise SystemExit

    runner = a_runner(handle, timeout=SOON, threads=1)
    with pytest.raises(HandlerFault, match="took longer"):
        runner(CALL)
    held.set()
    until(lambda: not runner.exhausted)


def test_an_overrun_in_a_coroutine_is_an_overrun(held: threading.Event) -> None:
    async def handle(_: Message) -> None:
        await asyncio.to_thread(held.wait)

    assert "took longer" in fault_of(handle, timeout=SOON)


def test_calls_in_time_never_count_as_hung() -> None:
    runner = a_runner(lambda _: "yes", threads=1)
    for _ in range(50):
        runner(CALL)
    assert not runner.exhausted


def test_the_end_of_the_process_interrupts_the_wait(held: threading.Event) -> None:
    with pytest.raises(HandlerInterrupted):
        a_runner(lambda _: held.wait(), stopping=lambda: True)(CALL)


def test_finished_answer_is_returned_although_the_process_ends() -> None:
    """Its plan can still be committed: the work is done."""
    ended = threading.Event()

    def handle(_: Message) -> str:
        ended.set()
        return "done"

    def stopping() -> bool:
        ended.wait()
        return False

    assert [reply.content["body"] for reply in a_runner(handle, stopping=stopping)(CALL)] == ["done"]


def test_many_calls_at_once_each_get_their_own_answer() -> None:
    runner = a_runner(lambda message: message.text, threads=16)
    answers: dict[int, str] = {}

    def ask(number: int) -> None:
        (reply,) = runner(replace(CALL, message=replace(MESSAGE, text=str(number))))
        answers[number] = reply.content["body"]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {number: str(number) for number in range(32)}


# ---- the one that is there to start from


def test_echo_repeats_a_text_and_quotes_it() -> None:
    assert echo.handle(MESSAGE) == OutboundMessage.text("hello", reply_to="wamid.1")
