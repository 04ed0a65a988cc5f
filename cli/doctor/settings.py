"""The settings check of doctor: a check for each setting, and the settings that other checks can still use."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from shared import config
from shared.config import LOCAL_SECRETS, SETTINGS, Config, ConfigError, Setting

NAMES = frozenset(setting.name for setting in SETTINGS)


@dataclass(frozen=True, slots=True)
class Check:
    """What was checked, whether it is correct, and what was found."""

    check: str
    ok: bool
    sentence: str


class CannotCheck(Exception):
    """Something else must be fixed first; the message says what."""


def faults(environ: Mapping[str, str]) -> dict[str, list[str]]:
    """The faults that a service would report, by the setting that each sentence begins with. A deployed service is
    assumed to run on Cloud Run, wherever this command runs.
    """
    found: dict[str, list[str]] = {}
    there = {"K_SERVICE": "pombo"} if environ.get("APP_ENV", "").strip() in config.DEPLOYED else {}
    for service in config.SERVICES:
        try:
            config.load({**environ, **there}, service)
        except ConfigError as error:
            for fault in error.faults:
                known = found.setdefault(fault.split()[0], [])
                known += [] if fault in known else [fault]
    return found


def check_all(
    environ: Mapping[str, str], wrong: Mapping[str, list[str]], is_local: bool, elsewhere: Collection[str] = ()
) -> Iterator[Check]:
    """One check per setting; only APP_ENV if it names no environment, since all others depend on it. `is_local`: the
    stack runs here, and its secrets are not written down. `elsewhere`: secrets that it was started with.
    """
    is_environment = environ.get("APP_ENV", "").strip() in ("", *config.ENVIRONMENTS)
    for setting in SETTINGS if is_environment else [it for it in SETTINGS if it.name in wrong]:
        found = wrong.get(setting.name)
        if found is None and setting.name in elsewhere and not environ.get(setting.name):
            yield Check(setting.name, True, "Set in the running Pombo (a secret, not shown).")
        elif found is None:
            yield Check(setting.name, True, _describe(setting, environ))
        else:
            hint = " Set it here as for pombo up." if setting.secret and is_local else ""
            yield Check(setting.name, False, " ".join(found) + hint)
    for name in wrong.keys() - {setting.name for setting in SETTINGS}:
        yield Check(name, False, " ".join(wrong[name]))


def usable(environ: Mapping[str, str], wrong: Mapping[str, list[str]], needed: Collection[str]) -> Config:
    """These settings, even if others are wrong. Raises CannotCheck if one of these is wrong."""
    missing = sorted(wrong.keys() & set(needed))
    if missing:
        raise CannotCheck(f"Cannot be checked until {', '.join(missing)} is correct.")
    return config.load(environ, config.INTERNAL, only=needed)


def _describe(setting: Setting, environ: Mapping[str, str]) -> str:
    raw = environ.get(setting.name, "").strip()
    if raw:
        return "Set (a secret, not shown)." if setting.secret else f"Set to {raw}."
    if setting.name == "HANDLER" and environ.get("HANDLER_URL", "").strip():
        return "Not set: HANDLER_URL takes its place."
    if environ.get("APP_ENV") in config.DEPLOYED:
        default = setting.always
    elif setting.name in LOCAL_SECRETS:
        return "Not set: the public default secret for a local Pombo applies."
    else:
        default = setting.local or setting.always
    return f"Not set; the default is {default}." if default else f"Not set (optional): {setting.meaning}."
