"""An intake, called like a store or a queue that blocks: its calls run on the event loop of the tests."""

import asyncio
from typing import Any

from tests.support import event_loop


class Blocking:
    """The methods of an intake that are coroutines, as methods that block. Any thread may call them."""

    def __init__(self, intake: Any) -> None:
        self.intake = intake

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.intake, name)
        return (lambda *given: event_loop.run(method(*given))) if asyncio.iscoroutinefunction(method) else method

    def close(self) -> None:
        """On the event loop, as the server closes its parts."""

        async def close() -> None:
            self.intake.close()

        event_loop.run(close())


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
