"""Template checks: the name, the language and the values of a template, and of each card of a carousel."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from shared.domain.outbound.fields import Fields, part, parts, text

COMPONENTS = frozenset(
    {
        "header",
        "body",
        "footer",
        "button",
        "carousel",
        "limited_time_offer",
        "order_status",
        "tap_target_configuration",
    }
)

_TEMPLATE_NAME = re.compile(r"[a-z0-9_]+")
_LANGUAGE = re.compile(r"[a-z]{2,3}(_([A-Z]{2}|[A-Z][a-z]{3}|[0-9]{3})){0,2}")
_NOT_IN_A_PARAMETER = re.compile(r"[\n\r\t]| {5}")
"""Meta refuses it with 132018."""


def template(content: Fields) -> None:
    """Raises TypeError or ValueError with one sentence if Meta cannot have such a template or would refuse a value."""
    name = text(content, "name", "The name of the template", "template_name")
    if not _TEMPLATE_NAME.fullmatch(name):
        raise ValueError("The name of the template has other characters than lower-case letters, digits and _.")
    code = text(part(content, "language", "The language of the template"), "code", "The language code of the template")
    if not _LANGUAGE.fullmatch(code):
        raise ValueError("The language code of the template is not like en, en_US or fil.")
    if content.get("components"):
        _components(parts(content, "components", "components"), "the template")


def _components(components: Sequence[Fields], of: str, in_card: bool = False) -> None:
    for place, component in enumerate(components, start=1):
        what = f"component {place} of {of}"
        kind = text(component, "type", f"The type of {what}").lower()
        if kind not in COMPONENTS:
            continue
        if kind == "carousel" and not in_card:
            _cards(component.get("cards"), what)
        if component.get("parameters"):
            _parameters(component, what)


def _cards(cards: Any, of: str) -> None:
    """A carousel's cards have components too. Meta judges what is not such a list."""
    for place, card in enumerate(cards if isinstance(cards, list | tuple) else (), start=1):
        if isinstance(card, Mapping) and card.get("components"):
            what = f"card {place} of {of}"
            _components(parts(card, "components", f"components of {what}"), what, in_card=True)


def _parameters(component: Fields, of: str) -> None:
    parameters = parts(component, "parameters", f"parameters of {of}")
    for place, parameter in enumerate(parameters, start=1):
        _parameter(parameter, f"parameter {place} of {of}")
    if len({parameter.get("parameter_name") is not None for parameter in parameters}) > 1:
        raise ValueError(f"Some parameters of {of} have names and some have not; WhatsApp takes all or none.")


def _parameter(parameter: Fields, which: str) -> None:
    kind = text(parameter, "type", f"The type of {which}").lower()
    if parameter.get("parameter_name") is not None:
        text(parameter, "parameter_name", f"The parameter_name of {which}")
    if kind in ("text", "payload"):
        value = text(parameter, kind, f"The {kind} of {which}")
        if kind == "text" and _NOT_IN_A_PARAMETER.search(value):
            raise ValueError(
                f"The text of {which} has a line break, a tab or more than four blanks in a row; WhatsApp takes none."
            )
