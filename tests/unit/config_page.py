"""python tests/unit/config_page.py: write docs/configuration.md and README's short table."""

import re
from collections.abc import Iterable
from pathlib import Path

from shared.config import API, INTERNAL, LOCAL_SECRETS, SETTINGS, WEBHOOK, Setting

ROOT = Path(__file__).parents[2]
PAGE, README = ROOT / "docs" / "configuration.md", ROOT / "README.md"

TEN = (
    "WHATSAPP_PHONE_NUMBER_ID",
    "WHATSAPP_ACCESS_TOKEN",
    "META_APP_SECRET",
    "META_VERIFY_TOKEN",
    "STORE",
    "HANDLER",
    "HANDLER_URL",
    "HANDLER_URL_SECRET",
    "HANDLER_TIMEOUT",
    "IN_DOUBT_POLICY",
)
"""What people set, in README's order."""

_HEAD = """# Configuration

`tests/unit/config_page.py` generates this page from `shared/config/settings.py`; a test fails if they differ.

Each service reads its environment variables once, at the start. If a value is missing or invalid, it reports every
fault, one a line, and does not start. If `APP_ENV` is invalid, it reports that fault alone. An invalid value is shown,
unless it is a secret or the service runs on Cloud Run. On one machine Pombo warns of a variable that looks like a
misspelt setting.

W = webhook service, I = internal service, A = API service; the command line also reads some. Lists are comma-separated:
Pombo sends the first value and accepts all of them, so that a secret can be rotated
([deploy.md](deploy.md#rotating-secrets)). Write durations as `90s`, `10m`, `24h` or `2d`; a number alone means seconds.

In staging and prod, addresses must be https, a *required* setting has no default, and exactly one of `HANDLER` and
`HANDLER_URL` is required. On Cloud Run `APP_ENV` must be `staging` or `prod`. Terraform sets all of this
([infra/terraform/README.md](../infra/terraform/README.md)). For a handler's own variables and secrets, see
[deploy.md](deploy.md#a-handlers-own-variables-and-secrets).

| name | service | on one machine | in staging and prod | meaning |
|---|---|---|---|---|
"""

_SHORT = "| name | service | default on one machine | meaning |\n|---|---|---|---|\n"


def page() -> str:
    """The whole page."""
    return _HEAD + "".join(
        f"| `{it.name}` | {_services(it)} | {_local(it)} | {_deployed(it)} | {it.meaning} |\n" for it in SETTINGS
    )


def short_table() -> str:
    """README's, of the ten."""
    return _SHORT + "".join(_short_rows(TEN))


def readme() -> str:
    """README with its table as it should be."""
    text = README.read_text()
    return re.sub(re.escape(_SHORT) + r"(?:\|.*\n)*", lambda _: short_table(), text)


def _short_rows(names: Iterable[str]) -> Iterable[str]:
    settings = {it.name: it for it in SETTINGS}
    for name in names:
        it = settings[name]
        yield f"| `{name}` | {_services(it)} | {_local(it)} | {it.meaning} |\n"


def _services(setting: Setting) -> str:
    letters = (("W", WEBHOOK), ("I", INTERNAL), ("A", API))
    return " ".join(letter for letter, name in letters if name in setting.services)


def _local(setting: Setting) -> str:
    """The default on one machine."""
    if setting.name in LOCAL_SECRETS:
        return "local secret"
    return _code(setting.local or setting.always)


def _deployed(setting: Setting) -> str:
    if setting.only_local:
        return "refused"
    if setting.always:
        return _code(setting.always)
    return "–" if setting.optional else "required"


def _code(value: str | None) -> str:
    return f"`{value}`" if value else "–"


if __name__ == "__main__":
    PAGE.write_text(page())
    README.write_text(readme())
