"""Early events: what customers wrote to a number before it was added, and its replay."""

import shlex
from pathlib import Path

from cli.dead.run import Tally, in_parallel
from cli.progress import Counting
from cli.registry.context import RegistryContext, hint
from local import invocation
from shared.domain.listings import UNKNOWN_SENDER
from shared.domain.tenants import Sender
from shared.operations.dead_letters import Done, Replay
from shared.operations.senders import came_before


def offer_early(context: RegistryContext, sender: Sender, data_dir: Path) -> None:
    """Say what came in before the number was known, and how to replay it."""
    count = sum(1 for _ in came_before(context.store, sender))
    if not count:
        return
    where = invocation.data_dir_option(data_dir)
    command = f"{invocation.program()} dead replay --error {UNKNOWN_SENDER} --sender {shlex.quote(sender.id)}{where}"
    were = "1 event was" if count == 1 else f"{count:,} events were"
    hint(f"{were} dropped before this number was known. To replay: {command}")


def replay_early(context: RegistryContext, sender: Sender, again: Replay, as_json: bool) -> None:
    """Replay what came in before. Its counts go to standard error: the output is the sender's id."""
    tally = Tally(Done.REPLAYED)
    with Counting("Replayed") as counting:
        came = counting.each(came_before(context.store, sender))
        in_parallel(lambda record: again(record.key), came, tally.add)
    if not as_json or tally.as_dict(is_whole=True)[Done.REPLAYED]:
        hint("\n".join(tally.as_lines(is_whole=True)))
