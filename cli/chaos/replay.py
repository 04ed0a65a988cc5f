"""The dead letters that nobody planned are replayed, by the code of `pombo dead replay`.

Those of which no copy can have arrived: what was in doubt is left to a person, and what was to be dead stays so.
"""

import os
from collections.abc import Collection

from cli.chaos.running_stack import Site
from cli.dead.parts import NEEDED, Deciding
from local.terminal import WrongSettings
from shared import config, logs
from shared.domain.dead_letters import DeadLetter, Wanted
from shared.operations import dead_letters
from shared.operations.dead_letters import Done

BAD_LUCK = Wanted(errors=frozenset({"attempts", "waited"}))
"""Why a message dies of it; the handler's errors and WhatsApp's refusals are the plan's."""


def replay(site: Site, planned: Collection[str]) -> int:
    """Replay all but those planned to be dead, by their keys; how many there were. Raises ClickException."""
    store = site.running.store
    letters = [letter for page in dead_letters.find(store, BAD_LUCK) for letter in page.letters]
    unplanned = [letter for letter in letters if letter.key not in planned]
    return sum(_replayed(site, unplanned)) if unplanned else 0


def _replayed(site: Site, letters: Collection[DeadLetter]) -> list[bool]:
    try:
        settings = config.load({**os.environ, **site.environment}, config.INTERNAL, only=NEEDED)
    except config.ConfigError as error:
        raise WrongSettings(error.faults) from error
    if site.running.logs is not None:
        logs.write_to(os.open(site.running.logs, os.O_WRONLY | os.O_APPEND))
    again = Deciding(site.running, settings).replay(may_double=False)
    return [again(letter.key).done is Done.REPLAYED for letter in letters]
