"""Wrong settings, as the command line says them: one line for each fault."""

from collections.abc import Iterable

import click


class WrongSettings(click.ClickException):
    """The environment cannot be used. `faults` are sentences, one for each line on standard error."""

    def __init__(self, faults: Iterable[str]) -> None:
        self.faults = tuple(faults)
        super().__init__(" ".join(self.faults))
