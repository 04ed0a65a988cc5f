"""Message kinds: the kinds of a customer's message, and how a handler names those that it accepts."""

from collections.abc import Collection, Iterable

DEFAULT_KINDS = frozenset({"text", "media", "location", "contacts", "interactive", "button", "order"})
"""The kinds a handler is called for by default: those that expect an answer."""

KINDS = DEFAULT_KINDS | {"reaction", "request_welcome", "system", "edit", "revoke", "unsupported"}
"""Every kind. A message has what its kind says: a `media` message has media, a `text` message has text."""

EVERY_KIND = "*"
"""Names all kinds, including those that later versions add."""


class UnknownKind(ValueError):
    """A name is not a kind of message. The error's text completes a sentence about the place of the name; `wrong` holds
    the wrong names, if any.
    """

    def __init__(self, wrong: tuple[object, ...] = ()) -> None:
        kinds = ", ".join(sorted(KINDS))
        super().__init__(f"must name one or more of the kinds {kinds}, or {EVERY_KIND} for every kind")
        self.wrong = wrong


def kinds_named(names: Iterable[object]) -> frozenset[str]:
    """The kinds by these names; EVERY_KIND stands for itself. Raises UnknownKind, which lists all kinds."""
    given = tuple(names)
    named = frozenset(name for name in given if isinstance(name, str) and (name in KINDS or name == EVERY_KIND))
    wrong = tuple(name for name in given if not isinstance(name, str) or name not in named)
    if wrong or not given:
        raise UnknownKind(wrong)
    return named


def includes(kinds: Collection[str], kind: str) -> bool:
    """Whether a handler of these kinds is called for a message of this kind."""
    return EVERY_KIND in kinds or kind in kinds
