"""pombo dead: list, show, replay and discard dead letters."""

import click

from cli.dead.list import list_letters
from cli.dead.replay_and_discard import discard, replay
from cli.dead.show import show


@click.group()
def dead() -> None:
    """List, replay and discard dead letters.

    A dead letter is a delivery that failed. It waits until an operator replays or discards it.

    \b
    Examples:
      pombo dead list                       list dead letters and their errors
      pombo dead show KEY                   show the attempts of one
      pombo dead replay KEY                 retry it
      pombo dead replay --error 131042      retry all with this error
      pombo dead discard KEY --reason ...   discard it
    """


for command in (list_letters, show, replay, discard):
    dead.add_command(command)
