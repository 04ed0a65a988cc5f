"""terraform.tfvars of an environment: read as far as a deployment needs it, and written the first time."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

from infra.release.place import Place
from infra.release.tools import Refused

_STRING = re.compile(r'^(\w+)\s*=\s*"([^"\\$]*)"\s*(?:#.*)?$', re.M)
_NAMES = re.compile(r"^handler_secrets\s*=\s*\[([^\]]*)\]", re.M)
_REDIS = re.compile(r"^redis\s*=\s*true\b", re.M)


def read(path: Path) -> Mapping[str, str]:
    """The variables that are plain words. Nothing of an expression, and nothing in a block."""
    return dict(_STRING.findall(path.read_text(encoding="utf-8")))


def check(place: Place) -> None:
    """Raises Refused where the file is of another project or region."""
    given = read(place.variables)
    for name, wanted in (("project", place.project), ("region", place.region)):
        if given.get(name) != wanted:
            raise Refused(
                f"{place.variables} says {name} = {json.dumps(given.get(name))}, and you say {wanted}: it is of "
                "another deployment. Move the file, or give the values that it holds."
            )


def write(place: Place, phone_number_id: str, handler: str, email: str | None) -> None:
    """Raises Refused where a value cannot be right."""
    if not re.fullmatch(r"[0-9]{5,20}", phone_number_id):
        raise Refused(
            f"{phone_number_id or 'Nothing'} is not a phone number ID: that is the long number that Meta shows "
            "beside the number (WhatsApp, API Setup), not the number itself."
        )
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", handler):
        raise Refused(f"{handler} is not a handler: write module:function, like handlers.echo:handle.")
    values = {
        "project": place.project,
        "region": place.region,
        "whatsapp_phone_number_id": phone_number_id,
        "handler": handler,
        "alert_emails": [email] if email else [],
    }
    longest = max(map(len, values))
    lines = [f"{name.ljust(longest)} = {json.dumps(value)}\n" for name, value in values.items()]
    place.variables.write_text(
        "# Written by make deploy. Commit it: it holds no secret. infra/terraform/README.md has all variables.\n"
        + "".join(lines),
        encoding="utf-8",
    )


def of_bootstrap(place: Place) -> dict[str, str]:
    """What bootstrap has to be told so that it makes what this environment names. What else a team gives it stands in a
    terraform.tfvars of its own, which Terraform reads.
    """
    text = place.variables.read_text(encoding="utf-8")
    told = {"project": place.project, "region": place.region}
    if names := handler_secrets(text):
        told["handler_secrets"] = json.dumps(names)
    if _REDIS.search(text):
        told["redis"] = "true"
    if key := read(place.variables).get("kms_key"):
        told["kms_key"] = key
    return told


def handler_secrets(text: str) -> list[str]:
    """The handler's own secrets."""
    found = _NAMES.search(text)
    return re.findall(r'"([A-Z][A-Z0-9_]*)"', found[1]) if found else []
