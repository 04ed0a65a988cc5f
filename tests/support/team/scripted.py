"""A handler that does what the message says, and appends each call to the file that HANDLER_CALLS names."""

import json
import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

from pombo import Drop, OutboundMessage

CALLS = Path(os.environ["HANDLER_CALLS"])
print("a handler is imported")

COUNTING = {"raise", "hang", "lock"}
"""Words that depend on how often the message was seen before: `earlier` is 0 for the others."""

_locks = []


def handle(message):
    """`!word argument` does what the word says; for anything else it echoes 200 characters of it, or its kind."""
    _note(message)
    text = message.kind if message.text is None else message.text
    if not text.startswith("!"):
        return text[:200]
    word, _, argument = text[1:].partition(" ")
    earlier = _calls(message) - 1 if word in COUNTING else 0
    return globals()[f"_{word}"](argument, earlier)


def _note(message):
    """Record the call in one write."""
    line = json.dumps({"id": message.id, "text": (message.text or "")[:200], "pid": os.getpid()}) + "\n"
    fd = os.open(CALLS, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(fd, line.encode())
    finally:
        os.close(fd)


def _calls(message):
    """How often this message was seen. Reads the whole file, which grows with every message."""
    return CALLS.read_text().count(f'"id": {json.dumps(message.id)}')


def _raise(argument, earlier):
    """`!raise 1`: raise for the first call, `!raise always` for each."""
    if argument == "always" or earlier < int(argument):
        raise RuntimeError("the team's code is broken")
    return f"after {earlier}"


def _exit(argument, earlier):
    raise SystemExit(1)


def _hang(argument, earlier):
    """`!hang 9`: the first call takes this many seconds."""
    if earlier == 0:
        time.sleep(float(argument))
    return f"after {earlier}"


def _slow(argument, earlier):
    """`!slow 0.2`: each call takes this many seconds. It answers when it began and when it ended."""
    began = time.time()
    time.sleep(float(argument))
    return f"{began:.6f} {time.time():.6f}"


def _lock(argument, earlier):
    """`!lock`: the first call locks SQLite's file in its own process, until that is killed."""
    if earlier == 0:
        _locks.append(sqlite3.connect(os.environ["SQLITE_PATH"], isolation_level=None, check_same_thread=False))
        _locks[0].execute("BEGIN IMMEDIATE")
    return f"after {earlier}"


def _nothing(argument, earlier):
    return None


def _str(argument, earlier):
    return argument


def _list(argument, earlier):
    return [str(number) for number in range(1, int(argument) + 1)]


def _around(argument, earlier):
    """`!around wamid.1`: a location and typing between texts; a fault may match only the location."""
    return ["1", OutboundMessage.location(-23.5, -46.6, name="2"), "3", OutboundMessage.typing(argument), "4"]


def _mixed(argument, earlier):
    return [OutboundMessage.text("made"), "plain"]


def _wrong(argument, earlier):
    """`!wrong`: a generator of four replies, two of which cannot be sent."""
    yield from ("1", "c4n4ry" * 1000, 42, "4")


def _generator(argument, earlier):
    yield from _list(argument, earlier)


async def _async(argument, earlier):
    return argument


async def _asyncgenerator(argument, earlier):
    for item in _list(argument, earlier):
        yield item


def _int(argument, earlier):
    return 42


def _bytes(argument, earlier):
    return b"bytes"


def _dict(argument, earlier):
    return {"text": "dict"}


def _empty(argument, earlier):
    return ""


def _long(argument, earlier):
    return "x" * int(argument)


def _surrogate(argument, earlier):
    return "half \ud83d"


def _half(argument, earlier):
    """A generator that raises after its first item: Pombo must send none of it."""
    yield "the first"
    raise RuntimeError("half way")


def _drop(argument, earlier):
    raise Drop(argument)


def _shout(argument, earlier):
    """`!shout words`: around Python's own standard output, and from a child process."""
    os.write(1, f"by descriptor {argument}\n".encode())
    sys.__stdout__.write(f"by stdout {argument}\n")
    sys.__stdout__.flush()
    subprocess.run(["echo", f"by program {argument}"], check=True)
    return "shouted"


def _print(argument, earlier):
    """`!print`: write to standard output, as a handler under development does."""
    print("a handler speaks")
    return "spoken"


def _everything(argument, earlier):
    """`!everything wamid.1`: one reply of every kind; those that refer to a message refer to that one."""
    make, link = OutboundMessage, "https://example.com/a"
    return [
        make.read(argument),
        make.text("a text", reply_to=argument),
        make.image(link, caption="an image"),
        make.video(id="900000000000001"),
        make.audio(id="900000000000002", voice=True),
        make.document(link, filename="a.pdf"),
        make.typing(argument),
        make.sticker(link),
        make.location(-23.5, -46.6, name="a place"),
        make.contacts({"Ana Lima": "+15550009999"}),
        make.buttons("buttons", {"y": "Yes", "n": "No"}, header="H", footer="F"),
        make.list("a list", "Open", {"Today": {"9": "9:00"}, "Later": [("10", "10:00", "a late one")]}),
        make.cta_url("a link", "Open", link),
        make.template("reminder", "pt_BR", {"day": "Monday"}),
        make.reaction(argument, "👍"),
        make.reaction(argument, ""),
        OutboundMessage("interactive", {"type": "flow", "body": {"text": "a flow"}, "action": {"name": "flow"}}),
        "the end",
    ]


def _typing(argument, earlier):
    """`!typing wamid.1`: a text, typing, and another text."""
    return ["before", OutboundMessage.typing(argument), "after"]


def _seen(argument, earlier):
    """`!seen wamid.1`: read, typing, and a text."""
    return [OutboundMessage.read(argument), OutboundMessage.typing(argument), "seen"]


def _reply(argument, earlier):
    """`!reply {"type": …}`: one reply made by hand."""
    return OutboundMessage(**json.loads(argument))
