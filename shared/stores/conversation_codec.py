"""The codec of conversations, aliases and lanes: a plain dict that JSON can hold, and back. All stores share it.

Fields that a newer version of Pombo added to a conversation are kept when this one writes it. The codec leaves out the
id and the version: each store keeps those in its own way.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from shared.domain.conversations import Alias, Conversation, ConversationEntry, ConversationState, LaneEnd, SenderLane
from shared.domain.errors import UnknownState
from shared.stores.codec import Plain, as_moment, moment, moment_or_none

_NAMES = ("tenant", "provider", "sender", "contact", "unread", "assignee")
KNOWN = frozenset(
    {
        *("kind", "of", "aliases", "lost", "formerly"),
        *("last_inbound_at", "last_message_at", "last_outbound", "state", *_NAMES),
    }
)
"""The fields of all kinds that this version knows."""


def encode(entry: ConversationEntry) -> Plain:
    """The entry as plain values."""
    match entry:
        case Conversation():
            return {
                **entry.newer,
                "kind": "conversation",
                **{name: getattr(entry, name) for name in _NAMES},
                "aliases": sorted(entry.aliases),
                "lost": sorted(entry.lost),
                "formerly": list(entry.formerly),
                "last_inbound_at": moment_or_none(entry.last_inbound_at),
                "last_message_at": moment_or_none(entry.last_message_at),
                "last_outbound": _lane_end(entry.last_outbound),
                "state": entry.state.value,
            }
        case Alias():
            return {"kind": "alias", "of": entry.of}
        case SenderLane():
            return {"kind": "lane", "last_outbound": _lane_end(entry.last_outbound)}


def decode(id: str, plain: Mapping[str, Any], version: int | None) -> ConversationEntry:
    """The entry. Raises UnknownState if this version cannot read it."""
    try:
        match plain["kind"]:
            case "conversation":
                return _conversation(id, plain, version)
            case "alias":
                return Alias(id, _text(plain["of"]), version)
            case "lane":
                return SenderLane(id, _as_lane_end(plain["last_outbound"]), version)
            case _:
                raise UnknownState
    except (KeyError, TypeError, ValueError) as error:
        raise UnknownState from error


def _conversation(id: str, plain: Mapping[str, Any], version: int | None) -> Conversation:
    return Conversation(
        id=id,
        tenant=_text(plain["tenant"]),
        provider=_text(plain["provider"]),
        sender=_text(plain["sender"]),
        contact=_text(plain["contact"]),
        aliases=frozenset(map(_text, plain["aliases"])),
        lost=frozenset(map(_text, plain.get("lost", ()))),
        formerly=tuple(map(_text, plain["formerly"])),
        last_inbound_at=_time(plain["last_inbound_at"]),
        last_message_at=_time(plain["last_message_at"]),
        last_outbound=_as_lane_end(plain["last_outbound"]),
        unread=int(plain["unread"]),
        state=ConversationState(plain["state"]),
        assignee=None if plain["assignee"] is None else _text(plain["assignee"]),
        newer={name: value for name, value in plain.items() if name not in KNOWN},
        version=version,
    )


def _lane_end(end: LaneEnd | None) -> Plain | None:
    return None if end is None else {"key": end.key, "until": moment(end.until)}


def _as_lane_end(plain: Mapping[str, Any] | None) -> LaneEnd | None:
    return None if plain is None else LaneEnd(_text(plain["key"]), as_moment(plain["until"]))


def _time(text: str | None) -> datetime | None:
    return None if text is None else as_moment(text)


def _text(value: Any) -> str:
    """Raises TypeError for a value of another type: a damaged entry must not reach the rules."""
    if not isinstance(value, str):
        raise TypeError
    return value
