"""The loader: imports the handler that `module:function` names, and reads its answers of every shape."""

import asyncio
import importlib
import inspect
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from shared.domain.message_kinds import DEFAULT_KINDS
from shared.domain.messages import Message
from shared.domain.outbound.messages import InvalidReply, OutboundMessage, PlanItem
from shared.domain.verdicts import Origin
from shared.handlers import KINDS_ATTRIBUTE, WrongKinds, origin
from shared.pipeline.ports import HandlerCall


class HandlerNotFound(Exception):
    """HANDLER does not name a function of one message. The sentence says what is missing."""


def load_handler(name: str) -> Callable[[Message], Any]:
    """The function that `module:function` names. Raises HandlerNotFound."""
    module_name, colon, function_name = name.partition(":")
    if not (module_name and colon and function_name):
        raise HandlerNotFound(f"HANDLER is module:function, like handlers.echo:handle, not {name!r}.")
    package = module_name.partition(".")[0]
    try:
        module = importlib.import_module(module_name)
    except WrongKinds as error:
        place = origin.of_exception(error, package).place
        where = f" ({place})" if place else ""
        raise HandlerNotFound(f"HANDLER: {str(error).removesuffix('.')}{where}.") from error
    except Exception as error:
        why = _why(error, package)
        raise HandlerNotFound(f"HANDLER: the module {module_name} cannot be imported ({why}).") from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise HandlerNotFound(f"HANDLER: the module {module_name} has no function {function_name}.")
    if not _takes_one_message(function):
        raise HandlerNotFound(
            f"HANDLER: the function {function_name} of module {module_name} does not take one message."
        )
    handle: Callable[[Message], Any] = function
    return handle


def _why(error: Exception, package: str) -> str:
    """What is wrong with a module, and in which line. It repeats only the interpreter's messages: others may quote a
    secret.
    """
    place = origin.of_syntax(error) if isinstance(error, SyntaxError) else origin.of_exception(error, package).place
    what = f"{type(error).__name__} at {place}" if place else type(error).__name__
    match error:
        case SyntaxError():
            return f"{what}: {error.msg}"
        case ImportError():
            return f"{what}: {error}"
        case _:
            return what


def _takes_one_message(function: Callable[..., Any]) -> bool:
    """Whether one positional argument is enough. True if there is no signature, as for some functions in C."""
    try:
        # Not the wrapped function's signature: the decorator may supply other arguments.
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError, NameError, AttributeError):  # the last two: Python 3.14 evaluates annotations here
        return True
    try:
        signature.bind(None)
    except TypeError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class TeamFunction:
    """The team's handler in this process, sync or async."""

    handle: Callable[[Message], Any]
    max_replies: int

    @property
    def backend(self) -> None:
        """None: it runs in this process."""

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds from @handles, otherwise the default ones.

        The decorator may be on the function, on one that a partial calls, or on a class's __call__.
        """
        places = (self.handle, getattr(self.handle, "func", None), type(self.handle).__call__)
        asked = (getattr(place, KINDS_ATTRIBUTE, None) for place in places)
        return next((kinds for kinds in asked if isinstance(kinds, frozenset)), DEFAULT_KINDS)

    def origin_of(self, error: BaseException) -> Origin:
        return origin.of_exception(error, self._package, self.handle)

    def origin_in(self, thread: int | None) -> Origin:
        return origin.of_running(sys._current_frames().get(thread or 0), self._package)

    @property
    def _package(self) -> str:
        return str(getattr(self.handle, "__module__", None) or type(self.handle).__module__).partition(".")[0]

    def __call__(self, call: HandlerCall) -> list[PlanItem]:
        """Call it and read its answer. Raises what it raises, and TypeError or ValueError for an invalid answer: not a
        reply or several, more than allowed, or a single text that cannot be sent.
        """
        result = self.handle(call.message)
        if inspect.isawaitable(result):
            result = asyncio.run(_awaited(result, self.max_replies))
        elif isinstance(result, AsyncIterator):
            result = asyncio.run(_collected(result, self.max_replies))
        return _replies(result, self.max_replies)


async def _awaited(result: Any, at_most: int) -> Any:
    value = await result
    return await _collected(value, at_most) if isinstance(value, AsyncIterator) else value


async def _collected(items: AsyncIterator[Any], at_most: int) -> list[Any]:
    collected = []
    async for item in items:
        collected.append(item)
        if len(collected) > at_most:
            break
    return collected


def _replies(result: Any, at_most: int) -> list[PlanItem]:
    if result is None:
        return []
    if isinstance(result, str | OutboundMessage):
        return [_reply(result)]  # raises if invalid: no other reply is affected, and a retry may return a valid one
    if isinstance(result, bytes | Mapping) or not isinstance(result, Iterable):
        raise TypeError(f"A handler gives None, str, OutboundMessage or several of them, not {type(result).__name__}.")
    replies = [_item(item) for item in islice(result, at_most + 1)]
    if len(replies) > at_most:
        raise ValueError(f"A handler may give {at_most} replies; this one gave more.")
    return replies


def _item(item: Any) -> PlanItem:
    """One of several replies: one that cannot be sent keeps its place."""
    try:
        return _reply(item)
    except (TypeError, ValueError) as error:
        return InvalidReply.of(item, error)


def _reply(item: Any) -> OutboundMessage:
    if isinstance(item, OutboundMessage):
        return item
    if isinstance(item, str):
        return OutboundMessage.text(item)
    raise TypeError(f"A reply is a str or an OutboundMessage, not {type(item).__name__}.")
