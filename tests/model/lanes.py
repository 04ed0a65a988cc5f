"""Lanes: the entries of conversations as the scripted store keeps them, and what must hold of who waits for whom."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from shared.domain.conversations import Conversation, ConversationEntry, LaneEnd, SenderLane
from shared.domain.delivery.answers import Step
from shared.domain.record import Delivery
from shared.domain.tenants import Order
from tests.model.setting import Setting
from tests.model.world import FUTURE, PAST, Frozen, World, passed_or_not

Entries = frozenset[ConversationEntry]

# ---- the store


def read(entries: Entries, ids: Sequence[str]) -> tuple[ConversationEntry, ...]:
    """What is stored under the ids, each with its version."""
    found = sorted((entry for entry in entries if entry.id in ids), key=lambda entry: entry.id)
    return tuple(replace(entry, version=_version(entry)) for entry in found)


def is_changed(entries: Entries, written: Iterable[ConversationEntry]) -> bool:
    """Whether one of those to be written is not as it was read."""
    stored = {entry.id: _version(entry) for entry in entries}
    return any(stored.get(entry.id) != entry.version for entry in written)


def with_entries(entries: Entries, written: Iterable[ConversationEntry]) -> Entries:
    """The entries with what is written, without what no rule asks for."""
    new = {entry.id: _normal(entry) for entry in written}
    return frozenset(entry for entry in entries if entry.id not in new) | frozenset(new.values())


def given_up(entries: Entries, key: str) -> Entries:
    """The entries once the give_up_at of this message has passed."""
    return frozenset(_at(entry, PAST) if end_of(entry) == LaneEnd(key, FUTURE) else entry for entry in entries)


def end_of(entry: ConversationEntry) -> LaneEnd | None:
    """The end of the lane that it has."""
    return entry.last_outbound if isinstance(entry, Conversation | SenderLane) else None


def _version(entry: ConversationEntry) -> int:
    """What is equal is one version; that time passes makes no other."""
    return hash(_at(entry, FUTURE))


def _normal(entry: ConversationEntry) -> ConversationEntry:
    if isinstance(entry, Conversation):
        entry = replace(entry, last_inbound_at=None, last_message_at=None, newer=Frozen())
    end = end_of(entry)
    until = passed_or_not(end.until) if end else None
    return replace(_at(entry, until) if until else entry, version=None)


def _at(entry: ConversationEntry, until: object) -> ConversationEntry:
    end = end_of(entry)
    return replace(entry, last_outbound=replace(end, until=until)) if end else entry  # type: ignore[call-arg, arg-type]


# ---- the order in which messages took their places: the world's own


def after_commit(setting: Setting, world: World, found: Delivery | None, stored: Sequence[Delivery]) -> World:
    """The world once these were stored: those that have a place in a lane have it from here on."""
    lanes = dict(enumerate(world.lanes))
    for record in stored:
        place = setting.place(record.key)
        is_joining = found is not None and found.key == record.key
        if not setting.is_message(place) or (is_joining and record.joins_lane_later == found.joins_lane_later):  # type: ignore[union-attr]
            continue
        lane = setting.lane_numbers[place]
        if place not in lanes[lane] and (is_joining or not setting.is_later(place)):
            lanes[lane] = (*lanes[lane], place)
    return world._replace(lanes=tuple(lanes.values()))


def in_order(setting: Setting, world: World, place: int) -> tuple[int, ...]:
    """The places in the lane of this message."""
    return world.lanes[setting.lane_numbers[place]]


def is_apart(world: World, lane: Sequence[int], one: int, other: int) -> bool:
    """Whether of two places in a lane the later one does not wait for the earlier one: a message between them went
    before its predecessor had ended, or came when that was given up.
    """
    first, last = sorted((lane.index(one), lane.index(other)))
    between = lane[first + 1 : last + 1]
    rows = (world.rows[place] for place in between)
    return any(row and (row.record.overtook or row.record.after is None) for row in rows)


# ---- the invariants


def of_lanes(setting: Setting, world: World) -> str | None:
    """What must hold at any moment: each message waits for the one that took its place before it."""
    for place, row in enumerate(world.rows):
        if row is None or not setting.is_message(place):
            continue
        name, lane = setting.names[place], in_order(setting, world, place)
        is_outside = place not in lane
        if row.record.after == row.record.key:
            return f"lanes: {name} waits for itself"
        if is_outside != row.record.joins_lane_later:
            return f"lanes: {name} is left outside its lane" if is_outside else f"lanes: {name} will join twice"
        if fault := None if is_outside else _of_place(setting, world, lane, place, row.record.after):
            return fault
    return _of_ends(setting, world) if setting.order and setting.lanes else None


def _of_place(setting: Setting, world: World, lane: Sequence[int], place: int, after: str | None) -> str | None:
    number = lane.index(place)
    before = lane[number - 1] if number else None
    expected = None if before is None else setting.keys[before]
    is_cut = after is None and before is not None and world.gave_up[before] >= 0
    if after == expected or is_cut:
        return None
    for other in lane:
        there = world.rows[other]
        if after is not None and other != place and there is not None and there.record.after == after:
            return f"lanes: {setting.names[place]} and {setting.names[other]} wait for the same message"
    words = [setting.name_of(key) if key else "nobody" for key in (after, expected)]
    return f"lanes: {setting.names[place]} waits for {words[0]} instead of {words[1]}"


def _of_ends(setting: Setting, world: World) -> str | None:
    """The last place of every lane is what the next message will find."""
    kind = SenderLane if setting.order is Order.SENDER else Conversation
    ends = {end.key for entry in world.entries if isinstance(entry, kind) and (end := end_of(entry))}
    last = {setting.keys[lane[-1]] for lane in world.lanes if lane}
    if ends == last:
        return None
    names = (", ".join(sorted(map(setting.name_of, keys))) or "nobody" for keys in (ends, last))
    return "lanes: the last message is said to be {}, and is {}".format(*names)


def of_entries(
    setting: Setting,
    seen: Sequence[ConversationEntry],
    stored: Sequence[Delivery],
    written: Sequence[ConversationEntry],
) -> str | None:
    """What must hold of a commit: it follows what its worker has read of the conversation, and the lane of a sender is
    written only with a message that takes a place in it.
    """
    past = {end.key for entry in seen if (end := end_of(entry)) and end.until == PAST}
    for record in stored:
        if record.after in past:
            assert record.after is not None
            return f"lanes: {setting.name_of(record.key)} waits for {setting.name_of(record.after)}, which is given up"
    has_message = any(
        setting.is_message(setting.place(record.key)) and not record.joins_lane_later for record in stored
    )
    if not has_message and any(isinstance(entry, SenderLane) for entry in written):
        return "lanes: the lane of a sender is written without a message"
    return None


def records_of(step: Step) -> Sequence[Delivery]:
    """What a step stores."""
    return (*step.create, *((step.write,) if step.write else ()))
