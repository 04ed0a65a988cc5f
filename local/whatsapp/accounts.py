"""The accounts at Meta: their phone numbers, the access tokens, and which accounts our app is subscribed to.

The environment's number and token are there from the start. Tests add others at the control address.
"""

import json
import sqlite3
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from local.whatsapp.webhook_payloads import ACCOUNT_ID, DISPLAY_PHONE_NUMBER, BusinessNumber

FILE = "whatsapp-accounts.sqlite"

APP_ID = "500000000000001"
"""Our Meta app, unless META_APP_ID names another."""

MANAGE, SEND = "whatsapp_business_management", "whatsapp_business_messaging"
SCOPES = (MANAGE, SEND)

SCHEMA = """
CREATE TABLE IF NOT EXISTS numbers (
    id TEXT PRIMARY KEY, account TEXT NOT NULL, display TEXT NOT NULL, is_own INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS tokens (token TEXT PRIMARY KEY, entry TEXT NOT NULL, is_own INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS subscriptions (account TEXT PRIMARY KEY, override TEXT);
"""


class TokenState(StrEnum):
    VALID = "valid"
    EXPIRED = "expired"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True)
class AccessToken:
    """An access token: for which app and accounts it is, and what it permits. `target_ids` false: `debug_token` does
    not list the accounts. `expires_at` is in Unix seconds; 0 is never.
    """

    state: TokenState = TokenState.VALID
    app_id: str = APP_ID
    accounts: tuple[str, ...] = ()
    scopes: tuple[str, ...] = SCOPES
    target_ids: bool = True
    expires_at: int = 0
    data_access_expires_at: int = 0

    @property
    def is_valid(self) -> bool:
        return self.state is TokenState.VALID and not 0 < self.expires_at <= time.time()


class Accounts:
    """Used only by the event loop, like the simulator's store."""

    def __init__(self, path: Path, app_id: str, own: BusinessNumber, token: str) -> None:
        """`own`, `token`: the environment's number, and its access token."""
        self.app_id = app_id
        self._db = sqlite3.connect(path)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.executescript(SCHEMA)
        entry = json.dumps(asdict(AccessToken(app_id=app_id, accounts=(own.account,))))
        with self._db:
            self._db.execute("DELETE FROM numbers WHERE is_own AND id != ?", (own.id,))
            self._db.execute("DELETE FROM tokens WHERE is_own AND token != ?", (token,))
            self._db.execute("INSERT OR IGNORE INTO numbers VALUES (?, ?, ?, 1)", (own.id, own.account, own.display))
            self._db.execute("INSERT OR IGNORE INTO tokens VALUES (?, ?, 1)", (token, entry))
            self._db.execute("INSERT OR IGNORE INTO subscriptions VALUES (?, NULL)", (own.account,))

    def close(self) -> None:
        self._db.close()

    # ---- numbers

    def number(self, id: str) -> BusinessNumber | None:
        row = self._db.execute("SELECT id, account, display FROM numbers WHERE id = ?", (id,)).fetchone()
        return BusinessNumber(*row) if row else None

    def numbers(self, account: str | None = None) -> list[BusinessNumber]:
        """All numbers, or those of one account."""
        rows = self._db.execute("SELECT id, account, display FROM numbers ORDER BY id").fetchall()
        return [found for row in rows if (found := BusinessNumber(*row)) and account in (None, found.account)]

    def addressee(self, id: str) -> BusinessNumber:
        """The number that a webhook is for. An unknown id is a number of the environment's account."""
        return self.number(id) or BusinessNumber(id, ACCOUNT_ID, DISPLAY_PHONE_NUMBER)

    def add(self, number: BusinessNumber, token: str, subscribed: bool) -> None:
        """Add or replace a number. The token is valid for its account from then on."""
        known = self.token(token) or AccessToken(app_id=self.app_id)
        with self._db:
            self._db.execute(
                "INSERT INTO numbers VALUES (?, ?, ?, 0) ON CONFLICT (id) DO UPDATE SET account = ?, display = ?",
                (number.id, number.account, number.display, number.account, number.display),
            )
        accounts = tuple(dict.fromkeys((*known.accounts, number.account)))
        self.keep(token, replace(known, state=TokenState.VALID, accounts=accounts))
        if subscribed:
            self.subscribe(number.account, None)

    def remove(self, id: str | None) -> None:
        """Remove an added number, or all of them. The environment's stays."""
        with self._db:
            self._db.execute("DELETE FROM numbers WHERE NOT is_own AND ? IN (id, '')", (id or "",))

    # ---- tokens

    def token(self, token: str) -> AccessToken | None:
        row = self._db.execute("SELECT entry FROM tokens WHERE token = ?", (token,)).fetchone()
        return _token_from(json.loads(row[0])) if row else None

    def keep(self, token: str, entry: AccessToken) -> None:
        """Add or change a token."""
        text = json.dumps(asdict(entry))
        with self._db:
            self._db.execute(
                "INSERT INTO tokens VALUES (?, ?, 0) ON CONFLICT (token) DO UPDATE SET entry = ?", (token, text, text)
            )

    # ---- subscriptions

    def subscribe(self, account: str, override: Mapping[str, Any] | None) -> None:
        """Subscribe our app; a subscription without an override clears an earlier one."""
        text = json.dumps(override) if override else None
        with self._db:
            self._db.execute(
                "INSERT INTO subscriptions VALUES (?, ?) ON CONFLICT (account) DO UPDATE SET override = ?",
                (account, text, text),
            )

    def unsubscribe(self, account: str) -> None:
        with self._db:
            self._db.execute("DELETE FROM subscriptions WHERE account = ?", (account,))

    def is_subscribed(self, account: str) -> bool:
        """Whether the account's webhooks are delivered to us."""
        return self.override(account) is not None

    def override(self, account: str) -> Mapping[str, Any] | None:
        """The override of a subscription, empty if it has none; None without a subscription."""
        row = self._db.execute("SELECT override FROM subscriptions WHERE account = ?", (account,)).fetchone()
        return None if row is None else json.loads(row[0] or "{}")


def _token_from(entry: Mapping[str, Any]) -> AccessToken:
    lists: Mapping[str, Sequence[str]] = {name: entry[name] for name in ("accounts", "scopes")}
    return AccessToken(
        **{**entry, "state": TokenState(entry["state"]), **{name: tuple(value) for name, value in lists.items()}}
    )
