"""Phone numbers: the two forms that a number has in some countries, and one form that stands for both."""

import re

_VARIANT = re.compile(r"(52)1([0-9]{10})|(54)9([0-9]{10})|(55[0-9]{2})9([6-9][0-9]{7})")


def without_variant(number: str) -> str:
    """The number (digits only) in the shorter of the two forms that a phone line has in some countries; any other text
    as it is.

    WhatsApp accepts both forms and answers with one of them, and a webhook may have one as the sender of a message and
    the other as its contact: Mexico with a 1 after 52, Argentina with a 9 after 54, Brazil with a ninth digit after the
    area code of a mobile (the eight after it begin with 6 to 9; a landline's begin with 2 to 5 and have no other form).
    """
    match = _VARIANT.fullmatch(number)
    return "".join(part for part in match.groups() if part) if match else number
