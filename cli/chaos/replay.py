"""Replay the dead letters that the plan did not ask for, by the code of `pombo dead replay`.

It replays only letters that cannot have reached the customer. It leaves messages in doubt to an operator, and letters
that the plan expects stay dead.
"""

import os
from collections.abc import Collection

from cli.chaos.running_stack import RunningStack
from cli.dead.decision_context import NEEDED, Deciding
from local.terminal import WrongSettings
from shared import config, logs
from shared.domain.dead_letters import DeadLetter, DeadLetterFilter
from shared.operations import dead_letters
from shared.operations.dead_letters import Done

BAD_LUCK = DeadLetterFilter(errors=frozenset({"attempts", "waited"}))
"""The reasons of an unplanned dead letter; the handler's errors and WhatsApp's refusals are in the plan."""


def replay(running_stack: RunningStack, planned: Collection[str]) -> int:
    """Replay all dead letters but the planned ones (keys); return how many there were. Raises ClickException."""
    store = running_stack.running.store
    letters = [letter for page in dead_letters.find(store, BAD_LUCK) for letter in page.letters]
    unplanned = [letter for letter in letters if letter.key not in planned]
    return sum(_replayed(running_stack, unplanned)) if unplanned else 0


def _replayed(running_stack: RunningStack, letters: Collection[DeadLetter]) -> list[bool]:
    try:
        settings = config.load({**os.environ, **running_stack.environment}, config.INTERNAL, only=NEEDED)
    except config.ConfigError as error:
        raise WrongSettings(error.faults) from error
    if running_stack.running.logs is not None:
        logs.write_to(os.open(running_stack.running.logs, os.O_WRONLY | os.O_APPEND))
    again = Deciding(running_stack.running, settings).replay(may_double=False)
    return [again(letter.key).done is Done.REPLAYED for letter in letters]
