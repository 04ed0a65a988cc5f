"""Calls at one moment, each in a thread of its own."""

import threading
from collections.abc import Callable, Sequence
from typing import Any


def together(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """The results (or errors) of all calls, begun at one moment in as many threads."""
    gate = threading.Barrier(len(calls))
    results: list[Any] = [None] * len(calls)

    def run(index: int) -> None:
        gate.wait()
        try:
            results[index] = calls[index]()
        except Exception as error:
            results[index] = error

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
