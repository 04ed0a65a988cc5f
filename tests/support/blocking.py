"""An intake, called like a store or a queue that blocks: its calls run on an event loop in a thread of their own."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any


class Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, call: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(call, self._loop).result(60)

    def close(self) -> None:
        self.run(_rest())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Blocking:
    """The methods of an intake that are coroutines, as methods that block. Any thread may call them."""

    def __init__(self, intake: Any) -> None:
        self.intake = intake
        self._loop = Loop()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.intake, name)
        return (lambda *given: self._loop.run(method(*given))) if asyncio.iscoroutinefunction(method) else method

    def close(self) -> None:
        async def close() -> None:
            self.intake.close()

        self._loop.run(close())
        self._loop.close()


class WithIntake:
    """A store with the methods of an intake on the same data. `ping` is the store's."""

    INTAKE = frozenset({"create_all", "note_receipts", "note_receipt_block"})

    def __init__(self, store: Any, intake: Any) -> None:
        self.store = store
        self.intake = Blocking(intake)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.intake if name in self.INTAKE else self.store, name)

    def close(self) -> None:
        self.intake.close()
        self.store.close()


async def _rest() -> None:
    """End the calls that are still in flight, and give closed connections the turns of the loop that they need."""
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    for _ in range(3):
        await asyncio.sleep(0)
