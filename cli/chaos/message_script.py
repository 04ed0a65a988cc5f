"""A script: what a chaos message tells the handler to do, in the message's own text.

The handler and the audit both read it, so the audit knows the right result without asking Pombo.

    pigeon 000017 tbl 120 2      replies: a text, buttons, a location; 120 ms; the first two attempts raise
    pigeon 000018 t 0 always     every attempt raises
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

CANARY = "pigeon"
"""Part of every text, received and sent: no log line may hold it."""

ALWAYS = "always"


@dataclass(frozen=True, slots=True)
class ScriptedReply:
    """One reply as WhatsApp must receive it: Meta's type, and the object of that type."""

    type: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Script:
    """`kinds` has a letter for each reply. `raises` is how many attempts raise; None: all of them."""

    number: int
    kinds: str
    milliseconds: int
    raises: int | None

    @classmethod
    def of(cls, text: str) -> "Script":
        _, number, kinds, milliseconds, raises = text.split()
        return cls(int(number), kinds, int(milliseconds), None if raises == ALWAYS else int(raises))

    @property
    def text(self) -> str:
        raises = ALWAYS if self.raises is None else self.raises
        return f"{CANARY} {self.number:06} {self.kinds} {self.milliseconds} {raises}"

    @property
    def replies(self) -> list[ScriptedReply]:
        return [_reply(kind, self.number, place) for place, kind in enumerate(self.kinds, start=1)]


def _reply(kind: str, number: int, place: int) -> ScriptedReply:
    """Every reply of a run differs from every other, whatever its kind."""
    words = f"{CANARY} {number:06} — nº {place} 🕊"
    match kind:
        case "t":
            return ScriptedReply("text", {"body": words})
        case "l":
            return ScriptedReply("location", {"latitude": place, "longitude": number / 10_000, "name": words})
        case "b":
            buttons = [{"type": "reply", "reply": {"id": f"{number}-{place}", "title": "Sim"}}]
            return ScriptedReply(
                "interactive", {"type": "button", "body": {"text": words}, "action": {"buttons": buttons}}
            )
        case _:
            raise ValueError(f"a script knows the replies t, l and b, not {kind}")
