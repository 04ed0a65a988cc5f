"""The management calls of the Graph API that connecting a number needs, answered as Meta does.

    GET    /debug_token?input_token=…      what a token may do, asked with the app's token
    GET    /{account}/phone_numbers        the numbers of an account, in pages
    GET    /{account}/subscribed_apps      POST subscribes our app, DELETE ends it
    GET    /{phone number id}              the number itself

Answers and errors: Meta's reference of debug_token, its pages on WhatsApp Business accounts, and users' reports
(chatwoot/chatwoot #12488, #14690; November 2026).
"""

import hmac
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from local.whatsapp import graph_calls
from local.whatsapp.accounts import MANAGE, SCOPES, AccessToken, Accounts, TokenState
from local.whatsapp.errors import INVALID_REQUEST, OBJECT_GONE, PERMISSION, TOKEN, UNKNOWN_PATH, GraphError
from local.whatsapp.http_transport import Request, Response, json_answer
from local.whatsapp.simulator_store import SimulatorStore
from local.whatsapp.webhook_payloads import PORTFOLIO_ID, BusinessNumber

PAGE = 25
"""Objects in a page, if the caller asks for no other number."""

NOT_SUBSCRIBED = (
    "(#100) Before override the current callback uri, your app must be subscribed to receive messages for WhatsApp "
    "Business Account"
)
SUBCODES: Mapping[TokenState, int] = {TokenState.EXPIRED: 463, TokenState.REVOKED: 460}

_PATH = re.compile(r"/(v[0-9]+\.[0-9]+)/([A-Za-z0-9_]+)(?:/([a-z_]+))?")


@dataclass(frozen=True, slots=True)
class ManagementApi:
    """Answers every call but sends. `app_secrets`: each makes a valid app token."""

    accounts: Accounts
    store: SimulatorStore
    version: str
    app_secrets: Sequence[str]

    async def handle(self, request: Request) -> Response:
        path = _PATH.fullmatch(request.path)
        routes: dict[tuple[str, str | None], Callable[[Request, str], Any]] = {
            ("GET", "phone_numbers"): self._phone_numbers,
            ("GET", "subscribed_apps"): self._subscribed_apps,
            ("POST", "subscribed_apps"): self._subscribe,
            ("DELETE", "subscribed_apps"): self._unsubscribe,
            ("GET", None): self._debug_token if path and path[2] == "debug_token" else self._number,
        }
        route = routes.get((request.method, path[3])) if path else None
        kind = (path[3] or ("debug_token" if path[2] == "debug_token" else "number")) if path and route else None
        try:
            if path is None or route is None:
                raise GraphError(UNKNOWN_PATH, "This call does not exist here.")
            if path[1] != self.version:
                raise GraphError(UNKNOWN_PATH, f"This simulator supports only {self.version}.")
            answer, code = json_answer(200, route(request, path[2])), None
        except GraphError as error:
            answer, code = json_answer(error.http_status, error.document()), error.code
        if kind:
            call = f"{request.method.lower()} {kind}"
            self.store.note_call(graph_calls.line("management", call, answer.status, code))
        return answer

    def _debug_token(self, request: Request, _: str) -> object:
        """Meta answers 200 about a token that it does not know, too."""
        app_tokens = [f"{self.accounts.app_id}|{secret}".encode() for secret in self.app_secrets]
        given = (bearer_of(request) or _query(request).get("access_token", "")).encode()
        if not any(hmac.compare_digest(given, token) for token in app_tokens):
            raise GraphError(TOKEN, "", message="Invalid OAuth access token - Cannot parse access token")
        asked = _query(request).get("input_token")
        if not asked:
            raise GraphError(INVALID_REQUEST, "", message="(#100) The parameter input_token is required.")
        token = self.accounts.token(asked)
        if token is None:
            error = {"code": TOKEN, "message": "Invalid OAuth access token data."}
            return {"data": {"error": error, "is_valid": False, "scopes": []}}
        return {"data": _described(token)}

    def _phone_numbers(self, request: Request, account: str) -> object:
        self._admit(request, account, "get")
        query = _query(request)
        limit = int(query["limit"]) if query.get("limit", "").isdecimal() else PAGE
        after = query.get("after", "")
        left = [number for number in self.accounts.numbers(account) if number.id > after]
        page = left[: max(1, limit)]
        document: dict[str, Any] = {"data": [_shown(number, query.get("fields")) for number in page]}
        if page:
            document["paging"] = {"cursors": {"before": page[0].id, "after": page[-1].id}}
        if len(page) < len(left):
            document["paging"]["next"] = "https://graph.facebook.com/next-page"
        return document

    def _subscribed_apps(self, request: Request, account: str) -> object:
        self._admit(request, account, "get")
        override = self.accounts.override(account)
        if override is None:
            return {"data": []}
        app = {"id": self.accounts.app_id, "name": "Pombo", "link": "https://www.facebook.com/"}
        return {"data": [{"whatsapp_business_api_data": app, **override}]}

    def _subscribe(self, request: Request, account: str) -> object:
        self._admit(request, account, "post")
        override = _override(request)
        if override and not self.accounts.is_subscribed(account):
            raise GraphError(INVALID_REQUEST, "", message=NOT_SUBSCRIBED)
        self.accounts.subscribe(account, override)
        return {"success": True}

    def _unsubscribe(self, request: Request, account: str) -> object:
        self._admit(request, account, "delete")
        self.accounts.unsubscribe(account)
        return {"success": True}

    def _number(self, request: Request, id: str) -> object:
        number = self.accounts.number(id)
        token = self._token(request)
        if number is None or number.account not in token.accounts:
            raise _unsupported("get", id)
        return _shown(number, _query(request).get("fields"))

    def _admit(self, request: Request, account: str, method: str) -> None:
        """The token must be valid, give access to the account, and hold the permission."""
        token = self._token(request)
        if account == PORTFOLIO_ID:
            field = request.path.rpartition("/")[2]
            raise GraphError(
                INVALID_REQUEST,
                "",
                message=f"(#100) Tried accessing nonexisting field ({field}) on node type (Business)",
            )
        if account not in token.accounts:
            raise _unsupported(method, account)
        if MANAGE not in token.scopes:
            raise GraphError(PERMISSION, "", message="(#200) You do not have permission to access this field")

    def _token(self, request: Request) -> AccessToken:
        return admitted(self.accounts, bearer_of(request))


def admitted(accounts: Accounts, given: str) -> AccessToken:
    """The access token; GraphError if it is unknown, or no longer valid."""
    token = accounts.token(given)
    if token is None:
        raise GraphError(TOKEN, "The access token is missing or not valid.")
    if not token.is_valid:
        raise GraphError(TOKEN, "The access token has expired or was revoked.", subcode=SUBCODES.get(token.state, 463))
    return token


def bearer_of(request: Request) -> str:
    """The token in the Authorization header; "" if there is none."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token if scheme == "Bearer" else ""


def _described(token: AccessToken) -> dict[str, Any]:
    ids = {"target_ids": list(token.accounts)} if token.target_ids else {}
    error = {"code": TOKEN, "message": "The session is invalid.", "subcode": SUBCODES.get(token.state, 463)}
    return {
        "app_id": token.app_id,
        "type": "SYSTEM_USER",
        "application": "Pombo",
        "data_access_expires_at": token.data_access_expires_at,
        "expires_at": token.expires_at,
        **({} if token.is_valid else {"error": error}),
        "is_valid": token.is_valid,
        "scopes": list(token.scopes),
        "granular_scopes": [{"scope": scope, **ids} for scope in token.scopes if scope in SCOPES],
    }


def _shown(number: BusinessNumber, fields: str | None) -> dict[str, str]:
    """The fields that were asked for, and always the id."""
    known = {
        "id": number.id,
        "display_phone_number": number.display,
        "verified_name": "Pombo",
        "quality_rating": "GREEN",
        "code_verification_status": "VERIFIED",
    }
    wanted = {"id", *fields.split(",")} if fields else known.keys()
    return {name: value for name, value in known.items() if name in wanted}


def _unsupported(method: str, id: str) -> GraphError:
    """What Meta answers about an object that does not exist, or that the token may not see."""
    return GraphError(
        INVALID_REQUEST,
        "",
        subcode=OBJECT_GONE,
        message=f"Unsupported {method} request. Object with ID '{id}' does not exist, cannot be loaded due to missing "
        "permissions, or does not support this operation",
    )


def _query(request: Request) -> dict[str, str]:
    return {name: values[-1] for name, values in parse_qs(request.query).items()}


def _override(request: Request) -> dict[str, Any]:
    """The override in a JSON or form body; empty without one."""
    try:
        fields = json.loads(request.body)
    except (ValueError, RecursionError):
        fields = {name: values[-1] for name, values in parse_qs(request.body.decode("latin-1")).items()}
    uri = fields.get("override_callback_uri") if isinstance(fields, dict) else None
    return {"override_callback_uri": uri} if uri else {}
