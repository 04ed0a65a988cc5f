"""The commands of pombo. An error is one line on standard error (one per wrong setting); exit 1, or 2 for a usage
error.
"""

import sys
from collections import UserDict
from importlib import import_module
from typing import Any

import click

from cli.version import version
from local import invocation, terminal
from local.terminal import WrongSettings
from shared.domain.errors import PomboError

MODULES = {
    "up": "cli.up",
    "say": "cli.say",
    "send": "cli.send",
    "ledger": "cli.ledger",
    "trace": "cli.trace",
    "dead": "cli.dead.command",
    "conversations": "cli.conversations.command",
    "tenants": "cli.registry.tenants",
    "senders": "cli.registry.senders",
    "keys": "cli.registry.keys",
    "doctor": "cli.doctor.command",
    "chaos": "cli.chaos.command",
}
"""Each command, and the module that defines it under that name."""


class _Imported(UserDict[str, Any]):
    """The commands, each imported when it is called: together they take twice as long as one."""

    def __getitem__(self, name: str) -> click.Command:
        command: click.Command = getattr(import_module(self.data[name]), name)
        return command


def _show_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        click.echo(f"pombo {version()}")
        context.exit()


@click.group(
    commands=_Imported(MODULES), context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_version,
    help="Show the version and exit.",
)
def pombo() -> None:
    """Receive WhatsApp messages and send the replies: once, in order, each one traceable.

    \b
    Examples:
      pombo up                      start Pombo on this machine
      pombo say "hello" --wait      send a message as a customer and wait for the reply
      pombo send "Hello" --to +15550002222 --wait
                                    send a message first
      pombo ledger                  list the messages that the WhatsApp simulator accepted
      pombo trace ID                show the timeline of a message
      pombo dead list               list dead letters
      pombo conversations list      list conversations with customers
      pombo tenants add bakery      add a second business
      pombo senders list            list the numbers, and whether each can send
      pombo doctor                  check the store, the queue, the handler and the settings
      pombo chaos                   inject faults and account for every message
    """


def run(command: click.Command = pombo) -> None:
    """Run a command, or the whole command line, and report its errors."""
    arguments = terminal.begin("pombo")
    try:
        command.main(arguments, standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        sys.exit(2)
    except click.UsageError as error:
        hint = f" Try: {_help_of(error.ctx)}" if error.ctx else ""
        _fail(error.format_message() + hint, 2)
    except WrongSettings as error:
        for fault in error.faults:
            _say(fault)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        _fail(error.format_message(), error.exit_code)
    except PomboError as error:
        _fail(error.sentence, 2 if error.is_usage else 1)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(0)
    except OSError as error:
        _fail(f"Cannot write the output: {error.strerror}.", 1)


def _help_of(context: click.Context) -> str:
    return "make help" if invocation.by_make() else f"{context.command_path} --help"


def _fail(sentence: str, code: int) -> None:
    _say(sentence)
    sys.exit(code)


def _say(sentence: str) -> None:
    click.echo(f"pombo: {invocation.as_typed(' '.join(sentence.split()))}", err=True)
