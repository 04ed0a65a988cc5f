"""pombo conversations: list the conversations of a tenant, and show one."""

import click

from cli.conversations.list import list_conversations
from cli.conversations.show import show


@click.group()
def conversations() -> None:
    """List and show conversations.

    A conversation is all that one of your numbers and one customer write to each other.

    \b
    Examples:
      pombo conversations list              list those of your number, the newest message first
      pombo conversations show ID           show its messages and the state of each
    """


for command in (list_conversations, show):
    conversations.add_command(command)
