"""Progress on standard error: one line that changes on a terminal, otherwise one line per round."""

import sys
import time


class Progress:
    """Counts steps, and estimates the time left from those that are done."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._done = 0
        self._began: float | None = None
        self._is_terminal = sys.stderr.isatty()
        self._last_part = ""

    def step(self, part: str, what: str) -> None:
        """The next step begins. `part` changes seldom."""
        if self._began is None:
            self._began = time.monotonic()
        elapsed = time.monotonic() - self._began
        left = elapsed / self._done * (self._steps - self._done) if self._done else 0.0
        self._done += 1
        times = f"{_clock(elapsed)} passed" + (f", about {_clock(left)} left" if left else "")
        if self._is_terminal:
            print(f"\r\033[K{part}: {what} ({times})", end="", file=sys.stderr, flush=True)
        elif part != self._last_part:
            print(f"{part} ({times})", file=sys.stderr, flush=True)
        self._last_part = part

    def say(self, sentence: str) -> None:
        """A line that stays."""
        self.clear()
        print(f"• {sentence}", file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self._is_terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
