"""pombo dead: what waits for a person's word, and that word."""

import click

from cli.dead.decide import discard, replay
from cli.dead.list import list_letters
from cli.dead.show import show


@click.group()
def dead() -> None:
    """Dead letters: what Pombo gave up on, until a person replays or discards it.

    \b
    Examples:
      pombo dead list                       which there are, and why
      pombo dead show KEY                   what was tried
      pombo dead replay KEY                 try it anew
      pombo dead replay --error 131042      try all of these anew
      pombo dead discard KEY --reason ...   give it up
    """


for command in (list_letters, show, replay, discard):
    dead.add_command(command)
