"""A port for the tests of crash points: it is callable, and has a method and a property. Quick to import."""

from dataclasses import dataclass, field


@dataclass
class Port:
    calls: list[str] = field(default_factory=list)

    @property
    def exhausted(self) -> bool:
        return len(self.calls) > 1

    def handles(self, kind: str) -> bool:
        if kind == "broken":
            raise ValueError(kind)
        self.calls.append(kind)
        return True

    def __call__(self, *, word: str) -> str:
        self.calls.append(word)
        return word
