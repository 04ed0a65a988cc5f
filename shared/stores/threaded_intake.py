"""The intake port on a store whose calls block: each call runs in a thread, and carries what came in meanwhile."""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

from shared.domain.counters import ProcessCounters
from shared.domain.deadline import FAILURE_SECONDS, Deadline
from shared.domain.events import ReceiptBlock
from shared.domain.record import Delivery
from shared.net.group_commit import GroupCommit, Portion
from shared.pipeline.intake import Created, Exists, NotedReceipt
from shared.pipeline.registry import Entry, EntryName
from shared.stores.entries import StoredEntry, entry_of, is_storable
from shared.stores.records import too_slow

R = TypeVar("R")

PORTION = Portion(items=200)
"""Records, receipts or entries in one call: one portion of SqliteIntake and of RedisIntake."""

_THREADS = 3
"""One for records, one for receipts and one for entries: each has one call in flight."""

_RARE_THREADS = 2
"""For pings, blocks of senders and counters. Their calls may wait for each other, and no POST for a ping."""

RARE_SECONDS = FAILURE_SECONDS
"""How long a ping, a block or counters wait for a thread and the store, so that a POST is answered in time."""


class BlockingStore(Protocol):
    """What a store needs for it, beside the methods of shared.pipeline.ports.Store. IntakeStore specifies them."""

    def create_all(self, records: Sequence[Delivery], deadline: Deadline) -> Sequence[Created | Exists | Exception]: ...
    def note_receipts(self, receipts: Sequence[NotedReceipt], deadline: Deadline) -> Sequence[bool | Exception]: ...
    def note_receipt_block(self, id: str, noted: ReceiptBlock) -> None: ...
    def keep_counters(self, counters: ProcessCounters) -> None: ...
    def stored_entries(self, names: Sequence[EntryName]) -> Sequence[StoredEntry | None]:
        """What is stored of each entry, in order. Raises StoreUnavailable."""
        ...

    def ping(self) -> None: ...
    def close(self) -> None: ...


class ThreadedIntake:
    """The ports `IntakeStore` and `IntakeRegistry`. It starts its threads on first use."""

    def __init__(self, store: BlockingStore) -> None:
        self._store = store
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="pombo-store")
        self._rare = ThreadPoolExecutor(_RARE_THREADS, thread_name_prefix="pombo-store-rare")
        self._records: GroupCommit[Delivery, Created | Exists] = GroupCommit(self._create, PORTION, too_slow)
        self._receipts: GroupCommit[NotedReceipt, bool] = GroupCommit(self._note, PORTION, too_slow)
        self._entries: GroupCommit[EntryName, StoredEntry | None] = GroupCommit(self._find, PORTION, too_slow)

    async def create_all(
        self, records: Sequence[Delivery], deadline: Deadline
    ) -> Sequence[Created | Exists | Exception]:
        return await self._records.submit(records, deadline)

    async def note_receipts(self, receipts: Sequence[NotedReceipt], deadline: Deadline) -> Sequence[bool | Exception]:
        return await self._receipts.submit(receipts, deadline)

    async def note_receipt_block(self, id: str, noted: ReceiptBlock) -> None:
        await self._rarely(lambda: self._store.note_receipt_block(id, noted))

    async def keep_counters(self, counters: ProcessCounters) -> None:
        await self._rarely(lambda: self._store.keep_counters(counters))

    async def entries(self, names: Sequence[EntryName], deadline: Deadline) -> Sequence[Entry | None]:
        asked = [name for name in dict.fromkeys(names) if is_storable(name)]
        found: dict[EntryName, Entry] = {}
        for name, stored in zip(asked, await self._entries.submit(asked, deadline), strict=True):
            if isinstance(stored, Exception):
                raise stored
            if stored is not None:
                found[name] = entry_of(stored)
        return [found.get(name) for name in names]

    async def ping(self) -> None:
        await self._rarely(self._store.ping)

    def close(self) -> None:
        """Also end the threads, once their calls are over."""
        for pool in (self._pool, self._rare):
            pool.shutdown(wait=False)
        self._store.close()

    async def _create(self, records: Sequence[Delivery]) -> Sequence[Created | Exists | Exception]:
        return await self._in_thread(lambda: self._store.create_all(records, Deadline.of_webhook(time.monotonic)))

    async def _note(self, receipts: Sequence[NotedReceipt]) -> Sequence[bool | Exception]:
        return await self._in_thread(lambda: self._store.note_receipts(receipts, Deadline.of_webhook(time.monotonic)))

    async def _find(self, names: Sequence[EntryName]) -> Sequence[StoredEntry | None]:
        return await self._in_thread(lambda: self._store.stored_entries(names))

    async def _in_thread(self, call: Callable[[], R]) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

    async def _rarely(self, call: Callable[[], None]) -> None:
        """Raises StoreUnavailable after RARE_SECONDS. A call that has begun goes on; one that waits never begins."""
        try:
            async with asyncio.timeout(RARE_SECONDS):
                await asyncio.get_running_loop().run_in_executor(self._rare, call)
        except TimeoutError:
            raise too_slow() from None
