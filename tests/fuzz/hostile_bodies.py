"""Bodies of three megabytes that cost more to read than any of Meta's: each as large as may come."""

from collections.abc import Callable, Mapping
from itertools import count

from tests.support.parts import SENDER, STRANGER

BYTES = 3 * 1024 * 1024
HALF = BYTES // 2

POST = '{"object":"whatsapp_business_account","entry":[ENTRIES]}'
ENTRY = POST.replace("ENTRIES", '{"id":"300000000000003","changes":[CHANGES]}')
VALUE = ENTRY.replace("CHANGES", '{"field":"messages","value":{"metadata":{"phone_number_id":"SENDER"},PARTS}}')
INSIDE = VALUE.replace("PARTS", '"messages":[{"from":"15550002222","id":"wamid.inside","type":"text","odd":HERE}]')

TEXT = '{"from":"15550002222","id":"wamid.{n}","type":"text","text":{"body":"hello"}}'
READ = '{"id":"wamid.{n}","status":"read","timestamp":"1772366400"}'
ECHO = f'"biz_opaque_callback_data":"pombo1.{"0f" * 20}.0.corr_0001"'
CONTACT = '{"wa_id":"15550002222","profile":{"name":"' + "x" * 250_000 + '"}}'


def full(template: str, place: str, item: str, joint: str = ",", to: str = SENDER) -> bytes:
    """The template with as many items at its place as fit; {n} in an item is its number."""
    head, _, tail = template.replace("SENDER", to).partition(place)
    pieces, length = [], len(head) + len(tail)
    for number in count():
        piece = item.replace("{n}", str(number))
        length += len(piece) + len(joint)
        if length > BYTES:
            break
        pieces.append(piece)
    return f"{head}{joint.join(pieces)}{tail}".encode()


def inside(around: str, item: str, joint: str = ",") -> bytes:
    """As many items as fit, in a part of one message that nobody knows."""
    return full(INSIDE.replace("HERE", around.replace("...", "ITEMS")), "ITEMS", item, joint)


MESSAGES = VALUE.replace("PARTS", '"messages":[ITEMS]')
BODIES: Mapping[str, Callable[[], bytes]] = {
    "nested arrays": lambda: b"[" * HALF + b"]" * HALF,
    "nested arrays that do not end": lambda: b"[" * BYTES,
    "nested objects": lambda: b'{"a":' * (BYTES // 6 - 1) + b"1" + b"}" * (BYTES // 6 - 1),
    "nested arrays in a message": lambda: INSIDE.replace("HERE", "[" * (HALF - 500) + "]" * (HALF - 500)).encode(),
    "empty arrays in a message": lambda: inside("[...]", "[]"),
    "empty objects for messages": lambda: full(MESSAGES, "ITEMS", "{}"),
    "as many keys as fit": lambda: inside("{...}", '"{n}":0'),
    "one key again and again": lambda: inside("{...}", '"a":0'),
    "entries again and again": lambda: full('{"object":"whatsapp_business_account",ITEMS}', "ITEMS", '"entry":[{}]'),
    "numbers beyond a float": lambda: inside("[...]", "1e400"),
    "numbers of 10,000 digits": lambda: inside("[...]", "9" * 10_000),
    "a number of three million digits": lambda: inside("...", "9", ""),
    "fractions of 10,000 digits": lambda: inside("[...]", "0." + "1" * 10_000),
    "no numbers": lambda: inside("[...]", "NaN"),
    "half characters": lambda: inside('"..."', r"\ud800", ""),
    "NUL": lambda: inside('"..."', r"\u0000", ""),
    "backslashes": lambda: inside('"..."', r"\\", ""),
    "quotes": lambda: b'"' * BYTES,
    "one text": lambda: inside('"..."', "x", ""),
    "no UTF-8": lambda: b"\xff" * BYTES,
    "50,000 receipts": lambda: full(VALUE.replace("PARTS", '"statuses":[ITEMS]'), "ITEMS", READ),
    "receipts with an echo": lambda: full(
        VALUE.replace("PARTS", '"statuses":[ITEMS]'), "ITEMS", READ.replace('"}', f'",{ECHO}}}')
    ),
    "receipts that cannot be read": lambda: full(VALUE.replace("PARTS", '"statuses":[ITEMS]'), "ITEMS", "0"),
    "messages": lambda: full(MESSAGES, "ITEMS", TEXT),
    "messages of a stranger": lambda: full(MESSAGES, "ITEMS", TEXT, to=STRANGER),
    "messages of a contact of 250 KB": lambda: full(
        VALUE.replace("PARTS", f'"contacts":[{CONTACT}],"messages":[ITEMS]'), "ITEMS", TEXT
    ),
    "contacts": lambda: full(
        VALUE.replace("PARTS", '"messages":[{"id":"wamid.1"}],"contacts":[ITEMS]'), "ITEMS", '{"wa_id":"{n}"}'
    ),
    "entries": lambda: full(POST, "ENTRIES", '{"changes":[{}]}'),
    "changes": lambda: full(ENTRY, "CHANGES", '{"field":"odd"}'),
    "news of the account": lambda: full(ENTRY, "CHANGES", '{"field":"flows","value":{n}}'),
    "news of three megabytes": lambda: full(ENTRY.replace("CHANGES", '{"field":"flows","value":"X"}'), "X", "x", ""),
}
QUICK = {
    "nested arrays", "nested objects", "empty objects for messages", "as many keys as fit", "entries again and again",
    "numbers of 10,000 digits", "half characters", "50,000 receipts", "messages", "messages of a contact of 250 KB",
}  # fmt: skip
"""Those that cost the most, or once did."""
