"""The intake port on Firestore, over REST: what comes in during a call goes out with the next one.

The rules of the documents are those of `FirestoreStore`, which the other services use on the same database.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from shared.domain.counters import ProcessCounters
from shared.domain.deadline import FAILURE_SECONDS, Deadline
from shared.domain.errors import StoreUnavailable, UnknownState
from shared.domain.events import ReceiptBlock
from shared.domain.limits import Limits
from shared.domain.record import Delivery
from shared.net.group_commit import GroupCommit, InFlight, Portion
from shared.net.patience import Patience
from shared.net.rest_client import NoToken, Token
from shared.pipeline.intake import Created, Exists, NotedReceipt
from shared.pipeline.registry import Entry, EntryName
from shared.stores.entries import is_storable
from shared.stores.firestore import rest_json
from shared.stores.firestore.batches import BATCH_SECONDS, Made, write_each
from shared.stores.firestore.counters import keeping_counters
from shared.stores.firestore.entries import entry_in, entry_name
from shared.stores.firestore.receipts import Notes, noting_block
from shared.stores.firestore.records import (
    Document,
    echoed_in,
    id_hash_of,
    receipts_name,
    record_name,
    record_of,
    unechoed_in,
)
from shared.stores.firestore.rest import FirestoreRest
from shared.stores.firestore.rest_json import JsonWrite
from shared.stores.records import portions, too_slow, with_receipts

R = TypeVar("R")

PORTION = Portion(items=500, bytes=3 * 1024 * 1024)
"""What Firestore takes at most; a request may have 10 MiB, but the emulator takes 4."""

IN_FLIGHT = InFlight(most=4, prompt=1)
"""Batches at once. With more of them each carries fewer writes, which costs more processor time."""

READ_TOGETHER = 100
"""Documents in one read of what exists already."""

ENTRIES_TOGETHER = Portion(items=READ_TOGETHER)
"""Entries of the registry in one read."""

AT_A_TIME = 50
"""Items that are encoded before other requests get their turn: some milliseconds."""

_CREATED: Created | Exists = Created()
_PROBE = record_name("ping")
"""A document that never exists: asking for it costs one read."""


class FirestoreIntake:
    """The ports `IntakeStore` and `IntakeRegistry` on one Firestore database. It connects on first use."""

    def __init__(
        self,
        project: str,
        database: str,
        limits: Limits,
        clock: Callable[[], datetime],
        token: Token | None = None,
        emulator: str | None = None,
    ) -> None:
        self._rest = FirestoreRest(project, database, emulator, token or NoToken())
        self._limits = limits
        self._clock = clock
        self._writes: GroupCommit[JsonWrite, Made] = GroupCommit(
            self._write, PORTION, too_slow, size_of=lambda write: write.size, in_flight=IN_FLIGHT, longest=BATCH_SECONDS
        )
        self._entries: GroupCommit[str, Document | None] = GroupCommit(
            self._read_entries, ENTRIES_TOGETHER, too_slow, in_flight=IN_FLIGHT, longest=FAILURE_SECONDS
        )

    async def create_all(
        self, records: Sequence[Delivery], deadline: Deadline
    ) -> Sequence[Created | Exists | Exception]:
        """Exists may refer to this same call, if a write whose answer was lost was retried."""
        results: dict[int, Created | Exists | Exception] = {}
        writes: dict[int, JsonWrite] = {}
        for place, record in enumerate(records):
            if _is_others_turn(place):
                await asyncio.sleep(0)
            try:
                writes[place] = rest_json.creating(record, self._rest.root)
            except (TypeError, ValueError) as error:
                results[place] = error
        await self._settle(writes, results, _CREATED, self._existing, deadline)
        return [results[place] for place in range(len(records))]

    async def note_receipts(self, receipts: Sequence[NotedReceipt], deadline: Deadline) -> Sequence[bool | Exception]:
        """The receipts of one message are one write."""
        merged = Notes(self._clock() + self._limits.receipt_retention)
        for place, noted in enumerate(receipts):
            if _is_others_turn(place):
                await asyncio.sleep(0)
            merged.add(place, noted)
        notes = [note for layer in merged.layers() for note in layer]
        results: dict[int, bool | Exception] = {}
        writes: dict[int, JsonWrite] = {}
        for place, note in enumerate(notes):
            if _is_others_turn(place):
                await asyncio.sleep(0)
            writes[place] = rest_json.write_of(note.write, self._rest.root)
        await self._settle(writes, results, True, _unknown, deadline)
        by_receipt = {receipt: results[place] for place, note in enumerate(notes) for receipt in note.places}
        return [by_receipt[place] for place in range(len(receipts))]

    async def note_receipt_block(self, id: str, noted: ReceiptBlock) -> None:
        """A blind write, which may be made twice."""
        write = rest_json.write_of(noting_block(id, noted), self._rest.root)
        await self._rest.commit(write, self._rest.patience(FAILURE_SECONDS))

    async def keep_counters(self, counters: ProcessCounters) -> None:
        """A blind write, which may be made twice. Encoding the counts of 200 tenants takes a thread for some 10 ms."""
        write = await asyncio.to_thread(lambda: rest_json.write_of(keeping_counters(counters), self._rest.root))
        await self._rest.commit(write, self._rest.patience(FAILURE_SECONDS))

    async def entries(self, names: Sequence[EntryName], deadline: Deadline) -> Sequence[Entry | None]:
        """One call, which those who ask meanwhile share."""
        asked = {name: entry_name(name) for name in names if is_storable(name)}
        found: dict[EntryName, Entry] = {}
        for name, document in zip(asked, await self._entries.submit([*asked.values()], deadline), strict=True):
            if isinstance(document, Exception):
                raise document
            if document is not None:
                found[name] = entry_in(name, document)
        return [found.get(name) for name in names]

    async def ping(self) -> None:
        await self._rest.read([_PROBE], self._rest.patience())

    def close(self) -> None:
        """No other call may follow."""
        self._rest.close()

    async def _write(self, writes: Sequence[JsonWrite]) -> Sequence[Made | Exception]:
        return await write_each(self._rest, writes)

    async def _read_entries(self, names: Sequence[str]) -> Sequence[Document | None]:
        found = await self._rest.read([*dict.fromkeys(names)], self._rest.patience(FAILURE_SECONDS))
        return [found.get(name) for name in names]

    async def _settle(
        self,
        writes: dict[int, JsonWrite],
        results: dict[int, R | Exception],
        written: R,
        of_refused: Callable[[Sequence[str], Patience, Deadline], Awaitable[Mapping[str, R | Exception]]],
        deadline: Deadline,
    ) -> None:
        """Make the writes, and note the result of each by its place. `of_refused` gets the names of the refused ones
        and returns the results that it knows; the others are written again. A round without any result counts as a
        failure, after which the earlier deadline holds until there is one.
        """
        patience: Patience | None = None
        within = deadline
        while writes:
            before = len(writes)
            made = await self._writes.submit([*writes.values()], within)
            refused = _settled(writes, results, written, made)
            if not writes:
                return
            patience = patience or self._rest.patience()
            known = await of_refused(refused, patience, within) if refused else {}
            for place, write in [*writes.items()]:
                if write.name in known:
                    results[place] = known[write.name]
                    del writes[place]
            within = deadline if len(writes) < before else replace(deadline, healthy=deadline.failing)
            if writes and (error := await self._pause(patience, within)):
                results |= dict.fromkeys(writes, error)
                return

    async def _pause(self, patience: Patience, deadline: Deadline) -> StoreUnavailable | None:
        """Wait before the next round. Returns an error if there is no time for one."""
        try:
            async with asyncio.timeout(max(0.0, deadline.left())):
                await self._rest.pause(patience, _NotWrittenYet())
        except TimeoutError:
            return too_slow()
        except StoreUnavailable as error:
            return error
        return None

    async def _existing(
        self, names: Sequence[str], patience: Patience, deadline: Deadline
    ) -> Mapping[str, Created | Exists | Exception]:
        """What exists of these; one that was deleted meanwhile is missing."""
        try:
            async with asyncio.timeout(max(0.0, deadline.left())):
                return await self._read_existing(names, patience)
        except TimeoutError:
            return dict.fromkeys(names, too_slow())
        except StoreUnavailable as error:
            return dict.fromkeys(names, error)

    async def _read_existing(self, names: Sequence[str], patience: Patience) -> Mapping[str, Exists]:
        documents = await self._read(names, patience)
        records: dict[str, Delivery | None] = {}
        for name, document in documents.items():
            try:
                records[name] = record_of(document)
            except UnknownState:
                records[name] = None
        hashes = {id_hash_of(record) for record in records.values() if record}
        unechoed = await self._read([receipts_name(id_hash) for id_hash in hashes if id_hash], patience)
        return {name: Exists(record and _joined(record, documents[name], unechoed)) for name, record in records.items()}

    async def _read(self, names: Sequence[str], patience: Patience) -> dict[str, Document]:
        if not names:
            return {}
        parts = await asyncio.gather(*(self._rest.read(part, patience) for part in portions(names, READ_TOGETHER)))
        return {name: document for part in parts for name, document in part.items()}


def _is_others_turn(place: int) -> bool:
    """Whether other requests have their turn before this item of a POST."""
    return place > 0 and place % AT_A_TIME == 0


def _settled(
    writes: dict[int, JsonWrite], results: dict[int, R | Exception], written: R, made: Sequence[Made | Exception]
) -> list[str]:
    """Moves the writes with a result to `results`, and returns the names of the refused ones."""
    refused: list[str] = []
    for (place, write), one in zip([*writes.items()], made, strict=True):
        if one is Made.REFUSED:
            refused.append(write.name)
        elif one is not Made.TRY_AGAIN:
            results[place] = written if one is Made.WRITTEN else one
            del writes[place]
    return refused


class _NotWrittenYet(Exception):
    """Some writes of a batch failed transiently."""


def _joined(record: Delivery, document: Document, unechoed: Mapping[str, Document]) -> Delivery:
    """The record with its receipts. Those without an echo are found by the provider's id."""
    id_hash = id_hash_of(record)
    apart = unechoed.get(receipts_name(id_hash)) if id_hash else None
    return with_receipts(record, echoed_in(document), unechoed_in(apart) if apart else ())


async def _unknown(names: Sequence[str], _: Patience, __: Deadline) -> Mapping[str, bool | Exception]:
    """A receipt is refused only if its record does not exist."""
    return dict.fromkeys(names, False)
