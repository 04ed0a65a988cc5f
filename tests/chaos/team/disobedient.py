"""A handler that does not do what a message's script says: now a word too many, now a reply too few."""

from dataclasses import replace

from cli.chaos import handler


def handle(message):
    replies = list(handler.handle(message))
    match message.text.split()[1][-1]:
        case "1":
            return [replace(replies[0], type="text", content={"body": "something else"}), *replies[1:]]
        case "2":
            return replies[:-1]
        case "3":
            return reversed(replies)
    return replies
